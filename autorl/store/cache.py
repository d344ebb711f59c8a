"""The read cache of checkpoints that lie in a storage.

All processes of a machine share it.

    ENTRY/           the files of a checkpoint, named by the hash of their hashes; its time is that
                     of the last use
    .tmp-HOST-PID-*  what a process reads (hard links), fetches, or saves before it is uploaded

It lies in `$AUTORL_CACHE/checkpoints`, else in the user's cache folder. When it grows beyond its
bound, entries go, the least recently used first. A process that reads an entry has links of its own
to the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from autorl.core.os_processes import host_identity
from autorl.core.shipped import cache_folder
from autorl.core.types import InputError
from autorl.store.checkpoints import damage, folder_size
from autorl.store.remote import RemoteFolder

GIGABYTES = "AUTORL_CACHE_GB"  # environment variable: the bound
_DEFAULT_GIGABYTES = 20.0
_TEMPORARY = ".tmp-"


class DamagedError(Exception):
    """A checkpoint in a storage differs from the saved one.

    The message names the difference.
    """


def content_key(files: Mapping[str, str]) -> str:
    """Return the name of a checkpoint's content.

    It is the hash of the names and hashes of its files.
    """
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def cache_bound() -> int:
    """Return the most bytes of the cache, as the environment variable says.

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
        self.folder = cache_folder("checkpoints") if folder is None else folder
        self._bound = cache_bound() if bound is None else bound
        self._owner = f"{_TEMPORARY}{host_identity()}-"

    @contextmanager
    def reading(self, files: Mapping[str, str], source: RemoteFolder) -> Iterator[Path]:
        """Give a folder with the files of a checkpoint.

        It is there while the block runs. The files are not to be changed. An entry that is not
        whole (any more) is fetched again.

        Args:
            files: SHA-256 of every file, by name.
            source: where the checkpoint lies.

        Raises:
            DamagedError: what was fetched is not what was saved.
        """
        entry = self.folder / content_key(files)
        with self.temporary() as scratch:
            links = scratch / "links"
            if not _linked(entry, links) or damage(links, files) is not None:
                links = scratch / "fetched"
                links.mkdir()
                problem = source.fetch(links, files) or damage(links, files)
                if problem is not None:
                    raise DamagedError(problem)
                shutil.rmtree(entry, ignore_errors=True)
                _linked(links, scratch / "entry")
                with suppress(OSError):  # another process was first
                    (scratch / "entry").rename(entry)
                self._evict(spare=entry)
            yield links

    def adopt(self, folder: Path, files: Mapping[str, str]) -> None:
        """Take over a checkpoint that was saved on this machine.

        Nothing happens if it is there already; `folder` may be gone afterwards.
        """
        entry = self.folder / content_key(files)
        if not entry.exists():
            with self.temporary() as scratch, suppress(OSError):
                # It may lie on another file system: an entry appears whole all the same.
                Path(shutil.move(folder, scratch / "saved")).rename(entry)
        self._evict(spare=entry)

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Give an empty folder of this process in the cache.

        It is there while the block runs. Folders of processes of this machine that are gone are
        removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(f"{self._owner}*"):
            pid = path.name.removeprefix(self._owner).partition("-")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(path, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f"{self._owner}{os.getpid()}-", dir=self.folder))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _evict(self, spare: Path) -> None:
        """Remove entries until the rest is within the bound."""
        used = {}
        for entry in self.folder.glob("[!.]*"):
            with suppress(FileNotFoundError):  # another process removes it
                used[entry] = (entry.stat().st_mtime_ns, folder_size(entry))
        total = sum(size for _, size in used.values())
        for entry in sorted(used.keys() - {spare}, key=lambda entry: used[entry]):
            if total <= self._bound:
                return
            shutil.rmtree(entry, ignore_errors=True)
            total -= used[entry][1]


def _linked(entry: Path, target: Path) -> bool:
    """Link the files of an entry to a new folder.

    That is a use of the entry.

    Returns:
        False where there is no such entry, or another process removes it meanwhile.
    """
    try:
        os.utime(entry)
        shutil.copytree(entry, target, copy_function=_link)
    except (OSError, shutil.Error):
        return False
    return True


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where there are no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
