"""Compares methods: probability of improvement, profiles, ranks and their tests.

References:
    [Agarwal2021] Agarwal et al., "Deep reinforcement learning at the edge of the statistical
        precipice", NeurIPS 2021.
    [Demsar2006] Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7,
        2006.
    [Holm1979] Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_scores, as_table, as_vector, finite, in_range
from autorl.statistics.bootstrap import Interval, resampled, two_sample_interval


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


def performance_profile(scores: npt.ArrayLike, thresholds: npt.ArrayLike) -> Array:
    """Share of all n * m scores above each threshold [Agarwal2021].

    Shapes: (n runs, m tasks), (t,) -> (t,).
    """
    return _profile(as_scores(scores), as_vector(thresholds, "thresholds"))


def profile_band(
    scores: npt.ArrayLike, thresholds: npt.ArrayLike, *, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Stratified bootstrap 95 % band of a performance profile, at each threshold.

    Raises:
        ValueError: fewer than 2 runs, or scores not finite.
    """
    places = as_vector(thresholds, "thresholds")
    draws = [_profile(stack, places) for stack in resampled(scores, rng, 2000)]
    low, high = np.quantile(np.concatenate(draws), [0.025, 0.975], axis=0)
    return low, high


def _profile(scores: Array, thresholds: Array) -> Array:
    """Shapes: (..., n, m), (t,) -> (..., t)."""
    above = [(scores > threshold).mean(axis=(-2, -1)) for threshold in thresholds]
    return np.stack(above, axis=-1)


def optimality_gap(scores: npt.ArrayLike, target: float = 1.0) -> float:
    """Mean amount by which scores fall short of a target [Agarwal2021]."""
    return float(target - np.minimum(as_scores(scores), target).mean())


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


def friedman(scores: npt.ArrayLike) -> tuple[float, float]:
    """Test whether methods have equal mean ranks [Demsar2006].

    Shapes: (N cases, k >= 3 methods). Returns the statistic, corrected for ties, and the p-value of
    its chi-squared approximation; 0 and 1 where every case is one tie.
    """
    table = as_table(scores, "scores", columns=3)
    if (table == table[:, :1]).all():
        return 0.0, 1.0
    from scipy.stats import friedmanchisquare  # slow to import

    statistic, p_value = friedmanchisquare(*table.T)
    return float(statistic), float(p_value)


def critical_difference(methods: int, cases: int, level: float = 0.05) -> float:
    """Smallest difference of mean ranks that Nemenyi's test calls one [Demsar2006].

    It is q sqrt(k (k + 1) / (6 N)) with q the upper `level` quantile of the studentized range of k
    means and infinite degrees of freedom, divided by sqrt 2.
    """
    in_range(level, "level", 0.0, 1.0)
    from scipy.stats import studentized_range  # slow to import

    q = float(studentized_range.ppf(1 - level, methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * cases)))


def signed_rank(differences: npt.ArrayLike) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test of paired differences.

    Zeros take part in the ranking (Pratt); 1 where all are zero.
    """
    values = as_vector(differences, "differences")
    if not values.any():
        return 1.0
    from scipy.stats import wilcoxon  # slow to import

    return float(wilcoxon(values, zero_method="pratt").pvalue)


def holm(p_values: npt.ArrayLike) -> Array:
    """Correct p-values for their number [Holm1979].

    The j-th smallest of m is taken m - j + 1 times, and none is below a smaller one or above 1.
    """
    raw = as_vector(p_values, "p_values")
    order = np.argsort(raw)
    stepped = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    corrected = np.empty_like(raw)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


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
