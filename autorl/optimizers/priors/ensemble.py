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
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autorl.core.types import Config
from autorl.optimizers import _pb2_gp as gp
from autorl.optimizers.priors.mapping import MappedTask, places_of, proposable, searched
from autorl.optimizers.priors.study_prior import StudyPrior, StudyTask, quantized
from autorl.optimizers.priors.table import Array
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
    """

    def __init__(self, space: Space) -> None:
        items = searched(space)
        self.choices = np.array(
            [item.n_choices if item.type == "categorical" else 0 for item in items], dtype=np.int64
        )

    def n_numeric(self, used: np.ndarray) -> int:
        """Count the numbers among the columns that are used."""
        return int((used & (self.choices == 0)).sum())

    def rows(self, units: Array, used: np.ndarray) -> Array:
        """Encode places as rows of the columns used.

        Args:
            units: shape (q, d).
            used: a mask, shape (d,).
        """
        numbers = units[:, used & (self.choices == 0)]
        categorical = used & (self.choices > 0)
        inside = np.clip(units[:, categorical], 0.0, 1.0 - 1e-9)
        categories = np.floor(inside * self.choices[categorical])
        return np.column_stack([np.zeros((len(units), gp.CONTEXT)), numbers, categories])


def normal_scores(values: Array) -> Array:
    """Spread the ranks of values as a normal distribution.

    Equal ones are at one place.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def fit_task(mapped: MappedTask, space: Space, weight: float) -> StudyTask:
    """Fit the surrogate of a task, as a study file holds it."""
    task = quantized(mapped)
    columns = Columns(space)
    count = len(task.scores)
    sample = np.unique(np.linspace(0, count - 1, min(count, FITTED)).round().astype(np.int64))
    rows = columns.rows(task.units[sample], task.recorded)
    logs = gp.fit(rows, normal_scores(task.scores[sample]), columns.n_numeric(task.recorded))
    return StudyTask(
        source=task.table.source,
        environment=task.table.environment,
        units=task.units,
        scores=task.scores,
        recorded=task.recorded,
        logs=logs,
        weight=weight,
        sha256=task.table.sha256,
        note=task.note,
        prior=task.table.prior,
    )


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A task's predictions.

    Attributes:
        posterior: of normal scores.
        order: normal scores, ascending, and the scores that belong to them.
    """

    task: StudyTask
    posterior: gp.Posterior
    order: tuple[Array, Array]

    @classmethod
    def of(cls, task: StudyTask, columns: Columns) -> Surrogate:
        """Condition a task's process on its table."""
        rows = columns.rows(task.units, task.recorded)
        normal = normal_scores(task.scores)
        nothing = np.empty((0, rows.shape[1]))
        numeric = columns.n_numeric(task.recorded)
        posterior = gp.Posterior(task.logs, rows, normal, nothing, numeric)
        ascending = np.argsort(normal, kind="stable")
        return cls(task, posterior, (normal[ascending], task.scores[ascending]))

    def scores(self, units: Array, columns: Columns) -> Array:
        """Predict scores between 0 and 1 at places, shape (q, d): (q,)."""
        means = self.posterior.mean(columns.rows(units, self.task.recorded))
        return np.interp(means, *self.order)


class Ensemble:
    """Surrogates of all tasks, and the configurations they bring.

    Attributes:
        weights: shape (tasks,): before the study has results.
        pool: valid configurations, the best of each task.
        values: shape (tasks, pool): scores of the pool in each task.
    """

    def __init__(self, prior: StudyPrior, space: Space) -> None:
        self.space = space
        self.tasks = prior.tasks
        self.weights = np.array([task.weight for task in prior.tasks], dtype=np.float64)
        self.columns = Columns(space)
        self.surrogates = [Surrogate.of(task, self.columns) for task in prior.tasks]
        self.pool, units, recorded = self._pool()
        self.values = self.predicted(units)
        for task, pooled, score in recorded:
            self.values[task, pooled] = score
        self._places = {config: place for place, config in enumerate(self.pool)}

    def _pool(self) -> tuple[list[Config], Array, list[tuple[int, int, float]]]:
        """Return configurations, their places, and (task, place in the pool, recorded score)."""
        chosen: dict[Config, None] = {}
        best = [np.argsort(-task.scores, kind="stable")[:POOL] for task in self.tasks]
        at: dict[bytes, Config] = {}
        for task, rows in zip(self.tasks, best, strict=True):
            for row in rows:
                config = proposable(self.space, task.units[row])
                chosen[config] = None
                at[task.units[row].tobytes()] = config
        pool = list(chosen)
        number = {config: place for place, config in enumerate(pool)}
        recorded = [
            (index, number[at[place.tobytes()]], float(score))
            for index, task in enumerate(self.tasks)
            for place, score in zip(task.units, task.scores, strict=True)
            if place.tobytes() in at
        ]
        return pool, places_of(self.space, pool), recorded

    def predicted(self, units: Array) -> Array:
        """Predict scores at places, shape (q, d), in every task: (tasks, q)."""
        rows = [surrogate.scores(units, self.columns) for surrogate in self.surrogates]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(units))

    def scores(self, configs: Sequence[Config]) -> Array:
        """Return scores of configurations in every task, shape (tasks, configurations)."""
        result = np.empty((len(self.tasks), len(configs)))
        unknown = [number for number, config in enumerate(configs) if config not in self._places]
        for number, config in enumerate(configs):
            if config in self._places:
                result[:, number] = self.values[:, self._places[config]]
        if unknown:
            places = places_of(self.space, [configs[number] for number in unknown])
            result[:, unknown] = self.predicted(places)
        return result


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
    best = np.zeros(len(ensemble.tasks))
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
