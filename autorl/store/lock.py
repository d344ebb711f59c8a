"""One driver per study folder: a lock the operating system releases when its holder dies, kill -9 included."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from autorl.store.folder import LOCK_FILE
from autorl.types import InputError


class FolderLock:
    """Holds `study.lock` in `folder` and the folder itself; the file names the holder for the one who is refused.

    The file alone can be removed by hand, and the next driver would lock a new one.

    Raises:
        InputError: another driver holds the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file = open(self._path, "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the lock
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(self._path)
            self._file.close()
            raise InputError(
                f"another driver works on this study ({holder}): wait for it or stop it first",
                file=str(folder),
            ) from error
        self._directory: int | None = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise InputError(
                "another driver works on this study (its study.lock was removed): wait for it or stop it first",
                file=str(folder),
            ) from error
        except OSError:  # a network file system that locks no folders: the file's lock holds, unless it is removed
            pass
        self._file.truncate(0)
        self._file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        self._file.flush()

    def release(self) -> None:
        self._file.close()
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def _holder(path: Path) -> str:
    try:
        who = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "unknown process"
    return f"process {who.get('pid')} on {who.get('host')}"
