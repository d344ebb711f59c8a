"""Surrogates of a prior's tasks, and the weights that results give them.

Each task has a Gaussian process of its own, fitted once to the normal scores of its configurations.
A configuration that a task has recorded keeps its recorded score; elsewhere the process predicts.

The weights are those of a ranking-weighted ensemble [Feurer2018]: in resamples of the study's own
results each member is charged with the pairs that it ranks wrongly, the study's own process by
predictions that leave the result out, and chance with a little less than half of them. A member's
weight is the share of the resamples in which it is charged least. A prior that ranks no better than
chance therefore loses its weight, whatever it promised.

References:
    [Feurer2018] Feurer, Letham, Bakshy, "Scalable meta-learning for Bayesian optimization using
        ranking-weighted Gaussian process ensembles", AutoML workshop at ICML 2018.
    [Wistuba2018] Wistuba, Schilling, Schmidt-Thieme, "Scalable Gaussian process-based transfer
        surrogates for hyperparameter optimization", Machine Learning 107, 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from autorl.core.types import Config
from autorl.optimizers import _pb2_gp as gp
from autorl.optimizers.priors.mapping import BEYOND, MappedTask, places_of, proposable, searched
from autorl.optimizers.priors.packed import LEVELS, Array
from autorl.optimizers.priors.study_prior import StudyPrior
from autorl.optimizers.priors.table import evenly
from autorl.space import Space

POOL = 64
"""Configurations of each task that may be proposed as they are: its best."""
FITTED = 96  # configurations that the parameters of a surrogate are fitted to
RESAMPLES = 64
CHANCE = 0.45
"""Part of the pairs that chance is charged with: who ranks better by luck alone is not believed."""
_DRAWN_TIES = 1e-3  # of the mean score, where no configuration improves on what was proposed


class Columns:
    """Places of the unit cube as rows of a Gaussian process.

    Their columns are two that are not used, numbers, choices.

    Args:
        space: of the places.
        used: the searched hyperparameters that are columns, a mask, shape (d,); None: all.
    """

    def __init__(self, space: Space, used: np.ndarray | None = None) -> None:
        items = searched(space)
        choices = np.array(
            [item.n_choices if item.type == "categorical" else 0 for item in items], dtype=np.int64
        )
        used = np.ones(len(items), dtype=bool) if used is None else used
        self._numeric = used & (choices == 0)
        self._categorical = used & (choices > 0)
        self._choices = choices[self._categorical]
        self.n_numeric = int(self._numeric.sum())

    def rows(self, units: Array) -> Array:
        """Encode places, shape (q, d), as rows."""
        inside = np.clip(units[:, self._categorical], 0.0, 1.0 - 1e-9)
        categories = np.floor(inside * self._choices)
        unused = np.zeros((len(units), gp.CONTEXT))
        return np.column_stack([unused, units[:, self._numeric], categories])


def normal_scores(values: Array) -> Array:
    """Spread the ranks of values as a normal distribution.

    Equal ones are at one place.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def fit_task(task: MappedTask, space: Space, weight: float) -> MappedTask:
    """Fit the surrogate of a task, as a study file holds it."""
    span = 1 + 2 * BEYOND
    # Numbers as they are in a study file.
    units = np.rint((task.units + BEYOND) / span * LEVELS) / LEVELS * span - BEYOND
    scores = np.rint(task.scores * LEVELS) / LEVELS
    sample = evenly(len(scores), FITTED)
    columns = Columns(space, task.recorded)
    logs = gp.fit(columns.rows(units[sample]), normal_scores(scores[sample]), columns.n_numeric)
    return replace(task, units=units, scores=scores, logs=logs, weight=weight)


class Surrogate:
    """Predicts the scores of a task, by a process given its table."""

    def __init__(self, task: MappedTask, space: Space) -> None:
        self._columns = Columns(space, task.recorded)
        rows = self._columns.rows(task.units)
        normal = normal_scores(task.scores)
        nothing = np.empty((0, rows.shape[1]))
        self._posterior = gp.Posterior(task.logs, rows, normal, nothing, self._columns.n_numeric)
        ascending = np.argsort(normal, kind="stable")
        # Normal scores, ascending, and the scores that belong to them.
        self._order = normal[ascending], task.scores[ascending]

    def scores(self, units: Array) -> Array:
        """Predict scores between 0 and 1 at places, shape (q, d): (q,)."""
        return np.interp(self._posterior.mean(self._columns.rows(units)), *self._order)


