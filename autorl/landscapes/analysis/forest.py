"""A random forest over configurations, and what it says about hyperparameters.

It maps configurations in the unit cube to their mean score. Values are on their hyperparameter's
scale (a learning rate on the log scale), which matters for importance. An inactive hyperparameter
has its default there, as in the original fANOVA. Constants are left out.

Partial dependence [1] at a value: the mean prediction over the recorded configurations when the
hyperparameter is set to that value in each of them. Interaction [2] is Friedman and Popescu's H
squared: the share of the variance of the joint partial dependence of two hyperparameters that their
separate ones do not add up to. Local importance [3] is the variance of the prediction when one
hyperparameter moves and the others stay at a given configuration, divided by the sum of those
variances. Tunability [4] of a hyperparameter is the gain of its best value alone over a reference
configuration.

References:
    [1] Friedman, "Greedy function approximation: a gradient boosting machine", 2001.
    [2] Friedman and Popescu, "Predictive learning via rule ensembles", 2008.
    [3] Biedenkapp et al., "CAVE: configuration assessment, visualization and evaluation", LION
        2018.
    [4] Probst, Boulesteix and Bischl, "Tunability: importance of hyperparameters of machine
        learning algorithms", 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.types import Config, InputError
from autorl.landscapes.analysis.tables import final_scores
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import Array, configurations, encode, regressor
from autorl.space import Space, unknown_key
from autorl.statistics.comparison import spearman

if TYPE_CHECKING:
    import pandas as pd

Predict: TypeAlias = Callable[[Array], Array]
TREES = 64
_MAX_LEAVES = 512  # bounds the memory of fANOVA, which looks at pairs of leaves
_MIN_ROWS = 10
_LINE = 32  # points of a dependence
_SURFACE = 16  # points along each side of a surface
_AROUND = 64  # points along a hyperparameter around one configuration
_SAMPLE = 48  # configurations an interaction is computed on: its cost grows with their square


@dataclass(frozen=True, eq=False)
class Forest:
    """A fitted forest.

    Attributes:
        names: the hyperparameters that vary, one per column of `rows`.
        rows: the configurations it was fitted to, (n, d) in the unit cube.
        targets: their scores (n,).
        out_of_bag: rank correlation between the scores and predictions of trees that did not see
            them. Below about 0.5 the importances describe noise.
    """

    space: Space
    names: tuple[str, ...]
    model: Any
    rows: Array
    targets: Array
    out_of_bag: float

    def predict(self, rows: npt.ArrayLike) -> Array:
        """Predict the scores of rows (n, d) of the unit cube."""
        return np.asarray(self.model.predict(np.asarray(rows, dtype=np.float32)), dtype=np.float64)

    def encode(self, configs: Sequence[Mapping[str, object]]) -> Array:
        """Encode configurations as rows (n, d)."""
        return encode(self.space, self.names, configs)

    def column(self, name: str) -> int:
        """Return the column of a hyperparameter.

        Raises:
            InputError: it is unknown or constant.
        """
        if name not in self.names:
            raise InputError(unknown_key(name, self.names), key="hyperparameter")
        return self.names.index(name)

    def grid(self, name: str, points: int) -> Array:
        """Place points along a hyperparameter, of equal weight in the unit interval.

        They are every choice, every integer if they are few, or `points` bin centres.
        """
        item = self.space.hyperparameters[self.names[self.column(name)]]
        if item.numeric:
            lower, upper = item.bounds
            few = item.type == "int" and item.scale == "linear" and upper - lower < points
            count = int(upper - lower) + 1 if few else points
        else:
            count = item.n_choices
        # Centres: a value on a border of two choices or integers would be rounded to either.
        return (np.arange(count) + 0.5) / count

    def values(self, name: str, grid: Array) -> list[Any]:
        """Return the values at points along a hyperparameter."""
        item = self.space.hyperparameters[name]
        return [item.from_unit(float(unit)) for unit in grid]

    def moved(self, config: Mapping[str, object], name: str, points: int) -> list[Config]:
        """Move one hyperparameter of a configuration along its grid.

        Hyperparameters that this activates have their defaults.
        """
        defaults = {key: item.default for key, item in self.space.hyperparameters.items()}
        moved = []
        for value in self.values(name, self.grid(name, points)):
            # All values first, because which are active depends on the moved one.
            filled = Config({**defaults, **config, name: value})
            moved.append(Config({key: filled[key] for key in self.space.active(filled)}))
        return moved


def fit_forest(
    space: Space,
    configs: Sequence[Mapping[str, object]],
    targets: npt.ArrayLike,
    trees: int = TREES,
) -> Forest:
    """Fit a forest of regression trees to configurations and their mean scores.

    Raises:
        InputError: fewer than 10 configurations, equal scores, or nothing that varies.
    """
    scores = np.asarray(targets, dtype=np.float64)
    names = tuple(name for name in space.names if space.hyperparameters[name].type != "constant")
    if len(configs) < _MIN_ROWS:
        raise InputError(
            f"a forest needs at least {_MIN_ROWS} configurations with a score each, got "
            f"{len(configs)}"
        )
    if not names or np.ptp(scores) == 0.0:
        raise InputError(
            "all configurations or all scores are the same, so there is nothing to explain"
        )
    model = regressor(
        n_estimators=trees, max_leaf_nodes=_MAX_LEAVES, oob_score=_rank_score, random_state=0
    )
    rows = encode(space, names, configs)
    # scikit-learn's trees hold and compare single precision.
    model.fit(rows.astype(np.float32), scores)
    return Forest(space, names, model, rows, scores, float(model.oob_score_))


def _rank_score(targets: Array, predictions: Array) -> float:
    # scikit-learn hands targets over as a column (n, 1), and predictions flat.
    return float(spearman(np.ravel(targets), np.ravel(predictions)))


@lru_cache(maxsize=1)  # a page asks several questions of one forest
def landscape_forest(data: Dataset, seeds: SeedSet = "all", step: int | None = None) -> Forest:
    """Fit a forest to mean scores over seeds at a step."""
    curves = final_scores(data, seeds, step)
    return fit_forest(data.space, configurations(data, curves.config_ids), curves.means)


def individual_dependence(
    predict: Predict, rows: Array, columns: Sequence[int], points: Array
) -> Array:
    """Predict every row with `columns` set to each point.

    From rows (n, d) and points (g, len(columns)) to predictions (n, g).
    """
    # (n, g, d): all rows in one call of the forest, since every call has a start-up cost.
    moved = np.repeat(rows[:, None, :], len(points), axis=1)
    moved[:, :, list(columns)] = points
    return predict(moved.reshape(-1, rows.shape[1])).reshape(len(rows), len(points))


def interaction_strength(predict: Predict, rows: Array, first: int, second: int) -> float:
    """Compute H squared of two columns over the rows, in [0, 1].

    It is 0 where the joint partial dependence is flat.
    """
    # At the rows themselves, as Friedman and Popescu do: n predictions for each of the n.
    surfaces = [
        individual_dependence(predict, rows, columns, rows[:, list(columns)]).mean(axis=0)
        for columns in ((first, second), (first,), (second,))
    ]
    rounding = 1e-12 * float(np.abs(surfaces[0]).max())
    joint, first_alone, second_alone = (surface - surface.mean() for surface in surfaces)
    total = float((joint**2).mean())
    # A flat surface leaves round-off over round-off, which would read as a strong interaction.
    if total <= rounding**2:
        return 0.0
    # Unlike a share, the ratio can exceed 1.
    return min(1.0, float(((joint - first_alone - second_alone) ** 2).mean()) / total)


def dependence_table(forest: Forest, name: str, points: int = _LINE) -> pd.DataFrame:
    """Tabulate the partial dependence on one hyperparameter.

    Columns: value, mean, and low and high, the 10 % and 90 % quantiles over configurations.

    Raises:
        InputError: unknown or constant hyperparameter.
    """
    import pandas as pd

    grid = forest.grid(name, points)
    curves = individual_dependence(
        forest.predict, forest.rows, [forest.column(name)], grid[:, None]
    )
    low, high = np.quantile(curves, (0.1, 0.9), axis=0)
    values = forest.values(name, grid)
    return pd.DataFrame({"value": values, "mean": curves.mean(axis=0), "low": low, "high": high})


def dependence_surface(
    forest: Forest, first: str, second: str, points: int = _SURFACE
) -> pd.DataFrame:
    """Tabulate the joint partial dependence on two hyperparameters.

    A row per pair of values, `first` changing faster; columns: the two, and mean.

    Raises:
        InputError: unknown or constant hyperparameter, or the same one twice.
    """
    import pandas as pd

    columns = [forest.column(name) for name in (second, first)]
    if first == second:
        raise InputError(
            f"two different hyperparameters are needed, got {first!r} twice", key="hyperparameter"
        )
    slow, fast = (forest.grid(name, points) for name in (second, first))
    mesh = np.stack(np.meshgrid(slow, fast, indexing="ij"), axis=-1).reshape(-1, 2)
    means = individual_dependence(forest.predict, forest.rows, columns, mesh).mean(axis=0)
    pairs = [
        (value, second_value)
        for second_value in forest.values(second, slow)
        for value in forest.values(first, fast)
    ]
    return pd.DataFrame(pairs, columns=[first, second]).assign(mean=means)


def surface_places(forest: Forest, names: Sequence[str]) -> list[Array]:
    """Place configurations on the grid of `dependence_surface`.

    Row and column of each, as positions: cell 0 reaches from -0.5 to 0.5.
    """
    return [
        len(forest.grid(name, _SURFACE)) * forest.rows[:, forest.column(name)] - 0.5
        for name in names
    ]


def interaction_table(forest: Forest, *names: str) -> pd.DataFrame:
    """Compute H squared of pairs of hyperparameters (default all), the largest first.

    Columns: first, second, interaction.

    Raises:
        InputError: unknown or constant hyperparameter, fewer than two.
    """
    import pandas as pd

    columns = {name: forest.column(name) for name in names or forest.names}
    if len(columns) < 2:
        raise InputError("an interaction needs two different hyperparameters", key="hyperparameter")
    rows = forest.rows[np.random.default_rng(0).permutation(len(forest.rows))[:_SAMPLE]]
    strengths = [
        (first, second, interaction_strength(forest.predict, rows, columns[first], columns[second]))
        for first, second in combinations(columns, 2)
    ]
    table = pd.DataFrame(strengths, columns=["first", "second", "interaction"])
    return largest_first(table, "interaction")


def local_importance(forest: Forest, config: Mapping[str, object]) -> pd.DataFrame:
    """Compute variance shares around a configuration, the largest first.

    Columns: hyperparameter, importance. It is 0 for inactive hyperparameters, and for all where the
    prediction is flat around the configuration.

    Raises:
        InputError: the configuration is not valid in the space.
    """
    import pandas as pd

    forest.space.check(config)
    active = forest.space.active(config)
    variances = [
        float(forest.predict(forest.encode(forest.moved(config, name, _AROUND))).var())
        if name in active
        else 0.0
        for name in forest.names
    ]
    # A flat prediction has shares of 0, not of 0 / 0.
    total = sum(variances) or 1.0
    table = pd.DataFrame(
        {"hyperparameter": forest.names, "importance": [variance / total for variance in variances]}
    )
    return largest_first(table, "importance")


def tuning_gains(forest: Forest, config: Mapping[str, object]) -> pd.DataFrame:
    """Measure the gain of tuning each hyperparameter alone, the largest first.

    Columns: hyperparameter, gain (in units of the score), reference (the value in the
    configuration) and best (the value with the largest prediction when the others stay and the
    space allows it). Inactive hyperparameters gain 0.

    Raises:
        InputError: the configuration is not valid in the space.
    """
    import pandas as pd

    forest.space.check(config)
    active = forest.space.active(config)
    # Gains are against the prediction, not the recorded score, which has noise in it.
    base = float(forest.predict(forest.encode([config]))[0])
    rows = []
    for name in forest.names:
        # A forbidden value is no gain. A constraint without its constant cannot be asked.
        allowed = [
            candidate
            for candidate in (forest.moved(config, name, _AROUND) if name in active else [])
            if forest.space.missing or not forest.space.violated(candidate)
        ]
        predicted = forest.predict(forest.encode(allowed)) if allowed else np.array([base])
        # Only if strictly better: the configuration itself need not lie on the grid.
        better = bool(predicted.max() > base)
        best = allowed[int(predicted.argmax())][name] if better else config.get(name)
        gain = float(predicted.max()) - base if better else 0.0
        rows.append((name, gain, config.get(name), best))
    # As objects: choices, numbers and None stand in one column.
    table = pd.DataFrame(rows, columns=["hyperparameter", "gain", "reference", "best"]).astype(
        {"reference": object, "best": object}
    )
    return largest_first(table, "gain")


def largest_first(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Sort rows, ties in their order."""
    return table.sort_values(column, ascending=False, kind="stable", ignore_index=True)
