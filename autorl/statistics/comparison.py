"""Comparison of methods: probability of improvement, profiles, ranks and rank tests.

References:
    [Agarwal2021] Agarwal et al., "Deep reinforcement learning at the edge of the statistical
        precipice", NeurIPS 2021.
    [Demsar2006] Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR
        2006.
    [Pratt1959] Pratt, "Remarks on zeros and ties in the Wilcoxon signed rank procedures", JASA
        1959.
    [Holm1979] Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import (
    Array,
    as_scores,
    as_table,
    as_vector,
    finite,
    in_range,
    same_shape,
)
from autorl.statistics.bootstrap import Interval, two_sample_interval

_EXACT_UP_TO = 200  # pairs for which the signed-rank distribution is computed exactly
_PROFILE_RESAMPLES = 2000


@dataclass(frozen=True)
class TestResult:
    """A test statistic and its p-value."""

    __test__ = False  # not a pytest class

    statistic: float
    p_value: float


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

    X and Y are resampled each for itself.
    """
    return two_sample_interval(x, y, _improvement, rng=rng, level=level, resamples=resamples)


def _improvement(a: Array, b: Array) -> Array:
    """Probability of improvement of stacks of samples.

    Shapes: (..., n, m), (..., k, m) -> (...).
    """
    first = a[..., :, None, :]
    second = b[..., None, :, :]
    return np.asarray(((first > second) + 0.5 * (first == second)).mean(axis=(-3, -2, -1)))


def paired_differences(first: npt.ArrayLike, second: npt.ArrayLike) -> Array:
    """Subtract `second` from `first`, run by run: (n runs, m tasks).

    Row i of both is the same seed.
    """
    a = as_scores(first, "first")
    b = as_scores(second, "second")
    same_shape(a, b, "paired samples")
    return a - b


def performance_profile(scores: npt.ArrayLike, thresholds: npt.ArrayLike) -> Array:
    """Share of all scores strictly above each threshold [Agarwal2021].

    Scores have the shape (n runs, m tasks), thresholds and result (t,).
    """
    pooled = np.sort(as_scores(scores).ravel())
    above = len(pooled) - np.searchsorted(pooled, as_vector(thresholds, "thresholds"), side="right")
    return np.asarray(above / len(pooled))


