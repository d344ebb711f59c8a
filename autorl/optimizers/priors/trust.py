"""Trust in a prior, measured on its own tables.

Each table is left out, and the others are its prior, as they are the study's: with tables of its
family where the study has some, without where it has none. Two numbers say how well that goes:

- *hits*: the log odds that the first `FIRST` configurations of the portfolio are among the best
  quarter of the table, beside the odds 1 : 3 of random ones;
- *agreement*: Kendall's tau of what the others expect of its configurations and their scores.

A study is one more table: its own two numbers are expected at the mean of the tables', as far away
as the tables are from each other. Few tables say little, so they stand beside `PRETENDED` tables
where a prior is worth nothing. Results of the study itself are then evidence about the same two
numbers, and each belief is the product of two normal densities.

    hits of three tables 1.1, 2.0, 1.4    -> 0.90 +- 1.20 for a fourth
    in the study 2 of 3 and 1 of 5        -> -1.69 and 0.51: the difference is 1.86 +- 1.32
    together                              -> 1.33 +- 0.89
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
    """A normal belief about a number that is above 0 where a prior helps."""

    mean: float
    deviation: float

    @property
    def z(self) -> float:
        """The mean in deviations."""
        return self.mean / self.deviation

    def given(self, value: float, variance: float) -> Belief:
        """Return the belief after a measurement; infinite variance says nothing."""
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
        """Part of the proposals that the prior makes: the less certain number decides."""
        from scipy.special import ndtr

        return float(min(MOST, ndtr(SHARPNESS * min(self.hits.z, self.agreement.z))))


def measured_trust(ensemble: Ensemble, environments: Sequence[str], own: str | None) -> Trust:
    """Measure how far a prior can be trusted on its own tables.

    Args:
        ensemble: of its tasks.
        environments: of the tasks.
        own: that of the study, None where nobody knows: a task of each family then is its relative.
    """
    families = [family_of(environment) for environment in environments]
    known = own is None or family_of(own) in families
    hits = []
    agreement = []
    for place, family in enumerate(families):
        others = [other for other in range(len(families)) if other != place]
        relatives = [other for other in others if families[other] == family]
        if known and not relatives:
            continue
        rest = others if known else [other for other in others if other not in relatives]
        if not rest:
            continue
        weights = np.zeros(len(families))
        weights[rest] = task_weights([environments[other] for other in rest], environments[place])
        hits.append(_hits_of(ensemble, place, weights))
        agreement.append(_agreement_of(ensemble, place, weights))
    return Trust(_belief(hits, SPREAD_OF_HITS), _belief(agreement, SPREAD_OF_AGREEMENT))


def _belief(measured: Sequence[float], spread: float) -> Belief:
    """Return the belief about one more table, beside tables where a prior is worth nothing."""
    count = len(measured) + PRETENDED
    mean = sum(measured) / count
    squares = sum((value - mean) ** 2 for value in measured) + PRETENDED * spread**2
    return Belief(mean, math.sqrt(squares / count * (1 + 1 / count)))


def _hits_of(ensemble: Ensemble, place: int, weights: Array) -> float:
    of_others = np.logical_or.reduce(ensemble.brought[weights > 0])
    chosen = greedy(ensemble.values, weights, FIRST, of_others)
    scores = ensemble.tasks[place].scores
    found = hits(scores, ensemble.values[place, chosen])
    return log_odds(float(found.sum()), len(chosen)) - math.log(TOP / (1 - TOP))


def _agreement_of(ensemble: Ensemble, place: int, weights: Array) -> float:
    from scipy.stats import kendalltau

    task = ensemble.tasks[place]
    expected = weights @ ensemble.predicted(task.units)
    return float(np.nan_to_num(kendalltau(expected, task.scores).statistic))


def hits(values: Array, asked: Array | None = None) -> Array:
    """Tell which results are among the best quarter; equal ones share the last places.

    Args:
        values: all results, shape (n,), at least one; larger is better.
        asked: those that are asked about, shape (k,); None: all.

    Returns:
        1, a part of 1 or 0 for each that is asked about.
    """
    asked = values if asked is None else asked
    count = max(1, round(TOP * len(values)))
    least = np.sort(values)[-count]
    left = (count - (values > least).sum()) / (values == least).sum()
    return np.where(asked > least, 1.0, np.where(asked == least, left, 0.0))


def log_odds(found: float, count: int) -> float:
    """Return the log odds of so many hits, half a hit and half a miss added."""
    return math.log((found + 0.5) / (count - found + 0.5))


def difference(found: Array, chosen: np.ndarray) -> tuple[float, float]:
    """Compare the hits of an arm's results with those of the others.

    Args:
        found: of all results, shape (n,).
        chosen: those of the arm, a mask.

    Returns:
        The difference of the log odds, and its variance; infinite while either has no result.
    """
    counts = [int(chosen.sum()), int((~chosen).sum())]
    if not min(counts):
        return 0.0, math.inf
    of_arms = [float(found[chosen].sum()), float(found[~chosen].sum())]
    odds = [log_odds(found, count) for found, count in zip(of_arms, counts, strict=True)]
    # Of log odds with half a hit added: Haldane 1956.
    variance = sum(
        1 / (found + 0.5) + 1 / (count - found + 0.5)
        for found, count in zip(of_arms, counts, strict=True)
    )
    return odds[0] - odds[1], variance


def agreement(expected: Array, results: Array) -> tuple[float, float]:
    """Return the rank agreement of results with what was expected, and its variance.

    Pairs of equal results are left out, and the fewer are left the larger is the variance, infinite
    where none is: many runs that all fail say nothing.
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
