"""Guards against user code that forks.

The training belongs to the process that began it. Imports nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class ForkError(RuntimeError):
    """Raised where a process that user code forked does its parent's work."""


@contextmanager
def ends_forked_children() -> Iterator[None]:
    """End processes that were forked in the block and left it.

    The parent goes on alone. Such a child would save, report and return a result a second time,
    through the same files and connections. Its exit code is that of a program: 0, 1 after an
    exception, or what it gave to `sys.exit`.
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
            "only the one that began the segment can"
        )
