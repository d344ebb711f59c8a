"""Puts scores on a common scale, so that tasks can be pooled.

A report says which of these it used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_table, finite
from autorl.statistics.comparison import ranks


def reference_score(scores: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Array:
    """Scale scores to (score - low) / (high - low), not clipped.

    `low` and `high` are, e.g., random and human play, or the bounds of a landscape.

    Args:
        scores: any shape whose last axis is the tasks.
        low: the score that maps to 0; a number, or one per task (m,).
        high: the score that maps to 1, alike.

    Raises:
        ValueError: high <= low for a task, anything not finite.
    """
    values = finite(scores, "scores")
    lower = finite(low, "low")
    upper = finite(high, "high")
    if np.any(upper <= lower):
        raise ValueError("high must be larger than low for every task")
    return np.asarray((values - lower) / (upper - lower))


def min_max(scores: npt.ArrayLike) -> Array:
    """Scale each task's scores to [0, 1] by its extremes.

    Of an (n, m tasks) array it is (score - min) / (max - min) of each column.

    Raises:
        ValueError: a column is constant, so it has no scale.
    """
    table = as_table(scores, "scores")
    low = table.min(axis=0)
    high = table.max(axis=0)
    flat = np.flatnonzero(high == low)
    if len(flat):
        raise ValueError(
            "min-max normalisation needs two different scores in a task, "
            f"columns {flat.tolist()} are constant"
        )
    return np.asarray((table - low) / (high - low))


def rank_normalise(scores: npt.ArrayLike) -> Array:
    """Percentile rank of each score within its task, in (0, 1].

    Of an (n, m tasks) array it is rank / n in each column, worst first, ties averaged.
    """
    table = as_table(scores, "scores")
    # `ranks` gives the largest 1 and goes along the last axis; tasks are columns here.
    worst_first = len(table) + 1 - ranks(table.T).T
    return np.asarray(worst_first / len(table))
