"""Keeps a training in the process that began it.

Imports nothing of `autorl`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class ForkError(RuntimeError):
    """A forked process of user code did what only its parent may."""


@contextmanager
def ends_forked_children() -> Iterator[None]:
    """End every process that user code has forked in the block.

    One that comes back to where the block ends would save, report and return a result a second
    time, through the same files and connections. Its exit code is that of a program: 0, 1 after an
    exception, or what it gave to `sys.exit`. Its parent goes on alone.
    """
    owner = os.getpid()
    code = 0
    try:
        yield
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException:
        code = 1
        raise
    finally:
        if os.getpid() != owner:
            os._exit(code)


def refuse_forked(owner: int) -> None:
    """Raise `ForkError` in another process than `owner`."""
    if os.getpid() != owner:
        raise ForkError(
            "a process that the training has forked cannot report: "
            "only the process that began the segment can"
        )
