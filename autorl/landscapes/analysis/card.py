"""The report card of an algorithm: what tuning it takes, over environments.

Scores are normalised by environment: the 5 % quantile of its configurations' means is 0, the 95 %
quantile 1. The quantiles are those of these landscapes alone, so that cards of two algorithms have
different scales.

Sensitivity [1] is what tuning for each environment gains over the single configuration that is best
on average. Effective dimensionality [1] is how many hyperparameters must be tuned for each
environment, with the others as in that configuration, to reach 95 % of the score of tuning all. A
table of sampled configurations has hardly two that share a value, so the forest of each environment
predicts: a tuned hyperparameter takes its values from the recorded configurations. On 25 synthetic
landscapes of 8 hyperparameters the forest found the number in 16 and fewer in 9; the recorded
configuration that lies nearest found it in 10 (`benchmarks/report_card.py`).

Inconsistency [2], the authors' THC score: in each environment a setting has the interval of its
mean plus and minus the deviation over seeds, and the mean of the places that it may have among
these intervals is its rank. The difference of a setting's highest and lowest rank over
environments, divided by the number of the other settings, is averaged over settings: 0 = ranks
never change. Settings are whole configurations, or the values of one hyperparameter, each with the
mean score of the configurations that have it.

Seeds: how many each of two configurations needs for a test at 5 % to tell them apart with a
probability of 80 %, from true scores and noise as `statistics.noise` estimates them.

References:
    [1] Adkins, Bowling and White, "A method for evaluating hyperparameter sensitivity in
        reinforcement learning", NeurIPS 2024, arXiv 2412.07165.
    [2] Obando-Ceron, Araujo, Courville and Castro, "On the consistency of hyper-parameter selection
        in value-based deep reinforcement learning", RLC 2024, arXiv 2406.17523.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, compress
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.analysis.forest import Forest, landscape_forest
from autorl.landscapes.analysis.scores import tunability
from autorl.landscapes.analysis.tables import Integers, paired_tables, resample_shares
from autorl.landscapes.analysis.values import value_places
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import Array, configurations, encode
from autorl.statistics.noise import posterior, standard_errors

if TYPE_CHECKING:
    import pandas as pd

Sets: TypeAlias = npt.NDArray[np.bool_]
_PEAK = 0.95  # share of the score of tuning all hyperparameters
_MOST_SETS = 8192  # of hyperparameters to tune: all those of 13 hyperparameters
_AT_ONCE = 256  # sets that a forest predicts in one call
_TENTH = 10  # the place of the configuration that the best is told from
_POWER = (NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)) ** 2
_MOST_SEEDS = 1000  # stands for more as well: no number tells equal configurations apart


def report_card(landscapes: Sequence[Dataset], choose: SeedSet, show: SeedSet) -> Answer:
    """Write the report card of the algorithm of these landscapes.

    Columns: measure, of, value; low and high, its 95 % bootstrap interval over environments or, of
    inconsistency, over settings. The interval of the dimensionality keeps the single configuration.

    Raises:
        InputError: several algorithms, landscapes that cannot be paired, fewer than two
            environments with a scale, or too few configurations for a forest.
    """
    algorithms = sorted({data.manifest.algorithm for data in landscapes})
    if len(algorithms) > 1:
        raise InputError(f"card is of one algorithm, got {', '.join(algorithms)}", key="landscape")
    chosen, shown = paired_tables(landscapes, (choose, show))
    choice, table = (percentile_scores(means, means) for means in (chosen.values, shown.values))
    scaled = np.flatnonzero(np.isfinite(choice + table).all(axis=0)).tolist()
    notes = [
        f"{name} is left out: nine tenths of its configurations score the same"
        for column, name in enumerate(shown.environments)
        if column not in scaled
    ]
    if len(scaled) < 2:
        raise InputError(f"card needs two environments whose scores differ: {'; '.join(notes)}")
    data = [landscapes[column] for column in scaled]
    runs = [shown.runs[column] for column in scaled]
    environments = [shown.environments[column] for column in scaled]
    forests = [landscape_forest(landscape, show) for landscape in data]
    # Ids are those of the first landscape, also where its scores are left out.
    first = landscapes[0]
    configs = configurations(first, shown.config_ids)
    names = forests[0].names
    if any(forest.names != names for forest in forests):
        raise InputError("a hyperparameter is constant in some landscapes only", key="landscape")
    shares = resample_shares(len(data))
    best, peaks, once = tuned_scores(choice[:, scaled], table[:, scaled], shares)
    sets = tuned_sets(len(names))
    reference = encode(first.space, names, [configs[best]])
    predicted = np.stack([predicted_best(forest, reference, sets) for forest in forests], axis=1)
    reached = percentile_scores(predicted, shown.values[:, scaled])
    largest, curve, enough = dimensionality(reached, sets, shares)
    sizes = sets[largest].sum(axis=1)
    gains = [tunability(scores.mean(axis=1))[0]["tunability"] for scores in runs]
    tuned = [", ".join(compress(names, sets[row])) for row in largest]
    settings = {f"{len(configs)} configurations": np.arange(len(configs))} | {
        name: value_places(first.space.hyperparameters[name], configs)[0] for name in names
    }
    rows = [
        ("score", "tuned for each environment", shares @ peaks),
        ("score", "tuned once", once),
        ("sensitivity", "", shares @ peaks - once),
        ("dimensionality", f"{len(names)} hyperparameters", sizes[enough]),
        *(
            ("inconsistency", of, inconsistency(runs, places))
            for of, places in settings.items()
            if np.ptp(places) > 0
        ),
        ("tunability", "", shares @ gains),
        ("seeds", f"best from number {_TENTH}", middle([*map(seeds_needed, runs)], shares)),
    ]
    if len(sets) < 2 ** len(names):
        notes.append(f"sets of {sizes[-2] + 1} or more hyperparameters to tune were not tried")
    if choose == show:
        notes.append("chosen and scored on the same seeds: scores and sensitivity are optimistic")
    about = {
        "configurations": len(configs),
        "chosen_on": choose,
        "seeds": show,
        "tuned_once": int(shown.config_ids[best]),
        "to_tune": tuned[enough[0]],
        # What each environment has of the sensitivity: a single one may have nearly all.
        "gains": dict(zip(environments, (peaks - table[best, scaled]).tolist(), strict=True)),
        # Below about 0.5 a forest says little, and so does what it adds to the dimensionality.
        "fits": dict(zip(environments, (forest.out_of_bag for forest in forests), strict=True)),
    }
    measure, of, draws = zip(*rows, strict=True)
    measures = _with_intervals(draws, measure=measure, of=of)
    detail = {"curve": _with_intervals(curve, tuned=sizes, names=tuned)}
    return Answer("card", tuple(data), about, measures, tuple(notes), detail)


def percentile_scores(scores: Array, of: Array) -> Array:
    """Normalise columns by two quantiles of `of`.

    0 at the 5 % quantile of the column, 1 at the 95 % quantile; NaN where both quantiles are equal.
    """
    low, high = np.quantile(of, (0.05, 0.95), axis=0)
    span = np.where(high > low, high - low, np.nan)
    return np.asarray((scores - low) / span)


def tuned_scores(choice: Array, table: Array, shares: Array) -> tuple[int, Array, Array]:
    """Score tuning for each environment, and tuning once for all.

    Args:
        choice: scores the best are chosen by (n configurations, m environments).
        table: scores of the same on other seeds.
        shares: of the environments (r, m).

    Returns:
        The row of the configuration that is tuned once, at the first shares; the scores of tuning
        for each environment (m,), and of tuning once (r,).
    """
    peaks = table[choice.argmax(axis=0), np.arange(table.shape[1])]
    rows = (choice @ shares.T).argmax(axis=0)
    return int(rows[0]), peaks, (shares * table[rows]).sum(axis=1)


def tuned_sets(count: int) -> Sets:
    """List sets of hyperparameters to tune, (sets, count), by size.

    The last set has all of them; large sizes before it are missing if there are too many sets.
    """
    total = np.cumsum([math.comb(count, size) for size in range(count)])
    sizes = np.flatnonzero(total < _MOST_SETS).tolist()
    sets = [chosen for size in sizes for chosen in combinations(range(count), size)]
    return np.array([np.isin(np.arange(count), chosen) for chosen in (*sets, range(count))])


def predicted_best(forest: Forest, reference: Array, sets: Sets) -> Array:
    """Predict the best score of tuning each set (sets, d).

    Other hyperparameters are as in the reference (1, d).
    """
    best = []
    for part in np.array_split(sets, math.ceil(len(sets) / _AT_ONCE)):
        mixed = np.where(part[:, None], forest.rows, reference)  # (sets, configurations, d)
        scores = forest.predict(mixed.reshape(-1, mixed.shape[2])).reshape(mixed.shape[:2])
        best.append(scores.max(axis=1))
    return np.concatenate(best)


def dimensionality(reached: Array, sets: Sets, shares: Array) -> tuple[Integers, Array, Integers]:
    """Compare sets of hyperparameters by the scores they reach (sets, m).

    Returns:
        By number of hyperparameters (k,): the row of the best set, and the best score at all shares
        (k, r); and the place in these of the first that reaches 95 % of the last (r,).
    """
    means = reached @ shares.T
    sizes = sets.sum(axis=1)
    groups = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    best = np.array([rows[means[rows, 0].argmax()] for rows in groups])
    curve = np.stack([means[rows].max(axis=0) for rows in groups])
    return best, curve, (curve >= _PEAK * curve[-1]).argmax(axis=0)


def inconsistency(runs: Sequence[Array], places: Integers) -> Array:
    """Compute THC and its resamples over settings.

    Runs are (n configurations, s seeds) of each environment; configurations with one place are one
    setting.
    """
    groups = [places == place for place in np.unique(places)]
    tables = [np.stack([scores[group].mean(axis=0) for group in groups]) for scores in runs]
    ranks = [interval_ranks(table.mean(axis=1), table.std(axis=1)) for table in tables]
    return np.asarray(resample_shares(len(groups)) @ np.ptp(ranks, axis=0) / (len(groups) - 1))


def interval_ranks(means: Array, spreads: Array) -> Array:
    """Rank the intervals of mean plus and minus spread, 1 = best.

    In the order of upper bounds, a rank is the middle between the first and the last place whose
    interval overlaps.
    """
    order = np.argsort(-(means + spreads), kind="stable")
    low, high = ((means + sign * spreads)[order] for sign in (-1, 1))
    first = (low[:, None] <= high).argmax(axis=0) + 1
    last = (high[:, None] >= low).sum(axis=0)
    return np.asarray((first + last) / 2)[np.argsort(order)]


def seeds_needed(runs: Array) -> int:
    """Count the seeds that tell the best from the tenth best.

    Runs are (n configurations, s seeds).
    """
    count = runs.shape[1]
    noise = (runs.mean(axis=1), runs.std(axis=1, ddof=min(1, count - 1)), np.full(len(runs), count))
    scores = posterior(*noise).mean
    pair = np.argsort(-scores, kind="stable")[[0, min(_TENTH, len(runs)) - 1]]
    gap = max(1e-150, float(scores[pair[0]] - scores[pair[1]]))
    variance = float(count * (standard_errors(*noise)[pair] ** 2).sum())
    return math.ceil(min(max(_POWER * variance / gap**2, 2.0), _MOST_SEEDS))


def middle(values: Sequence[float], shares: Array) -> Array:
    """Return the lower median of values (m,) at shares (r, m)."""
    order = np.argsort(values)
    passed = shares[:, order].cumsum(axis=1) >= 0.5 - 1e-9
    return np.asarray(np.sort(values)[passed.argmax(axis=1)])


def _with_intervals(draws: npt.ArrayLike, **columns: Any) -> pd.DataFrame:
    """Tabulate the first of draws with the interval of those after."""
    import pandas as pd

    values = np.array(draws, dtype=np.float64)
    low, high = np.quantile(values[:, 1:], (0.025, 0.975), axis=1)
    return pd.DataFrame({**columns, "value": values[:, 0], "low": low, "high": high})
