"""Scores of configurations in a prior's tasks, and their portfolio.

Each task has a Gaussian process of its own, given the normal scores of its configurations. A
configuration that a task has recorded keeps its recorded score; elsewhere the process predicts.

References:
    [Wistuba2018] Wistuba, Schilling, Schmidt-Thieme, "Scalable Gaussian process-based transfer
        surrogates for hyperparameter optimization", Machine Learning 107, 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autorl.core.types import Config
from autorl.optimizers.priors.mapping import MappedTask, places_of, proposable
from autorl.optimizers.priors.packed import Array
from autorl.optimizers.process import TABLE_NOISE, Process, normal_scores, rows_of
from autorl.space import Space

POOL = 64
"""Configurations of each task that may be proposed as they are: its best."""
_DRAWN_TIES = 1e-3  # of the mean score, where no configuration improves on what was proposed


class Ensemble:
    """Surrogates of all tasks, and the configurations they bring.

    Attributes:
        weights: shape (tasks,): what a task counts.
        pool: valid configurations, the best of each task.
        brought: shape (tasks, pool): whether a configuration is among the best of the task.
        values: shape (tasks, pool): scores of the pool in each task.
    """

    def __init__(self, tasks: Sequence[MappedTask], space: Space) -> None:
        self.space = space
        self.tasks = tasks
        self.weights = np.array([task.weight for task in tasks], dtype=np.float64)
        self._processes = [
            Process(
                rows_of(space, task.units, task.recorded),
                normal_scores(task.scores),
                noise=TABLE_NOISE,
            )
            for task in tasks
        ]
        best = [np.argsort(-task.scores, kind="stable")[:POOL] for task in tasks]
        at = {
            task.units[row].tobytes(): proposable(space, task.units[row])
            for task, rows in zip(tasks, best, strict=True)
            for row in rows
        }
        self.pool = list(dict.fromkeys(at.values()))
        self._places = {config: place for place, config in enumerate(self.pool)}
        self.values = self._scores(self.predicted(places_of(space, self.pool)))
        self.brought = np.zeros(self.values.shape, dtype=bool)
        for number, (task, rows) in enumerate(zip(tasks, best, strict=True)):
            for unit, score in zip(task.units, task.scores, strict=True):
                if unit.tobytes() in at:
                    self.values[number, self._places[at[unit.tobytes()]]] = score
            brought = [self._places[at[task.units[row].tobytes()]] for row in rows]
            self.brought[number, brought] = True

    def predicted(self, units: Array) -> Array:
        """Predict normal scores in every task, shape (tasks, q).

        Args:
            units: places, shape (q, d).
        """
        means = [
            process.mean(rows_of(self.space, units, task.recorded))
            for process, task in zip(self._processes, self.tasks, strict=True)
        ]
        return np.array(means, dtype=np.float64).reshape(len(means), len(units))

    def _scores(self, predicted: Array) -> Array:
        """Turn each task's normal scores into its scores, 0 to 1."""
        scores = np.empty_like(predicted)
        for row, task in enumerate(self.tasks):
            ascending = np.sort(task.scores)
            scores[row] = np.interp(predicted[row], normal_scores(ascending), ascending)
        return scores

    def scores(self, configs: Sequence[Config]) -> Array:
        """Return scores of configurations in every task, shape (tasks, configurations)."""
        scores = self._scores(self.predicted(places_of(self.space, configs)))
        for column, config in enumerate(configs):
            if config in self._places:
                scores[:, column] = self.values[:, self._places[config]]
        return scores

    def source_of(self, place: int) -> str:
        """Name the heaviest of the tasks that a configuration is from.

        Args:
            place: of the configuration in the pool.
        """
        return self.tasks[int((self.brought[:, place] * self.weights).argmax())].source


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


def greedy(
    values: Array, weights: Array, size: int, allowed: np.ndarray | None = None
) -> list[int]:
    """Choose columns one by one, each by its gain.

    Args:
        values: shape (tasks, q).
        weights: shape (tasks,).
        size: how many.
        allowed: columns that may be chosen, a mask; None: all.
    """
    best = np.zeros(len(weights))
    free = np.ones(values.shape[1], dtype=bool) if allowed is None else allowed.copy()
    chosen: list[int] = []
    while len(chosen) < size and free.any():
        gain = np.where(free, gains(values, best, weights), -np.inf)
        chosen.append(int(gain.argmax()))
        free[chosen[-1]] = False
        best = np.maximum(best, values[:, chosen[-1]])
    return chosen
