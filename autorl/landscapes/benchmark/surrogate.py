"""Surrogate: any configuration is answered by a predicted run.

The forest (Breiman 2001) is fitted to the configurations' mean scores at every recorded step. For a
configuration it gives each recorded one a weight, its share in the leaves the configuration falls
into (Meinshausen 2006, "Quantile Regression Forests"). Everything predicted is a mean or a draw
with these weights:

* expected curve of each metric: the weighted mean of the recorded configurations' means over seeds;
* run of a seed: one recorded run of that seed is drawn by weight, and lends its whole deviation
  from the mean of its own configuration, its failure or stop, and the step of it. Deviations of n
  seeds from their own mean are too small by sqrt(1 - 1/n) and are stretched by that. Noise that a
  seed adds to all configurations alike (paired noise) thus stays as strong as it was recorded; its
  noise for each configuration is drawn anew. Values stay within those recorded;
* cost: the wall seconds per step, by a second forest fitted to them.

The mean over seeds is that of tuning and test seeds together, so both roles are noise around one
curve. Seeds are numbered as in `autorl.landscapes.benchmark.replay`; one past the last recorded
takes a recorded one's runs, but draws its own. A draw is a function of (seed, role, configuration).
The same landscape and version of scikit-learn give the same forest.

The out-of-bag score says how far it can be trusted: it differs between 0.2 and 0.9 over the
landscapes of ARLBench. Below `MIN_CORRELATION` a surrogate is refused unless it is forced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted
from autorl.core.seeds import generator, integer_seed
from autorl.core.types import Config, InputError, SeedRole, Status
from autorl.landscapes.benchmark.replay import Benchmark, RecordedRun, Table, first_seed
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.grid import carry_forward
from autorl.landscapes.regression import MIN_TREES, Array, configurations, encode, regressor
from autorl.statistics.comparison import spearman

MIN_CORRELATION = 0.7
TREES = 128
MIN_ROWS = 20
_REMEMBERED = 10_000  # configurations whose prediction is kept
_EXTREMES = ((np.min, np.inf), (np.max, -np.inf))


def grow(units: npt.NDArray[np.float32], targets: Array, trees: int) -> Any:
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

    def __init__(self, model: Any, units: npt.NDArray[np.float32]) -> None:
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


@dataclass(frozen=True)
class Quality:
    """The fit of a forest to configurations its trees did not see.

    Attributes:
        r2: share of the variance of mean scores at the last step that is explained.
        correlation: rank correlation (Spearman) between predicted and recorded mean scores at the
            last step.
        configurations: how many it was fitted to.
    """

    r2: float
    correlation: float
    configurations: int

    def __str__(self) -> str:
        return (
            f"out-of-bag R2 {self.r2:.2f} and rank correlation {self.correlation:.2f} "
            f"over {counted(self.configurations, 'configuration')}"
        )


@dataclass(frozen=True, eq=False)
class _Prediction:
    """The prediction for one configuration.

    Attributes:
        hash: of the configuration.
        weights: (n,), shares of the recorded configurations.
        curves: (metrics, steps), expected.
        seconds: per step, if known.
    """

    hash: str
    weights: Array
    curves: Array
    seconds: float | None


class Surrogate(Benchmark):
    """A forest fitted to the runs trained from the start.

    Args:
        landscape: the data set.
        min_correlation: out-of-bag rank correlation below which the forest is refused.
        force: whether a forest below `min_correlation` is taken all the same.
        trees: how many, at least 32.

    Attributes:
        quality: its out-of-bag score.

    Raises:
        InputError: there are too few configurations, all score the
            same, they were trained in phases, or the forest's rank correlation is below
            `min_correlation`.
    """

    def __init__(
        self,
        landscape: Dataset,
        *,
        min_correlation: float = MIN_CORRELATION,
        force: bool = False,
        trees: int = TREES,
    ) -> None:
        super().__init__(landscape, min_correlation=min_correlation, force=force, trees=trees)
        # Rows of the grid that the forest is fitted to; one trained seed is enough.
        self._rows = np.flatnonzero(self._table.trained.any(axis=1))
        self._names = tuple(
            name for name in self.space.names if self.space.hyperparameters[name].type != "constant"
        )
        self._units = self._encode(configurations(landscape, self.grid.config_ids[self._rows]))
        self._forest, self.quality = self._fit(trees)
        if self.quality.correlation < min_correlation and not force:
            raise InputError(
                f"a surrogate of {landscape.manifest.id} ranks configurations it has not seen "
                f"with a correlation of {self.quality.correlation:.2f}, "
                f"below {min_correlation:g}; `force: true` takes it all the same",
                key="trainer.kwargs.landscape",
            )
        self._noise = Noise.of(self._table, self._rows)
        self._cost = Cost(self._units, nanmean(self._table.seconds[self._rows], axis=1))
        self._predictions: dict[Config, _Prediction] = {}
        self._penalty = landscape.queries.penalty()

    def run(
        self, config: Mapping[str, object], seed: int, role: SeedRole = "tuning"
    ) -> RecordedRun:
        """Predict the run of a configuration and a seed.

        `config_id` and `seed` are those of the recorded run that it was drawn by.

        Raises:
            InputError: the configuration is not in the data set's space.
        """
        prediction = self._predict(config)
        donor, place = self._draw(prediction, seed, role)
        # One donor lends deviation, failure and end together: a crash keeps its own curve.
        noise = self._noise
        # A mean plus a stretched deviation can leave the range of the metric, such as 0 to 500.
        values = np.clip(
            prediction.curves + noise.deviations[:, donor, place], noise.lowest, noise.highest
        )
        named = dict(zip(self._table.curves, values.astype(np.float32), strict=True))
        return self._table.run(self._rows[donor], place, named, prediction.seconds)

    def score(self, config: Mapping[str, object], seed: int, role: SeedRole, until: int) -> float:
        """Score a predicted run at the nearest recorded step <= `until`.

        It is the penalty once the run has failed.
        """
        step = self._steps[self.last_recorded(until)]
        run = self.run(config, seed, role)
        if run.status.failed and run.ended(step):
            return self._penalty
        reached = step if run.end is None else min(step, run.end)
        return run.at(reached)[self.landscape.manifest.objective.metric]

    def _fit(self, trees: int) -> tuple[Trees, Quality]:
        if len(self._rows) < MIN_ROWS:
            raise InputError(
                f"a surrogate needs at least {MIN_ROWS} trained configurations, "
                f"got {len(self._rows)}",
                file=str(self.landscape.path),
            )
        targets = mean_scores(self.grid.values[self._rows], self._table.trained[self._rows])
        if not self._names or np.ptp(targets[:, -1]) == 0.0:
            raise InputError(
                "all configurations score the same: there is nothing to predict",
                file=str(self.landscape.path),
            )
        # One forest for all steps (n, steps), so that a curve's weights are the same throughout.
        model = grow(self._units, targets, trees)
        # scikit-learn drops the second axis where there is one step.
        unseen = np.asarray(model.oob_prediction_, dtype=np.float64).reshape(targets.shape)
        predicted = unseen[:, -1]
        recorded = targets[:, -1]
        r2 = 1.0 - float(
            ((recorded - predicted) ** 2).sum() / ((recorded - recorded.mean()) ** 2).sum()
        )
        return Trees(model, self._units), Quality(
            r2, float(spearman(recorded, predicted)), len(recorded)
        )

    def _encode(self, configs: Sequence[Mapping[str, object]]) -> npt.NDArray[np.float32]:
        # scikit-learn's trees compare in single precision, and `Trees` has to branch as they do.
        return encode(self.space, self._names, configs).astype(np.float32)

    def _predict(self, config: Mapping[str, object]) -> _Prediction:
        key = config if isinstance(config, Config) else Config(config)
        prediction = self._predictions.get(key)
        if prediction is None:
            valid = self.space.config(key)
            unit = self._encode([valid])[0]
            weights = self._forest.weights(unit)
            if len(self._predictions) >= _REMEMBERED:
                self._predictions.clear()
            prediction = self._predictions[key] = _Prediction(
                self.space.config_hash(valid),
                weights,
                self._noise.expected(weights),
                self._cost.of(unit),
            )
        return prediction

    def _draw(self, prediction: _Prediction, seed: int, role: SeedRole) -> tuple[int, int]:
        """Draw the recorded run that lends its noise.

        Its row among those fitted, and its place on the seed axis.
        """
        columns = self._columns(seed, role)
        trained = self._table.trained[self._rows]
        for place in columns:
            # Inverse transform sampling: a donor's chance is its share of the prediction.
            shares = np.cumsum(prediction.weights * trained[:, place])
            if shares[-1] > 0:
                # Drawn of configuration and seed alone: the order of questions changes nothing.
                point = generator(seed, "noise", role, prediction.hash).random() * shares[-1]
                return int(np.searchsorted(shares, point, side="right")), place
        raise AssertionError("a configuration with weight has a run")  # `_rows` are those with one

    def _columns(self, seed: int, role: SeedRole) -> list[int]:
        """List the places that may answer for a seed.

        They lie on the seed axis. Its own comes first, then those of its role, then all.
        """
        recorded_role = role if role in self.grid.roles else "all"
        places = self.grid.seed_positions(recorded_role)
        number = seed - first_seed(role)
        # Hashed, not the remainder: seeds past the last are no second round of the recorded ones.
        if not 0 <= number < len(places):
            number = integer_seed(seed, "noise", role) % len(places)
        every_place = self.grid.seed_positions("all")
        return [*np.roll(places, -number).tolist(), *np.setdiff1d(every_place, places).tolist()]
