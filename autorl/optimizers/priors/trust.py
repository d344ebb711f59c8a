"""Trust in a prior, measured on its own tables.

Each table is left out, and the others are its prior, with tables of its family if the study has
tables of its own, without otherwise. Two numbers say how well that goes:

- *hits*: the log odds that the first `FIRST` configurations of the portfolio are among the best
  quarter of the table, minus those of random ones, 1 : 3;
- *agreement*: Kendall's tau of its scores and what the others expect.

A study is one more table: its own two numbers are expected at the mean of the tables', as far away
as the tables are from each other. Few tables say little, so they stand beside `PRETENDED` tables
where a prior is worth nothing. Results of the study itself are then evidence about the same two
numbers, and each belief is the product of two normal densities.

    hits of three tables 1.1, 2.0, 1.4    -> 0.90 +- 1.20 for a fourth
    in the study 2 of 3 and 0 of 5        -> 0.51 and -2.40: the difference is 2.91 +- 1.80
    together                              -> 1.52 +- 1.00
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autorl.optimizers.priors.ensemble import Ensemble, greedy
from autorl.optimizers.priors.families import family_of, task_weights
from autorl.optimizers.priors.packed import Array

FIRST = 8
TOP = 0.25
"""Part of the results that count as hits."""
PRETENDED = 2.0
SPREAD_OF_HITS = 1.5  # between tasks, where no tables say more
SPREAD_OF_AGREEMENT = 0.35
SHARPNESS = 2.0
MOST = 0.65
"""Share of the proposals that a prior makes at most."""


@dataclass(frozen=True)
class Belief:
    """A normal belief about a number, above 0 if a prior helps."""

    mean: float
    deviation: float

    @property
    def z(self) -> float:
        """The mean in deviations."""
        return self.mean / self.deviation

    def given(self, value: float, variance: float) -> Belief:
        """Return the belief after a measurement.

        An infinite variance says nothing.
        """
        weight = 1.0 / self.deviation**2
        total = weight + 1.0 / variance
        return Belief((self.mean * weight + value / variance) / total, total**-0.5)


@dataclass(frozen=True)
class Trust:
    """Beliefs about a prior in a study that has no result yet."""

    hits: Belief
    agreement: Belief

    @property
    def share(self) -> float:
        """Part of the proposals for the prior, by the lesser z."""
        from scipy.special import ndtr

        return float(min(MOST, ndtr(SHARPNESS * min(self.hits.z, self.agreement.z))))


def measured_trust(ensemble: Ensemble, environments: Sequence[str], own: str | None) -> Trust:
    """Measure how far a prior can be trusted on its own tables.

    Args:
        ensemble: of its tasks.
        environments: of the tasks.
        own: that of the study, None where nobody knows: a task of each family then is its relative.
    """
    families = np.array([family_of(environment) for environment in environments])
    has_relatives = own is None or family_of(own) in families
    odds = []
    taus = []
    for place, environment in enumerate(environments):
        related = families == families[place]
        prior = np.ones(len(families), dtype=bool) if has_relatives else ~related
        prior[place] = False
        if not prior.any() or (has_relatives and related.sum() == 1):
            continue
        weights = np.zeros(len(families))
        named = [environments[row] for row in np.flatnonzero(prior).tolist()]
        weights[prior] = task_weights(named, environment)
        odds.append(_hits_of(ensemble, place, weights))
        taus.append(_agreement_of(ensemble, place, weights))
    return Trust(_belief(odds, SPREAD_OF_HITS), _belief(taus, SPREAD_OF_AGREEMENT))


def _belief(measured: Sequence[float], spread: float) -> Belief:
    """Return the belief about one more table."""
    count = len(measured) + PRETENDED
    mean = sum(measured) / count
    squares = sum((value - mean) ** 2 for value in measured) + PRETENDED * spread**2
    deviation = math.sqrt(squares / count * (1 + 1 / count))
    # Rounded: it stands in study files, and processors differ in the last digits.
    return Belief(round(mean, 6), round(deviation, 6))


def _hits_of(ensemble: Ensemble, place: int, weights: Array) -> float:
    of_others = np.logical_or.reduce(ensemble.brought[weights > 0])
    chosen = greedy(ensemble.values, weights, FIRST, of_others)
    counted = hits(ensemble.tasks[place].scores, ensemble.values[place, chosen])
    return log_odds(float(counted.sum()), len(chosen)) - math.log(TOP / (1 - TOP))


def _agreement_of(ensemble: Ensemble, place: int, weights: Array) -> float:
    from scipy.stats import kendalltau

    task = ensemble.tasks[place]
    expected = weights @ ensemble.predicted(task.units)
    return float(np.nan_to_num(kendalltau(expected, task.scores).statistic))


def hits(values: Array, asked: Array | None = None) -> Array:
    """Tell which results are among the best quarter.

    Equal results share the last places of the quarter: each counts as a part of 1.

    Args:
        values: all results, shape (n,), at least one. Larger is better.
        asked: results to tell about, shape (k,). None: all.

    Returns:
        Shape (k,), from 0 to 1.
    """
    asked = values if asked is None else asked
    count = max(1, round(TOP * len(values)))
    least = np.sort(values)[-count]
    part = (count - (values > least).sum()) / (values == least).sum()
    return np.where(asked > least, 1.0, np.where(asked == least, part, 0.0))


def log_odds(hit: float, count: int) -> float:
    """Return the log odds of hits, half of one added to both."""
    return math.log((hit + 0.5) / (count - hit + 0.5))


def difference(counted: Array, chosen: np.ndarray) -> tuple[float, float]:
    """Compare the hits of an arm's results with the other arm's.

    Args:
        counted: hits among all results, shape (n,).
        chosen: results of the arm, a mask.

    Returns:
        The difference of the log odds, and its variance, infinite while an arm has no result.
    """
    arms = [counted[chosen], counted[~chosen]]
    if not all(map(len, arms)):
        return 0.0, math.inf
    odds = [log_odds(float(arm.sum()), len(arm)) for arm in arms]
    # Haldane, "The estimation and significance of the logarithm of a ratio of frequencies", 1956.
    variance = sum(1 / (arm.sum() + 0.5) + 1 / (len(arm) - arm.sum() + 0.5) for arm in arms)
    return odds[0] - odds[1], float(variance)


def agreement(expected: Array, results: Array) -> tuple[float, float]:
    """Return the rank agreement with what was expected, and its variance.

    Pairs of equal results are left out. The fewer pairs remain, the larger is the variance; it is
    infinite without any, so that runs that all fail say nothing.
    """
    from scipy.stats import kendalltau

    n = len(results)
    pairs = n * (n - 1) / 2
    _, counts = np.unique(results, return_counts=True)
    told_apart = pairs - float((counts * (counts - 1) / 2).sum())
    if n < 4 or not told_apart:
        return 0.0, math.inf
    share = told_apart / pairs
    tau = float(np.nan_to_num(kendalltau(expected, results).statistic)) / math.sqrt(share)
    # Of independent ranks without ties: Kendall, "A new measure of rank correlation", 1938.
    return min(1.0, max(-1.0, tau)), 2 * (2 * n + 5) / (9 * n * (n - 1)) / share
