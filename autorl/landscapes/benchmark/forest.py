"""The parts of a surrogate: a forest as arrays, noise, and cost.

Rows are the n configurations a forest was fitted to, columns of `units` the hyperparameters in the
unit cube.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.core.types import Status
from autorl.landscapes.benchmark.replay import Table
from autorl.landscapes.grid import carry_forward
from autorl.landscapes.regression import MIN_TREES, Array, Regressor, regressor

MIN_ROWS = 20


def grow(units: npt.NDArray[np.float32], targets: Array, trees: int) -> Regressor:
    """Fit scikit-learn's forest to targets (n,) or (n, outputs).

    It has out-of-bag predictions, and is always the same.
    """
    model = regressor(n_estimators=trees, oob_score=True, random_state=0)
    model.fit(units, targets)
    return model


class Trees:
    """The trees of a fitted forest as arrays, which predict in microseconds.

    `weights` reproduces the forest's own prediction: mean over trees of the mean over the bootstrap
    sample in the leaf.
    """

    def __init__(self, model: Regressor, units: npt.NDArray[np.float32]) -> None:
        trees = [estimator.tree_ for estimator in model.estimators_]
        counts = np.array([tree.node_count for tree in trees])
        self._roots = np.concatenate([[0], np.cumsum(counts)[:-1]])
        offsets = np.repeat(self._roots, counts)
        left, right, feature, threshold = (
            np.concatenate([getattr(tree, name) for tree in trees])
            for name in ("children_left", "children_right", "feature", "threshold")
        )
        # scikit-learn's children of a leaf are -1. Here a leaf leads to itself, so that all trees
        # walk the depth of the deepest one, without a question at each node.
        leaf = left < 0
        self_ = np.arange(counts.sum())
        self._left = np.where(leaf, self_, left + offsets)
        self._right = np.where(leaf, self_, right + offsets)
        self._feature = np.where(leaf, 0, feature)
        self._threshold = np.where(leaf, np.inf, threshold)
        self._depth = max(int(tree.max_depth) for tree in trees)
        self._leaves = model.apply(units) + self._roots  # (n, trees)
        # (n, trees): how often each configuration is in a tree's bootstrap sample.
        drawn = [np.bincount(sample, minlength=len(units)) for sample in model.estimators_samples_]
        bag = np.stack(drawn, axis=1).astype(np.float64)
        totals = np.bincount(self._leaves.ravel(), bag.ravel(), minlength=len(self_))
        self._share = bag / totals[self._leaves] / len(trees)

    def weights(self, unit: npt.NDArray[np.float32]) -> Array:
        """Give the share of each fitted configuration in a prediction.

        Shape (n,), at a point of the unit cube.
        """
        nodes = self._roots
        for _ in range(self._depth):
            nodes = np.where(
                unit[self._feature[nodes]] <= self._threshold[nodes],
                self._left[nodes],
                self._right[nodes],
            )
        return np.asarray(np.where(self._leaves == nodes, self._share, 0.0).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Noise:
    """The recorded curves and their noise, which the weights are laid on.

    Attributes:
        means: (n, metrics, steps) over the seeds whose run did not fail; NaN where there is none.
        deviations: (metrics, n, seeds, steps) from these means, stretched; 0 where unknown.
        lowest, highest: (metrics, 1) values recorded.
    """

    means: Array
    deviations: Array
    lowest: Array
    highest: Array

    @classmethod
    def of(cls, table: Table, rows: npt.NDArray[np.int64]) -> Noise:
        """Take noise from recorded runs."""
        # (metrics, n, seeds, steps)
        curves = np.stack([values[rows] for values in table.curves.values()]).astype(np.float64)
        failed = np.isin(table.status[rows], [status.value for status in Status if status.failed])
        counted = table.trained[rows] & ~failed
        succeeded = np.where(counted[None, :, :, None], curves, np.nan)
        count = np.maximum(counted.sum(axis=1), 1)[None, :, None, None]
        means = nanmean(succeeded, axis=2)
        # Deviations from the mean of n seeds have a variance too small by the factor (n - 1) / n.
        stretch = np.sqrt(count / np.maximum(count - 1, 1))
        deviations = np.nan_to_num(
            np.where(table.trained[rows][None, :, :, None], curves, np.nan) - means[:, :, None]
        )
        lowest, highest = (
            f(succeeded, axis=(1, 2, 3), initial=bound, where=~np.isnan(succeeded))
            for f, bound in _EXTREMES
        )
        return cls(means.swapaxes(0, 1), deviations * stretch, lowest[:, None], highest[:, None])

    def expected(self, weights: Array) -> Array:
        """Average curves by weight: (metrics, steps).

        NaN where nothing with weight is known.
        """
        # Few configurations share a leaf with any point: the rest need not be multiplied by 0.
        rows = np.flatnonzero(weights)
        flat = self.means[rows].reshape(len(rows), -1)
        is_known = ~np.isnan(flat)
        totals = np.einsum("i,ij->j", weights[rows], is_known.astype(np.float64))
        sums = np.einsum("i,ij->j", weights[rows], np.where(is_known, flat, 0.0))
        means = np.divide(sums, totals, out=np.full_like(sums, np.nan), where=totals > 0)
        return np.asarray(means.reshape(self.means.shape[1:]))


class Cost:
    """Seconds per step, by a forest of its own.

    They are a constant where they do not vary, None where none were recorded.
    """

    def __init__(self, units: npt.NDArray[np.float32], seconds: Array) -> None:
        timed = np.flatnonzero(~np.isnan(seconds))
        self._seconds = seconds[timed]
        self._forest = None
        # Too few seconds, or equal ones, say no more than their mean.
        if len(timed) >= MIN_ROWS and np.ptp(self._seconds) > 0:
            self._forest = Trees(grow(units[timed], self._seconds, MIN_TREES), units[timed])

    def of(self, unit: npt.NDArray[np.float32]) -> float | None:
        """Predict the seconds per step at a point of the unit cube."""
        if not len(self._seconds):
            return None
        if self._forest is None:
            return float(self._seconds.mean())
        return float((self._forest.weights(unit) * self._seconds).sum())


_EXTREMES = ((np.min, np.inf), (np.max, -np.inf))


def mean_scores(values: npt.NDArray[np.float32], trained: npt.NDArray[np.bool_]) -> Array:
    """Average scores (n, seeds, steps) over seeds, penalties included.

    Shape (n, steps), without steps that are not known of all.

    The last step stays: a run counts as trained if it was scored there.
    """
    scores = np.where(trained[:, :, None], carry_forward(values), np.nan).astype(np.float64)
    means = nanmean(scores, axis=1)
    return means[:, ~np.isnan(means).any(axis=0)]


def nanmean(values: Array, axis: int) -> Array:
    """Average the entries that are not NaN.

    NaN where all are, without a warning.
    """
    # numpy's own warns where all are NaN, which here is a configuration without a good run.
    present = ~np.isnan(values)
    count = present.sum(axis=axis)
    total = np.where(present, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))
