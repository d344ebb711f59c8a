"""Pauses Python's search for garbage where none is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the search for reference cycles, if it is on.

    While a log is read, objects are made that all stay. Looking through them again and again took
    a fifth of the time to open a study of 10,000 proposals. Memory is freed as ever, but for what
    cycles hold.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
