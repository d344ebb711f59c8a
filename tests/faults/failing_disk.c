/* Lets the calls that a plan names fail: LD_PRELOAD of a study's processes (`fault_errnos.py`).

   AUTORL_PLAN is "CALL HOW NUMBER FIRST COUNT": HOW f = fails with errno NUMBER, d = is done and
   says errno NUMBER, s = writes half, c = the clock is NUMBER seconds ahead, n = calls of all kinds
   are counted, nothing else. The calls FIRST to FIRST + COUNT - 1 are hit (COUNT 0: all from FIRST
   on), counted over all processes in the file AUTORL_PLAN_FILE, below the path AUTORL_PLAN_PLACE.
   A process whose command line holds AUTORL_PLAN_SPARES is left alone. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, FSYNC, RENAME, UNLINK, LIST, STAT, CLOCK };
static const char *parts[] = {"", "checkpoints", "study.sqlite", "logs"};

static struct { atomic_long seen, hits, counts[9][4]; char path[4096]; } *shared;
static char how, place[4096];
static long call, number, first, count;

__attribute__((constructor)) static void begin(void) {
  const char *plan = getenv("AUTORL_PLAN"), *file = getenv("AUTORL_PLAN_FILE");
  const char *spares = getenv("AUTORL_PLAN_SPARES"), *where = getenv("AUTORL_PLAN_PLACE");
  char line[4096] = "";
  if (!plan || !file || !where) return;
  int own = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY);
  long length = syscall(SYS_read, own, line, sizeof line - 1);
  syscall(SYS_close, own);
  if (spares && *spares && length > 0 && memmem(line, length, spares, strlen(spares))) return;
  int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR);
  void *map = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  snprintf(place, sizeof place, "%s", where);
  if (map != MAP_FAILED && sscanf(plan, "%ld %c %ld %ld %ld", &call, &how, &number, &first, &count) == 5)
    shared = map;
}

static const char *of_fd(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlink, link, path, 4095);
  path[length > 0 ? length : 0] = 0;
  return path;
}

static int hit(int family, int fd, const char *name) {
  char path[8192];
  int kept = errno;
  if (!shared || (family != call && how != 'n')) return 0;
  if (name && *name == '/') snprintf(path, sizeof path, "%s", name);
  else {
    of_fd(fd, path);
    if (name) snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", name);
  }
  errno = kept;
  if (strncmp(path, place, strlen(place))) return 0;
  if (how == 'n') {
    for (int part = 0; part < 4; part++)
      if (!strncmp(path + strlen(place), parts[part], strlen(parts[part]))) shared->counts[family][part]++;
    return 0;
  }
  long turn = ++shared->seen;
  if (turn < first || (count && turn >= first + count)) return 0;
  if (!shared->hits++) snprintf(shared->path, sizeof shared->path, "%.4095s", path);
  return 1;
}

#define NEXT(type, function, params) \
  static type(*next) params; \
  if (!next) next = (type(*) params)dlsym(RTLD_NEXT, #function)

#define FAILS(family, type, function, params, args, fd, name, bad) \
  type function params { \
    NEXT(type, function, params); \
    if (how != 's' && hit(family, fd, name)) { \
      if (how == 'd') (void)!next args; \
      errno = number; \
      return bad; \
    } \
    return next args; \
  }

#define WRITES(function, params, args) \
  ssize_t function params { \
    NEXT(ssize_t, function, params); \
    if (hit(WRITE, fd, NULL)) { \
      if (how != 's') { errno = number; return -1; } \
      if (size > 1) size /= 2; \
    } \
    return next args; \
  }

#define OPENS(function, params, args, fd) \
  int function params { \
    NEXT(int, function, params); \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more); \
    if (hit(OPEN, fd, name)) { errno = number; return -1; } \
    return next args; \
  }

OPENS(open, (const char *name, int flags, ...), (name, flags, mode), AT_FDCWD)
OPENS(open64, (const char *name, int flags, ...), (name, flags, mode), AT_FDCWD)
OPENS(openat, (int fd, const char *name, int flags, ...), (fd, name, flags, mode), fd)
OPENS(openat64, (int fd, const char *name, int flags, ...), (fd, name, flags, mode), fd)
FAILS(OPEN, int, mkdir, (const char *name, mode_t mode), (name, mode), AT_FDCWD, name, -1)
FAILS(READ, ssize_t, read, (int fd, void *data, size_t size), (fd, data, size), fd, NULL, -1)
FAILS(READ, ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at), fd, NULL, -1)
FAILS(READ, ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at), fd, NULL, -1)
WRITES(write, (int fd, const void *data, size_t size), (fd, data, size))
WRITES(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
FAILS(WRITE, ssize_t, writev, (int fd, const struct iovec *parts, int size), (fd, parts, size), fd, NULL, -1)
FAILS(WRITE, int, ftruncate, (int fd, off_t size), (fd, size), fd, NULL, -1)
FAILS(WRITE, int, ftruncate64, (int fd, off64_t size), (fd, size), fd, NULL, -1)
FAILS(FSYNC, int, fsync, (int fd), (fd), fd, NULL, -1)
FAILS(FSYNC, int, fdatasync, (int fd), (fd), fd, NULL, -1)
FAILS(RENAME, int, rename, (const char *name, const char *to), (name, to), AT_FDCWD, name, -1)
FAILS(RENAME, int, renameat, (int fd, const char *name, int there, const char *to), (fd, name, there, to), fd, name, -1)
FAILS(UNLINK, int, unlink, (const char *name), (name), AT_FDCWD, name, -1)
FAILS(UNLINK, int, unlinkat, (int fd, const char *name, int flags), (fd, name, flags), fd, name, -1)
FAILS(UNLINK, int, rmdir, (const char *name), (name), AT_FDCWD, name, -1)
FAILS(LIST, DIR *, opendir, (const char *name), (name), AT_FDCWD, name, NULL)
FAILS(LIST, DIR *, fdopendir, (int fd), (fd), fd, NULL, NULL)
FAILS(STAT, int, stat, (const char *name, struct stat *to), (name, to), AT_FDCWD, name, -1)
FAILS(STAT, int, stat64, (const char *name, struct stat64 *to), (name, to), AT_FDCWD, name, -1)
FAILS(STAT, int, lstat, (const char *name, struct stat *to), (name, to), AT_FDCWD, name, -1)
FAILS(STAT, int, lstat64, (const char *name, struct stat64 *to), (name, to), AT_FDCWD, name, -1)
FAILS(STAT, int, fstatat, (int fd, const char *name, struct stat *to, int flags), (fd, name, to, flags), fd, name, -1)
FAILS(STAT, int, fstatat64, (int fd, const char *name, struct stat64 *to, int flags), (fd, name, to, flags), fd, name, -1)

int clock_gettime(clockid_t clock, struct timespec *to) {
  NEXT(int, clock_gettime, (clockid_t, struct timespec *));
  int answer = next(clock, to);
  if (clock == CLOCK_REALTIME && hit(CLOCK, AT_FDCWD, place)) to->tv_sec += number;
  return answer;
}
