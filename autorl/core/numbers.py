"""Checks numbers that a user has written."""

from __future__ import annotations

import math

from autorl.core.types import InputError


def is_number(
    value: object, low: float = -math.inf, high: float = math.inf, *, whole: bool = False
) -> bool:
    """Tell whether a value is a finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return low <= value <= high and abs(value) < math.inf


def check_number(
    value: object, key: str, low: float, high: float = math.inf, *, whole: bool = False
) -> None:
    """Raise `InputError` for a value that is not a number within bounds.

    Args:
        value: as the user gave it.
        key: where.
        low: the smallest number allowed.
        high: the largest.
        whole: whether only whole numbers are.
    """
    if not is_number(value, low, high, whole=whole):
        kind = "a whole number" if whole else "a number"
        bounds = f"in {low:g}..{high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise InputError(f"expected {kind} {bounds}, got {value!r}", key=key)
