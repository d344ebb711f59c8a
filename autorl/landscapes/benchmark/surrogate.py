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
from typing import TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted
from autorl.core.seeds import generator, integer_seed
from autorl.core.types import Config, InputError, SeedRole, Status
from autorl.landscapes.benchmark.forest import (
    MIN_ROWS,
    Cost,
    Noise,
    Trees,
    grow,
    mean_scores,
    nanmean,
)
from autorl.landscapes.benchmark.objective import LandscapeObjective
from autorl.landscapes.benchmark.replay import RecordedRun, first_seed, tabulate
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.regression import MIN_TREES, Array, configurations, encode
from autorl.statistics.correlation import spearman

MIN_CORRELATION = 0.7
TREES = 128
_REMEMBERED = 10_000  # configurations whose prediction is kept


class SurrogateOptions(TypedDict, total=False):
    """The options of `Surrogate`."""

    min_correlation: float
    force: bool
    trees: int


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


class Surrogate:
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
        if trees < MIN_TREES:
            raise InputError(f"a forest needs at least {MIN_TREES} trees, got {trees}", key="trees")
        self.landscape = landscape
        self.space = landscape.space
        self.grid = landscape.grid
        self._table = tabulate(landscape)
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
        end = int(self._table.ends[self._rows[donor], place])
        ended_at = None if end < 0 else end
        # A mean plus a stretched deviation can leave the range of the metric, such as 0 to 500.
        values = np.clip(
            prediction.curves + noise.deviations[:, donor, place], noise.lowest, noise.highest
        )
        return RecordedRun(
            config_id=int(self.grid.config_ids[self._rows[donor]]),
            seed=int(self.grid.seeds[place]),
            repeats=None,
            status=Status(str(self._table.status[self._rows[donor], place])),
            end=ended_at,
            steps=self.grid.steps,
            values=dict(zip(self._table.curves, values.astype(np.float32), strict=True)),
            seconds_per_step=prediction.seconds,
        )

    def score(self, config: Mapping[str, object], seed: int, role: SeedRole, until: int) -> float:
        """Score a predicted run at the nearest recorded step <= `until`.

        It is the penalty once the run has failed.
        """
        place = int(np.searchsorted(self.grid.steps, until, side="right")) - 1
        if place < 0:
            raise InputError(
                f"{self.landscape.manifest.id} records nothing at or before step {until}",
                key="until",
            )
        run = self.run(config, seed, role)
        step = int(self.grid.steps[place])
        if run.status.failed and run.ended(step):
            return self._penalty
        reached = step if run.end is None else min(step, run.end)
        return run.at(reached)[self.landscape.manifest.objective.metric]

    def weights(self, config: Mapping[str, object]) -> dict[int, float]:
        """Give the share of each recorded configuration in a prediction.

        Shares are by id and sum to 1.
        """
        shares = self._predict(config).weights
        ids = self.grid.config_ids[self._rows]
        return {int(ids[row]): float(shares[row]) for row in np.flatnonzero(shares)}

    def expected(self, config: Mapping[str, object]) -> dict[str, Array]:
        """Give the expected curve of each metric over the recorded steps.

        Failed runs do not count.
        """
        return dict(zip(self._table.curves, self._predict(config).curves, strict=True))

    def _fit(self, trees: int) -> tuple[Trees, Quality]:
        if len(self._rows) < MIN_ROWS:
            raise InputError(
                f"a surrogate needs at least {MIN_ROWS} trained configurations, "
                f"got {len(self._rows)}",
                file=self._where,
            )
        targets = mean_scores(self.grid.values[self._rows], self._table.trained[self._rows])
        if not self._names or np.ptp(targets[:, -1]) == 0.0:
            raise InputError(
                "all configurations score the same: there is nothing to predict", file=self._where
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

    @property
    def _where(self) -> str:
        return str(self.landscape.path)

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


class SurrogateObjective(LandscapeObjective):
    """A data set whose predicted runs are the scores of a function.

    `objective(config, seed=0, until=None)` is the predicted score. Args and errors are those of
    `Surrogate`. Pickled and loaded, it fits the same forest again.
    """

    def __init__(self, landscape: Dataset, **options: Unpack[SurrogateOptions]) -> None:
        self.surrogate = Surrogate(landscape, **options)
        super().__init__(landscape, self.surrogate, **options)

    @property
    def quality(self) -> Quality:
        """The forest's out-of-bag score."""
        return self.surrogate.quality
