"""Checks of arrays of scores, shared by the statistics.

An array that passes is finite, not empty and of the stated rank.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]


def finite(values: npt.ArrayLike, name: str) -> Array:
    """Return `values` as float64.

    Raises:
        ValueError: `values` are empty, not numeric, NaN or infinite.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:  # NumPy says either, by what is no number
        raise ValueError(
            f"{name} must be an array of numbers of equal row length: {error}"
        ) from error
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise ValueError(
            f"{name} must be finite: {bad} of {array.size} values are NaN or infinite; "
            "decide what a crashed run scores before aggregating"
        )
    return array


def as_scores(values: npt.ArrayLike, name: str = "scores") -> Array:
    """Return `values` as an (n runs, m tasks) array.

    A flat array of n values is n runs of one task.
    """
    array = finite(values, name)
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape (n,) or (n runs, m tasks), got {array.shape}")
    return array


def as_vector(values: npt.ArrayLike, name: str) -> Array:
    """Return `values` as a flat array."""
    array = finite(values, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    return array


def as_table(values: npt.ArrayLike, name: str, columns: int = 1) -> Array:
    """Return `values` as a two-dimensional array with at least `columns` columns."""
    array = finite(values, name)
    if array.ndim != 2 or array.shape[1] < columns:
        raise ValueError(
            f"{name} must be two-dimensional with at least {columns} columns, "
            f"got shape {array.shape}"
        )
    return array


def same_shape(first: Array, second: Array, names: str) -> None:
    """Raise ValueError unless both arrays have one shape."""
    if first.shape != second.shape:
        raise ValueError(f"{names} must have the same shape, got {first.shape} and {second.shape}")


def in_range(value: float, name: str, low: float, high: float) -> float:
    """Return `value` if low < value < high, else raise ValueError."""
    if not low < value < high:
        raise ValueError(f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}")
    return float(value)
