"""Pauses Python's search for reference cycles where all that is made stays.

Imports nothing of `autorl`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the search for reference cycles, if it is on.

    Looking through what stays again and again took a fifth of the time to open a study of 10,000
    proposals, and a tenth of that of a compilation. Memory is freed as ever, but for what cycles
    hold.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
