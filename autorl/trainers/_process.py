"""A child process that cannot outlive the segment it works for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill `process` if the block is left before it has ended."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
