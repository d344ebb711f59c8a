"""Compares methods: probability of improvement, ranks, scores on a common scale.

References:
    [Agarwal2021] Agarwal et al., "Deep reinforcement learning at the edge of the statistical
        precipice", NeurIPS 2021.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_scores, as_table, finite
from autorl.statistics.bootstrap import Interval, two_sample_interval


def probability_of_improvement(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Probability that a run of X beats a run of Y [Agarwal2021].

    It is the mean over tasks j of the mean over pairs (i, k) of [x_ij > y_kj] + 0.5 [x_ij = y_kj],
    i.e. the Mann-Whitney U over n_x n_y. Shapes (n_x, m) and (n_y, m); 0.5 when X and Y are the
    same.
    """
    first = as_scores(x, "x")
    second = as_scores(y, "y")
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"x and y must have the same tasks, got {first.shape[1]} and {second.shape[1]} columns"
        )
    return float(_improvement(first, second))


def improvement_interval(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Stratified bootstrap percentile interval of the probability of improvement.

    X and Y are resampled separately.
    """
    return two_sample_interval(x, y, _improvement, rng=rng, level=level, resamples=resamples)


def _improvement(a: Array, b: Array) -> Array:
    """Probability of improvement of stacks of samples.

    Shapes: (..., n, m), (..., k, m) -> (...).
    """
    first = a[..., :, None, :]
    second = b[..., None, :, :]
    return np.asarray(((first > second) + 0.5 * (first == second)).mean(axis=(-3, -2, -1)))


def ranks(values: npt.ArrayLike, ties: Literal["average", "min"] = "average") -> Array:
    """Rank the values along the last axis, 1 = largest.

    Equal values share the mean rank, or the smallest with ties="min".
    """
    table = finite(values, "values")
    if ties not in ("average", "min"):
        raise ValueError(f"ties must be 'average' or 'min', got {ties!r}")
    from scipy.stats import rankdata  # slow to import

    return np.asarray(rankdata(-table, method=ties, axis=-1), dtype=np.float64)


def average_ranks(scores: npt.ArrayLike) -> Array:
    """Mean rank of each of k methods over N cases.

    Shapes: (N, k) -> (k,). 1 is best, ties are averaged.
    """
    return np.asarray(ranks(as_table(scores, "scores", columns=2)).mean(axis=0))


def min_max(scores: npt.ArrayLike) -> Array:
    """Scale each task's scores to [0, 1] by its extremes.

    Each column of an (n, m tasks) array becomes (score - min) / (max - min).

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


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Correlate ranks along the last axis, by Spearman's coefficient, ties averaged.

    (..., n) and (..., n) -> (...). It is 0 where one side is constant, since that side then says
    nothing about the order of the other (SciPy: NaN).
    """
    from scipy.stats import rankdata

    centred = []
    for sample in (first, second):
        ranks = rankdata(np.asarray(sample, dtype=np.float64), axis=-1)
        centred.append(ranks - ranks.mean(axis=-1, keepdims=True))
    left, right = centred
    scale = np.sqrt((left**2).sum(axis=-1) * (right**2).sum(axis=-1))
    product = (left * right).sum(axis=-1)
    return np.asarray(np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0))
