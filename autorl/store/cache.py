"""The read cache of checkpoints that lie in a storage.

All processes of a machine share it.

    ENTRY/           the files of a checkpoint, named by the hash of their hashes
    ENTRY.lock       held shared by whoever reads the entry; its bytes are the entry's size, its
                     time is that of the last use
    .tmp-HOST-PID-*  being fetched, or what a segment saves before it is uploaded

It lies in `$AUTORL_CACHE/checkpoints`, else in the user's cache folder. When it grows beyond its
bound, entries go that nobody reads, the least recently used first.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from autorl.store.checkpoints import damage, folder_size
from autorl.store.host import host_identity, lives
from autorl.types import InputError

GIGABYTES = "AUTORL_CACHE_GB"  # environment variable: the bound
_DEFAULT_GIGABYTES = 20.0
_LOCK = ".lock"
_TEMPORARY = ".tmp-"


class DamagedError(Exception):
    """A checkpoint in a storage is not what was saved.

    Its message says how.
    """


def content_key(files: Mapping[str, str]) -> str:
    """Return the name of a checkpoint's content.

    It is the hash of the names and hashes of its files.
    """
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def cache_folder() -> Path:
    """Return the folder that the environment names for the cache."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(os.environ.get("AUTORL_CACHE") or user / "autorl") / "checkpoints"


def cache_bound() -> int:
    """Return the bytes that the environment allows the cache.

    Raises:
        InputError: the variable is no number of gigabytes.
    """
    text = os.environ.get(GIGABYTES)
    try:
        gigabytes = _DEFAULT_GIGABYTES if text is None else float(text)
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < float("inf"):
        raise InputError(f"expected a number of gigabytes, got {text!r}", key=GIGABYTES)
    return int(gigabytes * 2**30)


class CheckpointCache:
    """Local copies of checkpoints, by content.

    Args:
        folder: of the cache; None: the one of the environment.
        bound: bytes that entries nobody reads may take; None: as the environment says.
    """

    def __init__(self, folder: Path | None = None, bound: int | None = None) -> None:
        self.folder = cache_folder() if folder is None else folder
        self._bound = cache_bound() if bound is None else bound
        self._owner = f"{_TEMPORARY}{host_identity()}-"

    @contextmanager
    def reading(
        self, files: Mapping[str, str], fetch: Callable[[Path], str | None]
    ) -> Iterator[Path]:
        """Give a folder with the files of a checkpoint.

        It is there while the block runs. The files are not to be changed. An entry that is not
        whole (any more) is fetched again.

        Args:
            files: SHA-256 of every file, by name.
            fetch: copies the checkpoint to an empty folder; returns what is wrong with it, or None.

        Raises:
            DamagedError: what was fetched is not what was saved.
        """
        key = content_key(files)
        entry = self.folder / key
        with self._shared(key) as lock:
            if entry.is_dir() and damage(entry, files) is None:
                yield entry
                return
            with self.temporary() as scratch:
                copy = scratch / "checkpoint"
                copy.mkdir()
                problem = fetch(copy) or damage(copy, files)
                if problem is not None:
                    raise DamagedError(problem)
                # Somebody may read the entry that is not whole: it stays, and the copy is read.
                stored = _put(lock, copy, entry)
                self._evict(spare=key)
                yield entry if stored else copy
        if not stored:
            _removed(self.folder / f"{key}{_LOCK}")

    def adopt(self, folder: Path, files: Mapping[str, str]) -> None:
        """Take over a checkpoint that was saved on this machine.

        Nothing happens where it is there already; `folder` may be gone afterwards.
        """
        key = content_key(files)
        with self._shared(key) as lock, self.temporary() as scratch:
            if not (self.folder / key).exists():
                # It may lie on another file system: an entry appears whole all the same.
                copy = shutil.move(folder, scratch / "checkpoint")
                _put(lock, Path(copy), self.folder / key)
        self._evict(spare=key)

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Give an empty folder of this process in the cache.

        It is there while the block runs. Folders of processes of this machine that are gone are
        removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(f"{self._owner}*"):
            pid = path.name.removeprefix(self._owner).partition("-")[0]
            if pid.isdigit() and not lives(int(pid)):
                shutil.rmtree(path, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f"{self._owner}{os.getpid()}-", dir=self.folder))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    @contextmanager
    def _shared(self, key: str) -> Iterator[int]:
        """Hold the lock of an entry, and mark the entry as used.

        Other readers may hold it too.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{key}{_LOCK}"
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
                # An eviction may have removed the file between the two calls.
                if _same_file(lock, path):
                    os.utime(lock)
                    yield lock
                    return
            finally:
                os.close(lock)

    def _evict(self, spare: str) -> None:
        """Remove entries that nobody reads until the rest is within the bound."""
        entries = []
        for path in self.folder.glob(f"*{_LOCK}"):
            with suppress(FileNotFoundError, ValueError):
                entries.append((path.stat().st_mtime_ns, int(path.read_text() or 0), path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self._bound:
                return
            if path.name != f"{spare}{_LOCK}" and _removed(path):
                total -= size


def _put(lock: int, copy: Path, entry: Path) -> bool:
    """Make a copy the entry whose lock this process holds.

    Returns:
        False where there is an entry, or the copy lies on another file system: it stays there.
    """
    size = folder_size(copy)
    try:
        copy.rename(entry)
    except OSError:
        return False
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(size).encode(), 0)
    return True


def _removed(path: Path) -> bool:
    """Remove the entry of a lock file.

    Returns:
        False where somebody reads it.
    """
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _same_file(lock, path):
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink()
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