class Ensemble:
    """Surrogates of all tasks, and the configurations they bring.

    Attributes:
        weights: shape (tasks,): before the study has results.
        pool: valid configurations, the best of each task.
        values: shape (tasks, pool): scores of the pool in each task.
    """

    def __init__(self, prior: StudyPrior, space: Space) -> None:
        self.space = space
        self.weights = np.array([task.weight for task in prior.tasks], dtype=np.float64)
        self._surrogates = [Surrogate(task, space) for task in prior.tasks]
        at = {
            task.units[row].tobytes(): proposable(space, task.units[row])
            for task in prior.tasks
            for row in np.argsort(-task.scores, kind="stable")[:POOL]
        }
        self.pool = list(dict.fromkeys(at.values()))
        self._places = {config: place for place, config in enumerate(self.pool)}
        self.values = self.predicted(places_of(space, self.pool))
        for values, task in zip(self.values, prior.tasks, strict=True):
            for unit, score in zip(task.units, task.scores, strict=True):
                if unit.tobytes() in at:
                    values[self._places[at[unit.tobytes()]]] = score

    def predicted(self, units: Array) -> Array:
        """Predict scores at places, shape (q, d), in every task: (tasks, q)."""
        rows = [surrogate.scores(units) for surrogate in self._surrogates]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(units))

    def scores(self, configs: Sequence[Config]) -> Array:
        """Return scores of configurations in every task, shape (tasks, configurations)."""
        unknown = [config for config in configs if config not in self._places]
        predicted = iter(self.predicted(places_of(self.space, unknown)).T)
        columns = [
            self.values[:, self._places[config]] if config in self._places else next(predicted)
            for config in configs
        ]
        return np.array(columns).reshape(len(configs), len(self.weights)).T


@lru_cache(maxsize=8)
def ensemble_of(prior: StudyPrior, space: Space) -> Ensemble:
    """Return the ensemble of a prior, built once for equal ones."""
    return Ensemble(prior, space)


def gains(values: Array, best: Array, weights: Array) -> Array:
    """Return what configurations add to the best score so far.

    It is a weighted mean over tasks, the transfer acquisition function [Wistuba2018] without the
    study's own part: the largest is the next one of a greedy portfolio.

    Args:
        values: shape (tasks, q).
        best: shape (tasks,): of what was proposed, 0 where nothing was.
        weights: shape (tasks,).

    Returns:
        Shape (q,).
    """
    improvement = weights @ np.maximum(values - best[:, None], 0.0)
    return np.asarray(improvement + _DRAWN_TIES * (weights @ values))


def greedy_portfolio(ensemble: Ensemble, size: int) -> list[Config]:
    """Choose configurations one by one, each by its gain."""
    best = np.zeros(len(ensemble.weights))
    chosen: list[int] = []
    while len(chosen) < min(size, len(ensemble.pool)):
        gain = gains(ensemble.values, best, ensemble.weights)
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
        best = np.maximum(best, ensemble.values[:, chosen[-1]])
    return [ensemble.pool[place] for place in chosen]


def ranking_weights(results: Array, members: Array, rng: np.random.Generator) -> Array:
    """Weigh members by how they rank a study's own results.

    Args:
        results: shape (n,): larger is better; equal ones are not compared.
        members: shape (m, n): what each member predicts for them; equal predictions count half.
        rng: of the resamples.

    Returns:
        Shape (m + 1,), of sum 1; the last is the weight of chance.
    """
    first, second = np.triu_indices(len(results), 1)
    sign = np.sign(results[first] - results[second])
    compared = sign != 0
    first = first[compared]
    second = second[compared]
    if not len(first):
        return np.array([*[0.0] * len(members), 1.0])
    predicted = np.sign(members[:, first] - members[:, second])
    wrong = np.abs(predicted - sign[compared]) / 2
    drawn = rng.integers(len(results), size=(RESAMPLES, len(results)))
    counts = np.stack([np.bincount(row, minlength=len(results)) for row in drawn]).astype(float)
    pairs = counts[:, first] * counts[:, second]
    # A resample of one result alone has no pairs.
    loss = (pairs @ wrong.T) / np.maximum(pairs.sum(axis=1, keepdims=True), 1.0)
    loss = np.column_stack([loss, np.full(RESAMPLES, CHANCE)])
    # Ties are shared: equal members are no better for standing first.
    least = loss <= loss.min(axis=1, keepdims=True) + 1e-12
    return np.asarray((least / least.sum(axis=1, keepdims=True)).mean(axis=0))
