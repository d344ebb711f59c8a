"""Redundant configurations: their scores cannot be told apart.

They say how many different results a landscape has.

DODGE [1] searches well by skipping configurations whose result lies within epsilon of one already
seen, because there are few results that differ by more. This measures whether that holds: with how
many results are all configurations covered to within epsilon, and how soon random search meets one
that is as good as the best.

References:
    [1] Agrawal, Fu, Chen, Shen and Menzies, "How to DODGE complex software analytics", 2019, arXiv
        1902.01838.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.analysis.noise import seed_noise
from autorl.landscapes.regression import Array


@dataclass(frozen=True)
class Redundancy:
    """Redundancy of n configurations.

    Attributes:
        epsilon: the difference that counts, in units of the score.
        distinct: fewest results such that every configuration lies within epsilon of one of them.
        as_good: number of configurations within epsilon of the best.
        expected_trials: mean number of configurations that random search without repetition draws
            until it has one of those.
    """

    epsilon: float
    n: int
    distinct: int
    as_good: int
    expected_trials: float

    @property
    def share(self) -> float:
        """Share of configurations that add no new result."""
        return 1.0 - self.distinct / self.n


def redundancy_of(scores: npt.ArrayLike, epsilon: float | None = None) -> Redundancy:
    """Measure the redundancy of scores (n configurations, s seeds).

    Args:
        scores: larger is better.
        epsilon: None = `detectable_difference(scores)`, which needs two seeds or more.

    Raises:
        InputError: epsilon is negative; or None with one seed or with equal scores.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"expected scores (configurations, seeds), got shape {table.shape}")
    limit = detectable_difference(table) if epsilon is None else float(epsilon)
    # Written with `not`, it refuses NaN too.
    if not limit >= 0.0:
        raise InputError(f"epsilon must be at least 0, got {limit}", key="epsilon")
    means = np.sort(table.mean(axis=1))
    as_good = int((means >= means[-1] - limit).sum())
    # The mean of the negative hypergeometric distribution: draws without replacement to the first.
    expected_trials = (len(means) + 1) / (as_good + 1)
    return Redundancy(limit, len(means), _cover(means, limit), as_good, expected_trials)


def detectable_difference(scores: npt.ArrayLike) -> float:
    """Return the difference of means that noise exceeds once in 20 times.

    The means are over s seeds: 1.96 sqrt(2 within / s).
    """
    # The 97.5 % quantile of a normal difference: two means, each with its standard error.
    return float(1.96 * np.sqrt(2.0) * seed_noise(scores).standard_error)


def _cover(ordered: Array, epsilon: float) -> int:
    """Count the fewest ascending values that cover all within epsilon.

    Each value lies within epsilon of one of them. Greedy is optimal.
    """
    count = first = 0
    while first < len(ordered):
        # The first value left needs a centre within epsilon; the largest such reaches furthest.
        centre = int(np.searchsorted(ordered, ordered[first] + epsilon, side="right")) - 1
        first = int(np.searchsorted(ordered, ordered[centre] + epsilon, side="right"))
        count += 1
    return count
