"""A child process that cannot outlive the segment it works for."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork


def die_with_parent() -> None:
    """In the child, before it becomes the command: be killed when the thread that started it ends (Linux only).

    Elsewhere only the executor's killing of the whole process group takes the command along.
    """
    if _LIBC is not None:
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)


@contextmanager
def stop(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill `process` if the block is left before it has ended."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
