"""Confidence intervals, most of them by bootstrap.

Every draw comes from the Generator the caller passes. Resampling is stratified: within each task
(column) runs are drawn with replacement, independently of the other tasks, so every resample has n
runs of each of the m tasks [Agarwal2021]. With few runs intervals are too short, percentile
intervals of a mean most of all: `coverage.py` has what was measured.

References:
    [Agarwal2021] Agarwal et al., "Deep reinforcement learning at the edge of the statistical
        precipice", NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.statistics.aggregates import Aggregate, iqm, parse_aggregate
from autorl.statistics.arrays import Array, as_scores, in_range, same_shape

Stacked: TypeAlias = Callable[[Array, Array], Array]
RESAMPLES = 10_000
_CHUNK = 2_000_000  # drawn values held in memory at once: 16 MB, and as much of indices


@dataclass(frozen=True)
class Interval:
    """A confidence interval [low, high] of nominal coverage `level`.

    Attributes:
        low, high: the bounds, both inside.
        level: nominal coverage, in (0, 1).
        method: how it was made, in words.
    """

    low: float
    high: float
    level: float
    method: str

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def bootstrap_distribution(
    scores: npt.ArrayLike,
    aggregate: str | Aggregate = iqm,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Array:
    """Return the aggregate of stratified resamples of scores: shape (resamples,).

    Scores have the shape (n runs, m tasks).

    Raises:
        ValueError: fewer than 2 runs (one run says nothing about the spread), scores not finite,
            resamples < 1.
    """
    reduce = parse_aggregate(aggregate).stacked
    return np.concatenate([reduce(stack) for stack in resampled(scores, rng, resamples)])


def resampled(scores: npt.ArrayLike, rng: np.random.Generator, resamples: int) -> Iterator[Array]:
    """Yield stratified resamples of scores in stacks of shape (b, n, m).

    Raises:
        ValueError: as `bootstrap_distribution`.
    """
    table = _resampleable(scores, "scores")
    for size in _chunks(resamples, table.size):
        yield _take(table, _indices(table.shape, size, rng))


def bootstrap_interval(
    scores: npt.ArrayLike,
    aggregate: str | Aggregate = iqm,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Stratified bootstrap confidence interval of an aggregate of scores.

    Scores have the shape (n runs, m tasks). The bounds are the (1 - level) / 2 and (1 + level) / 2
    quantiles of the bootstrap distribution.

    Raises:
        ValueError: fewer than 2 runs, scores not finite, level outside (0, 1).
    """
    in_range(level, "level", 0.0, 1.0)
    draws = bootstrap_distribution(scores, aggregate, rng=rng, resamples=resamples)
    return _percentile(draws, level, "percentile")


def student_interval(scores: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """Student's t interval of the mean of n runs, shape (n,).

    Raises:
        ValueError: fewer than 2 runs, scores not finite, several tasks, level outside (0, 1).
    """
    # `scipy.stats.t.ppf` is this too, behind 0.8 CPU-seconds more of imports.
    from scipy.special import stdtrit

    in_range(level, "level", 0.0, 1.0)
    table = _resampleable(scores, "scores")
    if table.shape[1] != 1:
        raise ValueError(f"Student's t interval is of one task, got {table.shape[1]} columns")
    runs = len(table)
    half = float(stdtrit(runs - 1, (1 + level) / 2) * table.std(ddof=1) / np.sqrt(runs))
    centre = float(table.mean())
    return Interval(centre - half, centre + half, level, "Student's t")


def difference_interval(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    aggregate: str | Aggregate = iqm,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    paired: bool = False,
) -> Interval:
    """Percentile interval of aggregate(first) - aggregate(second).

    paired=False: both are resampled on their own; they may have different numbers of runs.
    paired=True: row i of both is the same seed (common random numbers) and is drawn together: the
    common effect of a seed cancels.

    Raises:
        ValueError: fewer than 2 runs, different numbers of tasks, or paired with different numbers
            of runs.
    """
    reduce = parse_aggregate(aggregate).stacked
    return two_sample_interval(
        first,
        second,
        lambda a, b: reduce(a) - reduce(b),
        rng=rng,
        level=level,
        resamples=resamples,
        paired=paired,
    )


def two_sample_interval(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    statistic: Stacked,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    paired: bool = False,
) -> Interval:
    """Percentile interval of a statistic of two samples.

    Args:
        first: the first sample, (n runs, m tasks).
        second: the second sample, (k runs, m tasks).
        statistic: called with stacks of resamples (b, n, m) and (b, k, m), returns (b,).
        rng: draws the resamples.
        level: nominal coverage.
        resamples: their number.
        paired: whether row i of both samples is the same seed and is drawn together.

    Raises:
        ValueError: as in `difference_interval`.
    """
    in_range(level, "level", 0.0, 1.0)
    a = _resampleable(first, "first")
    b = _resampleable(second, "second")
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"first and second must have the same tasks, got {a.shape[1]} and {b.shape[1]} columns"
        )
    if paired:
        same_shape(a, b, "paired samples")
    parts = []
    for size in _chunks(resamples, a.size * len(b)):  # a statistic may form all pairs of runs
        rows_of_a = _indices(a.shape, size, rng)
        rows_of_b = rows_of_a if paired else _indices(b.shape, size, rng)
        parts.append(statistic(_take(a, rows_of_a), _take(b, rows_of_b)))
    method = "paired percentile" if paired else "percentile"
    return _percentile(np.concatenate(parts), level, method)


def _percentile(draws: Array, level: float, method: str) -> Interval:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level, method)


def _resampleable(scores: npt.ArrayLike, name: str) -> Array:
    table = as_scores(scores, name)
    if len(table) < 2:
        raise ValueError(f"an interval needs at least 2 runs, {name} has {len(table)}")
    return table


def _chunks(resamples: int, values: int) -> Iterator[int]:
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    size = max(1, _CHUNK // values)
    yield from [size] * (resamples // size)
    if resamples % size:
        yield resamples % size


def _indices(shape: tuple[int, ...], size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return rng.integers(0, shape[0], size=(size, *shape))


def _take(table: Array, chosen: npt.NDArray[np.int64]) -> Array:
    # Column j of a resample has runs of task j alone: tasks are the strata [Agarwal2021].
    return table[chosen, np.arange(table.shape[1])]
