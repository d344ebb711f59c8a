"""Measures of arrays of scores.

They are noise, redundancy, tunability, early training, phases and transfer.
Larger scores are better, and none is NaN.

Noise: ICC(1) [1] of a one-way layout, seeds within configurations. With n configurations and s
seeds each, MSB and MSW the mean squares between and within configurations,
(MSB - MSW) / (MSB + (s - 1) MSW) estimates the share of variance that lies between configurations.
The rest is noise.

Redundancy: DODGE [2] searches well by skipping configurations whose result lies within epsilon of
one already seen, because there are few results that differ by more. Measured are with how many
results all configurations are covered to within epsilon, and how soon random search meets one that
is as good as the best.

Tunability [3] is the distance from typical configurations to the best one.

Early training: Spearman's correlation of the configurations' mean scores with those at the end, as
DeepCAVE [4] shows it. On ARLBench's landscapes it is about 0.5 at 10 % of training and 0.8 at half
of it: multi-fidelity search is risky early.

Phases [5]: in a landscape with phases every configuration is trained from scratch in the first one,
and from the best agent of the phase before in each later one. If the best configuration differs
from phase to phase, a schedule can beat every fixed configuration.

Transfer: does one configuration serve many environments?

References:
    [1] Shrout and Fleiss, "Intraclass correlations: uses in assessing rater reliability", 1979.
    [2] Agrawal, Fu, Chen, Shen and Menzies, "How to DODGE complex software analytics", 2019, arXiv
        1902.01838.
    [3] Kleuker et al. (LUH-AI), analysis of ARLBench's landscapes: tunability curves and their
        area.
    [4] Sass et al., "DeepCAVE: an interactive analysis tool for automated machine learning", 2022.
    [5] Mohan, Benjamins, Wienecke, Dockhorn and Lindauer, "AutoRL hyperparameter landscapes",
        AutoML 2023.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.analysis.tables import Integers, unit_scores
from autorl.landscapes.regression import Array
from autorl.statistics.comparison import spearman

_RELIABILITY = 0.9
_INTERVAL = (0.025, 0.975)


def seed_noise(scores: npt.ArrayLike, resamples: int = 2000, seed: int = 0) -> dict[str, Any]:
    """Split the variance of scores (n configurations, s seeds).

    Low and high are the 95 % percentile interval of the ICC over configurations;
    `seeds_for_0.9` is the fewest seeds whose mean is reliable to 0.9 (Spearman-Brown), None where
    no number is.

    Raises:
        InputError: fewer than two configurations or seeds, or all scores are equal.
    """
    table = _splittable(scores)
    n, s = table.shape
    means = table.mean(axis=1)
    within = table.var(axis=1, ddof=1)
    icc = float(_icc(means, within, s))
    # Configurations are drawn with all their seeds, so noise within one keeps its size.
    rows = np.random.default_rng(seed).integers(n, size=(resamples, n))
    low, high = np.quantile(_icc(means[rows], within[rows], s), _INTERVAL)
    return {
        "icc": icc,
        "low": float(low),
        "high": float(high),
        # Not 1 - icc: an estimate below 0 would be more than all of the variance.
        "noise_share": 1.0 - max(0.0, icc),
        "seed_sd": float(np.sqrt(within.mean())),
        "configurations": n,
        "seeds": s,
        "seeds_for_0.9": _seeds_for(icc),
    }


def _splittable(scores: npt.ArrayLike) -> Array:
    table = np.asarray(scores, dtype=np.float64)
    if min(table.shape) < 2:
        raise InputError(
            f"seed noise needs at least two configurations and two seeds, got shape {table.shape}"
        )
    if np.ptp(table) == 0.0:
        raise InputError("all scores are equal, so there is no variance to split")
    return table


def _icc(means: Array, within: Array, seeds: int) -> Array:
    """Compute ICC(1) along the last axis of configurations' means and variances."""
    noise = within.mean(axis=-1)
    between = seeds * means.var(axis=-1, ddof=1)
    total = between + (seeds - 1) * noise
    # A resample may be one configuration n times, whose seeds all score the same.
    icc: Array = np.divide(between - noise, total, out=np.zeros_like(total), where=total > 0)
    return icc


def _seeds_for(icc: float) -> int | None:
    if icc <= 0.0:
        return None
    needed = _RELIABILITY * (1.0 - icc) / (icc * (1.0 - _RELIABILITY))
    # Less a round-off: 0.9 at an ICC of 0.5 takes 9 seeds, and computes as 9.000000000000002.
    return max(1, math.ceil(needed - 1e-9))


def redundancy(scores: npt.ArrayLike, epsilon: float | None = None) -> dict[str, Any]:
    """Measure how many configurations (n, s seeds) add no new result.

    `distinct` are the fewest results such that every configuration lies within epsilon of one;
    `expected_trials` is how many random search without repetition draws until it has one as good as
    the best.

    Args:
        scores: of the configurations.
        epsilon: the difference that counts; None = the difference of means that noise exceeds once
            in 20 times, which needs two seeds or more.
    """
    table = np.asarray(scores, dtype=np.float64)
    limit = _detectable_difference(table) if epsilon is None else epsilon
    means = np.sort(table.mean(axis=1))
    distinct = _smallest_cover(means, limit)
    as_good = int((means >= means[-1] - limit).sum())
    return {
        "epsilon": limit,
        "configurations": len(means),
        "distinct": distinct,
        "redundant": 1.0 - distinct / len(means),
        "as_good_as_best": as_good,
        # The mean of the negative hypergeometric distribution.
        "expected_trials": (len(means) + 1) / (as_good + 1),
    }