def profile_band(
    scores: npt.ArrayLike,
    thresholds: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = _PROFILE_RESAMPLES,
) -> tuple[Array, Array]:
    """Pointwise percentile band (low, high) of the performance profile, each (t,).

    The bootstrap is stratified by task.
    """
    table = as_scores(scores)
    at = as_vector(thresholds, "thresholds")
    in_range(level, "level", 0.0, 1.0)
    profiles = np.empty((resamples, len(at)))
    columns = np.arange(table.shape[1])
    for row in profiles:
        row[:] = performance_profile(
            table[rng.integers(0, len(table), size=table.shape), columns], at
        )
    low, high = np.quantile(profiles, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def ecdf(values: npt.ArrayLike, at: npt.ArrayLike) -> Array:
    """Empirical distribution function: share of `values` <= each point of `at` (t,)."""
    ordered = np.sort(as_vector(values, "values"))
    return np.asarray(np.searchsorted(ordered, as_vector(at, "at"), side="right") / len(ordered))


def ranks(values: npt.ArrayLike, ties: Literal["average", "min"] = "average") -> Array:
    """Rank the values along the last axis, 1 = largest.

    Equal values share the mean rank, or the smallest with ties="min".
    """
    table = finite(values, "values")
    if ties not in ("average", "min"):
        raise ValueError(f"ties must be 'average' or 'min', got {ties!r}")
    order = np.argsort(-table, axis=-1, kind="stable")
    ordered = np.take_along_axis(table, order, axis=-1)
    changes = np.concatenate(
        [np.ones_like(ordered[..., :1], dtype=bool), np.diff(ordered, axis=-1) != 0], axis=-1
    )
    # By scans over the sorted values: every value beside every other would be 90 GB of 300,000.
    places = np.broadcast_to(np.arange(table.shape[-1]), table.shape)
    # The first and the last place of the values equal to this one.
    first = np.maximum.accumulate(np.where(changes, places, 0), axis=-1)
    ends = np.concatenate([changes[..., 1:], np.ones_like(changes[..., :1])], axis=-1)
    backwards = np.where(ends, places, table.shape[-1])[..., ::-1]
    last = np.minimum.accumulate(backwards, axis=-1)[..., ::-1]
    sorted_ranks = first + 1.0 if ties == "min" else (first + last) / 2 + 1.0
    result = np.empty(table.shape)
    np.put_along_axis(result, order, sorted_ranks, axis=-1)
    return result


def average_ranks(scores: npt.ArrayLike) -> Array:
    """Mean rank of each of k methods over N cases.

    Shapes: (N, k) -> (k,). 1 is best, ties are averaged.
    """
    return np.asarray(ranks(as_table(scores, "scores", columns=2)).mean(axis=0))


def friedman(scores: npt.ArrayLike) -> TestResult:
    """Friedman test that k methods rank alike over N cases [Demsar2006].

    Scores have the shape (N, k); ties are corrected for. The statistic is

        chi2 = 12 N / (k (k + 1)) (sum_j R_j^2 - k (k + 1)^2 / 4)
               / (1 - sum of (t^3 - t) over ties / (N k (k^2 - 1))),

    R_j the average ranks, compared with the chi-squared distribution of k - 1 degrees of freedom.
    It is 0 and p = 1 if every case is one tie.

    Raises:
        ValueError: fewer than 3 methods (use `wilcoxon` for two).
    """
    table = as_table(scores, "scores", columns=3)
    cases, methods = table.shape
    mean_ranks = average_ranks(table)
    tied = 0
    for row in table:
        sizes = np.unique(row, return_counts=True)[1]
        tied += int((sizes**3 - sizes).sum())
    correction = 1 - tied / (cases * methods * (methods**2 - 1))
    # Every case is one tie: the statistic would be 0 / 0.
    if correction <= 0:
        return TestResult(0.0, 1.0)
    from scipy.special import chdtrc

    spread = float((mean_ranks**2).sum()) - methods * (methods + 1) ** 2 / 4
    statistic = 12 * cases / (methods * (methods + 1)) * spread / correction
    # `chdtrc` of less than 0, which rounding may make of 0, is NaN.
    return TestResult(statistic, float(chdtrc(methods - 1, max(statistic, 0.0))))


def wilcoxon(first: npt.ArrayLike, second: npt.ArrayLike) -> TestResult:
    """Two-sided Wilcoxon signed-rank test of paired samples (N,).

    All |differences| are ranked, zeros included (ties averaged); then zeros are left out, as
    [Pratt1959] does. The statistic is the smaller of the rank sums of positive and negative
    differences. The p-value is that of the exact distribution in which each sign is a fair coin,
    given the ranks; beyond 200 pairs its normal approximation. All differences zero: p = 1.
    """
    a = as_vector(first, "first")
    b = as_vector(second, "second")
    same_shape(a, b, "paired samples")
    difference = a - b
    # Zeros are ranked with the others and left out below [Pratt1959].
    size = np.abs(difference)
    rank = len(size) + 1 - ranks(size)  # `ranks` gives the largest 1, this test the smallest
    # Mean ranks of ties are multiples of one half: doubled they are integers.
    doubled = np.rint(2 * rank[difference != 0]).astype(np.int64)
    positive = int(np.rint(2 * rank[difference > 0].sum()))
    total = int(doubled.sum())
    statistic = min(positive, total - positive)
    if len(doubled) <= _EXACT_UP_TO:
        return TestResult(statistic / 2, _sign_flip_p(doubled, statistic))
    from scipy.special import ndtr

    # Each sign a fair coin: the sum has the mean sum(w) / 2 and the variance sum(w^2) / 4.
    spread = np.sqrt(float((doubled.astype(float) ** 2).sum())) / 2
    p_value = min(1.0, 2 * ndtr((statistic - total / 2) / spread))
    return TestResult(statistic / 2, float(p_value))


def _sign_flip_p(weights: npt.NDArray[np.int64], statistic: int) -> float:
    """Return P(min(S, total - S) <= statistic) of random signs.

    S is the sum of the weights whose fair coin fell heads.
    """
    total = int(weights.sum())
    probability = np.zeros(total + 1)
    probability[0] = 1.0
    # Weight by weight: the distribution of S is the mean of that without it and that moved by it.
    for weight in weights:
        shifted = np.zeros_like(probability)
        shifted[weight:] = probability[: total + 1 - weight]
        probability = 0.5 * (probability + shifted)
    # Where S is half of the total both tails hold it: their sum is above 1.
    return float(
        min(1.0, probability[: statistic + 1].sum() + probability[total - statistic :].sum())
    )


def holm(p_values: npt.ArrayLike) -> Array:
    """Adjust p-values by Holm's step-down method [Holm1979].

    Of the m values sorted ascending the j-th becomes the maximum over i <= j of min(1, (m - i + 1)
    p_(i)), i from 1.
    """
    raw = as_vector(p_values, "p_values")
    if np.any((raw < 0) | (raw > 1)):
        raise ValueError("p_values must lie in [0, 1]")
    order = np.argsort(raw, kind="stable")
    # An adjusted p-value is never below that of a smaller raw one.
    stepped = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def pairwise_wilcoxon(scores: npt.ArrayLike) -> Array:
    """Holm-adjusted Wilcoxon p-values of all pairs of k methods.

    Scores have the shape (N cases, k); the result (k, k) is symmetric with diagonal 1.
    """
    table = as_table(scores, "scores", columns=2)
    rows, columns = np.triu_indices(table.shape[1], k=1)
    adjusted = holm(
        [wilcoxon(table[:, i], table[:, j]).p_value for i, j in zip(rows, columns, strict=True)]
    )
    matrix = np.ones((table.shape[1], table.shape[1]))
    matrix[rows, columns] = matrix[columns, rows] = adjusted
    return matrix


def critical_difference(methods: int, cases: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of average ranks [Demsar2006].

    It is q sqrt(k (k + 1) / (6 N)), q the 1 - alpha quantile of the studentized range of k groups
    and infinite degrees of freedom, over sqrt 2. Two methods differ if their average ranks differ
    by at least this much.
    """
    if methods < 2 or cases < 1:
        raise ValueError(
            f"methods must be at least 2 and cases at least 1, got {methods} and {cases}"
        )
    in_range(alpha, "alpha", 0.0, 1.0)
    # Nowhere else in SciPy, and `scipy.stats` takes 0.8 CPU-seconds to import.
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * cases)))
