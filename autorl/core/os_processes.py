"""Processes: why they ended, what they started, how to end that.

On Linux a worker is the reaper of everything it starts, so that no daemon and no session of its own
leaves its tree. Elsewhere nothing here reaches past a process group: the functions say so.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork
_LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
_LAST_WAIT = 5.0  # seconds
_SHELL = 128  # a shell reports a command ended by signal n as exit code 128 + n

OWN_FAULTS = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGSYS", "SIGTRAP")
    if hasattr(signal, name)
)
"""Signals that speak of the program itself: it would end so again."""
_FROM_SHELL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})


class ProcessLostError(Exception):
    """A process that a segment needs was ended from outside.

    No fault of its configuration.
    """


class ProcessStat(NamedTuple):
    """Facts that Linux gives about a process.

    Attributes:
        parent: its process id.
        state: a letter: `T` is stopped, `Z` has ended.
        cpu_seconds: CPU time used.
    """

    parent: int
    state: str
    cpu_seconds: float


def ended_from_outside(code: int) -> bool:
    """Tell whether an exit code says nothing of the program itself.

    It is negative for a signal. An out-of-memory killer sends SIGKILL, a scheduler SIGTERM or
    SIGHUP, a terminal SIGINT. 128 + n is what a shell reports of a command that such a signal has
    ended.
    """
    if code < 0:
        return -code not in OWN_FAULTS
    return code - _SHELL in _FROM_SHELL


def exit_text(code: int) -> str:
    """Say how a process ended: `exit code 3`, or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


@cache
def host_identity() -> str:
    """Name the place where a process number means one process.

    It is the host, since it was started, and on Linux the namespace of process numbers: containers
    of one host may have one name, and a restarted one has its name again.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8])
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return "-".join(parts)


def die_with_parent() -> None:
    """Have this process killed when the thread that started it ends.

    On Linux. Elsewhere only the killing of the whole process group takes it along.
    """
    if _LIBC is not None:
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends.

    None leaves the tree of this process (Linux only).
    """
    if _LIBC is not None:
        _LIBC.prctl(_ADOPT_ORPHANS, 1)


@contextmanager
def without_main() -> Iterator[None]:
    """Hide `__main__` from multiprocessing, which would import it in every child."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def open_descriptors() -> list[int]:
    """Give the numbers above 2 that may be open files here.

    The list is exact where the system lists open files.
    """
    place = Path("/proc/self/fd")
    numbers = [int(name) for name in os.listdir(place)] if place.is_dir() else list(range(1024))
    return [number for number in numbers if number > 2]


def stat(pid: int) -> ProcessStat | None:
    """Read what Linux tells of a process.

    None once it is gone, and on other systems.
    """
    fields = _stat_fields(pid)
    if fields is None:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessStat(int(fields[1]), fields[0], ticks / os.sysconf("SC_CLK_TCK"))


def _stat_fields(pid: int) -> list[str] | None:
    """Read the fields after the name, the state first (proc(5)).

    None once the process is gone.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()  # a name may hold spaces and brackets


def descendants(pid: int) -> dict[int, ProcessStat]:
    """Find the processes below `pid` that have not ended (Linux only)."""
    below: dict[int, ProcessStat] = {}
    parents = [pid]
    children = _children if _LISTS_CHILDREN else _children_by_psutil
    while parents:
        for child in children(parents.pop()):
            parents.append(child)
            process = stat(child)
            if process is not None and process.state not in "ZX":
                below[child] = process
    return below


def end_descendants(pid: int, spare: Iterable[int] = ()) -> None:
    """Kill everything below `pid` but what is below `spare` (Linux only).

    Sessions of their own included. `pid` must be the reaper of its orphans: those of a process that
    is killed are found in the next round. A process that cannot be killed at once (it waits for a
    disk or a device) is not waited for longer than `_LAST_WAIT` seconds.
    """
    end = time.monotonic() + _LAST_WAIT
    empty = 0
    # Twice: a list that is read while a process ends may lack another one.
    while empty < 2 and time.monotonic() < end:
        targets = descendants(pid)
        for process in spare:
            for spared in (process, *descendants(process)):
                targets.pop(spared, None)
        empty = 0 if targets else empty + 1
        for target in targets:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        if targets:
            time.sleep(0.001)


def end_marked(variable: str, value: str) -> None:
    """Kill every process that an environment variable marks, wherever it is.

    On Linux only.
    """
    end = time.monotonic() + _LAST_WAIT
    mark = f"{variable}={value}".encode()
    while time.monotonic() < end:
        marked, loading = _marked(mark)
        for target in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        if not marked and not loading:
            return
        time.sleep(0.001)


def _marked(mark: bytes) -> tuple[list[int], bool]:
    """Find the processes with `mark` in their environment.

    Returned is also whether the environment of another one cannot be read yet.
    """
    marked = []
    loading = False
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():
        if not entry.isdigit():
            continue
        with suppress(OSError):  # it has ended, or it is somebody else's
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            if mark in variables:
                process = stat(int(entry))
                if process is not None and process.state not in "ZX":
                    marked.append(int(entry))
            elif variables == [b""]:
                loading = loading or _is_loading(int(entry))
    return marked, loading


def _is_loading(pid: int) -> bool:
    """Tell whether the program of a process is still being loaded.

    Until then its environment reads as empty, although whoever started it has gone on. A process
    that was preempted just then outlived `end_marked`, on a loaded machine.
    """
    fields = _stat_fields(pid)
    # Kernel threads and ended processes have no memory; elsewhere an empty environment has a place.
    return fields is not None and int(fields[20]) > 0 and int(fields[47]) == 0


def _children(pid: int) -> list[int]:
    """List the children of a process, ended ones included."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            children += map(
                int, Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
            )
    return children


def _children_by_psutil(pid: int) -> list[int]:
    """List the children of a process where the kernel keeps no list.

    psutil asks every process for its parent: 1.7 ms with 109 processes, 0.08 ms with the list.
    """
    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []
