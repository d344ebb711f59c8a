"""The lock of a study folder: one driver at a time.

The operating system releases it when its holder dies, kill -9 included.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import psutil

from autorl.core.regular_files import open_regular
from autorl.core.types import InputError
from autorl.store.folder import LOCK_FILE

_LAST_WAIT = 5.0  # seconds for what a killed driver was starting


class FolderLock:
    """Holds `study.lock` in `folder`, and the folder itself.

    The file names the holder for the one who is refused.

    The file alone can be removed by hand, and the next driver would lock a new one.

    Raises:
        InputError: another driver holds the folder.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK_FILE
        if path.is_symlink():
            raise InputError("is a link: the lock of a study is a file of its own", file=str(path))
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        # "a+" leaves what is in it: who is refused reads the holder there.
        self._file = os.fdopen(open_regular(path, flags), "a+", encoding="utf-8")
        self._directory: int | None = None
        try:
            _lock(self._file.fileno(), self._file)
        except BlockingIOError as error:
            holder = _recorded_holder(self._file)
            self._file.close()
            name = _shown_holder(holder) if holder else "unknown process"
            raise InputError(
                f"another driver works on this study ({name}): wait for it or stop it first",
                file=str(folder),
            ) from error
        self._directory = os.open(folder, os.O_RDONLY)
        try:
            _lock(self._directory, self._file)
        except BlockingIOError as error:
            self.release()
            raise InputError(
                "another driver works on this study (its study.lock was removed): "
                "wait for it or stop it first",
                file=str(folder),
            ) from error
        # A network file system that locks no folders: the file's lock holds, unless it is
        # removed.
        except OSError:
            pass
        self._file.truncate(0)
        self._file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        self._file.flush()

    def release(self) -> None:
        self._file.close()
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def _lock(descriptor: int, file: IO[str]) -> None:
    """Lock a descriptor, unless a driver that lives holds it.

    A driver that was killed while it started a process holds its locks a moment longer: the new
    process has them too, until it runs its own program.

    Raises:
        OSError: it cannot be locked.
    """
    end = time.monotonic() + _LAST_WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            # Read anew: a driver that came between has written its own name by now, or will.
            holder = _recorded_holder(file)
            if not holder or _may_live(holder) or time.monotonic() > end:
                raise
        time.sleep(0.01)


def lock_holder(folder: Path) -> str | None:
    """Name the process that drives the study in `folder`.

    The result is None when no process does.

    The file of a driver that was killed stays, so a holder must live where that can be seen, and
    hold the lock.
    """
    try:
        with os.fdopen(open_regular(folder / LOCK_FILE), encoding="utf-8") as file:
            holder = _recorded_holder(file)
            if not holder or not _may_live(holder):
                return None
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back when the file is closed
    except BlockingIOError:
        return _shown_holder(holder)
    except OSError:
        return None
    return None


def _recorded_holder(file: IO[str]) -> Mapping[str, Any]:
    file.seek(0)
    try:
        holder = json.loads(file.read())
    except ValueError:  # a driver is about to write it
        return {}
    return holder if isinstance(holder, dict) and isinstance(holder.get("pid"), int) else {}


def _shown_holder(holder: Mapping[str, object]) -> str:
    return f"process {holder.get('pid')} on {holder.get('host')}"


def _may_live(holder: Mapping[str, Any]) -> bool:
    """Say whether a holder lives, as far as this machine can see."""
    return holder.get("host") != socket.gethostname() or psutil.pid_exists(holder["pid"])
