"""The random forest behind importance and dependence.

It maps configurations in the unit cube to their mean score.

Values are on their hyperparameter's scale (a learning rate on the log scale), which matters for
importance. An inactive hyperparameter has its default there, as in the original fANOVA. Constants
are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from autorl.core.types import Config, InputError
from autorl.landscapes.analysis.tables import final_scores
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import (
    MIN_TREES,
    Array,
    Regressor,
    configurations,
    encode,
    regressor,
)
from autorl.space import Space, unknown_key
from autorl.statistics.correlation import spearman

TREES = 64
_MAX_LEAVES = 512  # bounds the memory of fANOVA, which looks at pairs of leaves
_MIN_ROWS = 10


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
    model: Regressor
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
        """Place points along a hyperparameter.

        They are every choice, every integer if they are few, or `points` bin centres.

        The values are distinct and weigh the same in the unit interval.
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


def fit_forest(
    space: Space,
    configs: Sequence[Mapping[str, object]],
    targets: npt.ArrayLike,
    *,
    trees: int = TREES,
    seed: int = 0,
) -> Forest:
    """Fit a forest of regression trees to configurations and mean scores.

    Each tree is grown on a bootstrap sample.

    Raises:
        InputError: fewer than 10 configurations or 32 trees, equal
            scores, or nothing that varies.
    """
    if trees < MIN_TREES:
        raise InputError(f"a forest needs at least {MIN_TREES} trees, got {trees}", key="trees")
    scores = np.asarray(targets, dtype=np.float64)
    names = tuple(name for name in space.names if space.hyperparameters[name].type != "constant")
    if len(configs) < _MIN_ROWS or len(scores) != len(configs):
        raise InputError(
            f"a forest needs at least {_MIN_ROWS} configurations with a score each, got "
            f"{len(configs)}"
        )
    if not names or np.ptp(scores) == 0.0:
        raise InputError(
            "all configurations or all scores are the same, so there is nothing to explain"
        )
    model = regressor(
        n_estimators=trees, max_leaf_nodes=_MAX_LEAVES, oob_score=_rank_score, random_state=seed
    )
    rows = encode(space, names, configs)
    # scikit-learn's trees hold and compare single precision.
    model.fit(rows.astype(np.float32), scores)
    return Forest(space, names, model, rows, scores, float(model.oob_score_))


@lru_cache(maxsize=1)  # a page asks several questions of one forest
def landscape_forest(
    data: Dataset,
    seeds: SeedSet = "all",
    step: int | None = None,
    *,
    trees: int = TREES,
    seed: int = 0,
) -> Forest:
    """Fit a forest to a landscape's mean scores.

    They are means over the seeds of a role at a step (None = the last). See `fit_forest`.
    """
    curves = final_scores(data, seeds, step)
    return fit_forest(
        data.space, configurations(data, curves.config_ids), curves.means, trees=trees, seed=seed
    )


def neighbours(forest: Forest, config: Mapping[str, object], name: str, grid: Array) -> Array:
    """Encode a configuration with one hyperparameter moved along a grid.

    Hyperparameters that this deactivates take their defaults.
    """
    return forest.encode(moved(forest, config, name, grid))


def moved(forest: Forest, config: Mapping[str, object], name: str, grid: Array) -> list[Config]:
    """Move one hyperparameter of a configuration along a grid.

    Hyperparameters that this activates have their defaults.
    """
    item = forest.space.hyperparameters[name]
    defaults = {key: forest.space.hyperparameters[key].default for key in forest.space.names}
    # All values first, because which are active depends on the moved one.
    filled = [Config({**defaults, **config, name: item.from_unit(float(unit))}) for unit in grid]
    return [Config({key: values[key] for key in forest.space.active(values)}) for values in filled]


def _rank_score(targets: Array, predictions: Array) -> float:
    # scikit-learn hands targets over as a column (n, 1), and predictions flat.
    return float(spearman(np.ravel(targets), np.ravel(predictions)))
