"""Scores on a common scale, so that tasks can be pooled. A report says which of these it used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_table, finite
from autorl.statistics.comparison import ranks


def reference_score(scores: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Array:
    """(score - low) / (high - low), e.g. random and human play, or the bounds of a landscape. Not clipped.

    Args:
        scores: any shape whose last axis is the tasks.
        low: the score that maps to 0; a number, or one per task (m,).
        high: the score that maps to 1, alike.

    Raises:
        ValueError: high <= low for a task, anything not finite.
    """
    values, zero, one = finite(scores, "scores"), finite(low, "low"), finite(high, "high")
    if np.any(one <= zero):
        raise ValueError("high must be larger than low for every task")
    return np.asarray((values - zero) / (one - zero))


def min_max(scores: npt.ArrayLike) -> Array:
    """(score - min) / (max - min) of each column of an (n, m tasks) array; each task then spans [0, 1].

    Raises:
        ValueError: a column is constant, so it has no scale.
    """
    table = as_table(scores, "scores")
    low, high = table.min(axis=0), table.max(axis=0)
    flat = np.flatnonzero(high == low)
    if len(flat):
        raise ValueError(
            f"min-max normalisation needs two different scores in a task, columns {flat.tolist()} are constant"
        )
    return np.asarray((table - low) / (high - low))


def rank_normalise(scores: npt.ArrayLike) -> Array:
    """Percentile rank in (0, 1] of each score within its column (n, m tasks): rank / n, worst first, ties averaged."""
    table = as_table(scores, "scores")
    worst_first = len(table) + 1 - ranks(table.T).T
    return np.asarray(worst_first / len(table))
