"""Says whether new runs may be more of the same.

This is the permutation test of [Pitman1937] on the mean. Seeds of one configuration are
exchangeable: the mean of new ones then lies outside its interval with a probability of at most
1 - level, whatever the distribution of scores is.

References:
    [Pitman1937] Pitman, "Significance tests which may be applied to samples from any populations",
        Supplement to the Journal of the Royal Statistical Society 4, 1937.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

import numpy as np

from autorl.statistics.bootstrap import Interval

LEVEL = 0.95
_MOST = 100_000  # splits that are counted one by one; of more, so many are drawn


def fewest_new(old: int, level: float = LEVEL) -> int | None:
    """Return how few new runs can lie outside, None for any number."""
    return next((n for n in range(1, 1000) if math.comb(old + n, n) * (1 - level) / 2 >= 1), None)


def interval_of_mean(
    old: Sequence[float], new: Sequence[float], *, rng: np.random.Generator, level: float = LEVEL
) -> Interval:
    """Bound the mean of the new runs by all splits.

    It holds the middle `level` of the means of as many runs, taken from both together.
    """
    runs = [*old, *new]
    count = len(new)
    if math.comb(len(runs), count) <= _MOST:
        splits = list(combinations(runs, count))
    else:
        drawn = (rng.choice(len(runs), count, replace=False) for _ in range(_MOST - 1))
        # The split that was observed is one of them, or the level would not hold.
        splits = [tuple(new), *(tuple(runs[index] for index in indices) for indices in drawn)]
    means = sorted(map(fmean, splits))
    cut = int((1 - level) / 2 * len(means))
    return Interval(means[cut], means[-1 - cut], level, "permutation")