def _detectable_difference(table: Array) -> float:
    within = float(_splittable(table).var(axis=1, ddof=1).mean())
    # The 97.5 % quantile of a normal difference: two means, each with its standard error.
    return float(1.96 * np.sqrt(2.0) * math.sqrt(within / table.shape[1]))


def _smallest_cover(ordered: Array, epsilon: float) -> int:
    """Count the fewest values that are within epsilon of all ascending values.

    Greedy choice is optimal.
    """
    count = first = 0
    while first < len(ordered):
        # The first value left needs a centre within epsilon; the largest such reaches furthest.
        centre = int(np.searchsorted(ordered, ordered[first] + epsilon, side="right")) - 1
        first = int(np.searchsorted(ordered, ordered[centre] + epsilon, side="right"))
        count += 1
    return count


def tunability(means: npt.ArrayLike) -> tuple[dict[str, Any], Array]:
    """Measure how much choosing among configuration means (n,) pays.

    Returns:
        `tunability` (best minus median in units of the range), `area` under the curve (0 if all
        configurations but the worst are best, near 1 if one stands out) and `near_best` (share
        above 90 % of the range); and the curve, best minus the quantile, from 1 down to 0.

    Raises:
        InputError: all means are equal.
    """
    ordered = np.sort(unit_scores(means))
    curve = 1.0 - ordered
    return {
        "tunability": float(1.0 - np.median(ordered)),
        "area": float(np.trapezoid(curve, np.linspace(0.0, 1.0, len(ordered)))),
        "near_best": float((ordered > 0.9).mean()),
    }, curve


def early_choice(values: npt.ArrayLike, resamples: int = 500, seed: int = 0) -> dict[str, Array]:
    """Measure how well each step predicts the end, scores (n, s, e).

    `correlation` of the configurations' means with the end, 0 where all are equal; `low` and `high`
    of its 95 % bootstrap interval over configurations; `regret` of choosing the best there, in
    units of the range of final means: between configurations that tie, the average.

    Raises:
        InputError: all configurations end with the same mean.
    """
    means = np.asarray(values, dtype=np.float64).mean(axis=1)
    # Whole configurations are drawn, since the checkpoints of one depend on each other.
    rows = np.random.default_rng(seed).integers(len(means), size=(resamples, len(means)))
    drawn = np.moveaxis(means[rows], 1, 2)  # (resamples, steps, configurations)
    low, high = np.quantile(spearman(drawn, drawn[:, -1:, :]), _INTERVAL, axis=0)
    # Several leaders at a step where nobody has learned anything yet.
    leading = means == means.max(axis=0)
    final = (unit_scores(means[:, -1])[:, None] * leading).sum(axis=0) / leading.sum(axis=0)
    return {
        "correlation": spearman(means.T[-1:], means.T),
        "low": low,
        "high": high,
        "regret": 1.0 - final,
    }


def compare_phases(scores: npt.ArrayLike) -> tuple[Integers, Array, Array, float]:
    """Compare phases by scores (p phases, n configurations, s seeds).

    Returns:
        The row of each phase's best configuration by its mean over seeds (p,); Spearman of the
        configurations' means between every two phases (p, p); what the row phase's best misses in
        the column phase (p, p), 0 best and 1 worst of it; and what choosing anew in each phase
        gains over the best fixed configuration.

    Raises:
        InputError: a phase in which all configurations score the same.
    """
    means = np.asarray(scores, dtype=np.float64).mean(axis=2)
    # Normalised by phase: scores of an early one have another range.
    regret = 1.0 - unit_scores(means.T)
    best = means.argmax(axis=1)
    correlation = spearman(means[:, None, :], means[None, :, :])
    # Choosing anew has no regret in any phase: what the best fixed configuration has is its gain.
    return best, correlation, regret[best], float(regret.mean(axis=1).min())


def transfer(
    scores: npt.ArrayLike, chosen_by: npt.ArrayLike | None = None
) -> tuple[Integers, Array, Array]:
    """Try each environment's best configuration in the others.

    Args:
        scores: (n configurations, m environments), mean over seeds.
        chosen_by: scores the best are chosen by (of tuning seeds, if `scores` are of test seeds);
            default: `scores`. Ties: the first row.

    Returns:
        The row of each environment's best (m,), and of the best on average over environments, last
        (m + 1,); what each of them misses in each environment (m + 1, m), in units of its range;
        and the share of configurations each beats there, ties counted half.

    Raises:
        InputError: an environment in which nothing differs.
    """
    table = unit_scores(scores)
    # Chosen on other seeds, a configuration is not the best by its luck on those that show it.
    choice = table if chosen_by is None else unit_scores(chosen_by)
    best = np.append(choice.argmax(axis=0), choice.mean(axis=1).argmax())
    tried = table[best]
    # Ties count half, so that n equal configurations are all in the middle.
    beaten = (table[:, None, :] < tried).mean(axis=0)
    tied = (table[:, None, :] == tried).mean(axis=0)
    return best, 1.0 - tried, beaten + tied / 2
