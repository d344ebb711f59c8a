"""Opens files that anybody may have placed, which need not be files.

An archive can hold a pipe, and whoever opens one to read waits until somebody writes.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, and return its descriptor.

    Raises:
        OSError: it cannot be opened, or is a pipe, a device, a socket or a folder.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_regular(path: str | Path) -> str:
    """Read the text of a regular file.

    Raises:
        OSError: as `open_regular`.
        UnicodeError: it is not text in UTF-8.
    """
    with os.fdopen(open_regular(path), encoding="utf-8") as file:
        return file.read()
