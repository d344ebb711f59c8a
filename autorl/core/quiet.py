"""Silences libraries whose remarks our users cannot act upon.

Imports nothing of `autorl`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quieted(library: str, level: int = logging.ERROR) -> Iterator[None]:
    """Drop Python's warnings, and what a library logs below a level.

    Args:
        library: name of its uppermost logger. It must be imported before: Optuna sets its level
            as it is imported.
        level: of the least that is still logged.
    """
    logger = logging.getLogger(library)
    before = logger.level
    logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
