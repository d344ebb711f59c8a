"""Partial dependence on one or two hyperparameters, and how strongly two interact.

Partial dependence [1] at a value: the mean prediction over the recorded configurations when the
hyperparameter is set to that value in each of them. Interaction [2] is Friedman and Popescu's H
squared: the share of the variance of the joint partial dependence of two hyperparameters that their
separate ones do not add up to.

References:
    [1] Friedman, "Greedy function approximation: a gradient boosting machine", 2001.
    [2] Friedman and Popescu, "Predictive learning via rule ensembles", 2008.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autorl.core.types import InputError
from autorl.landscapes.analysis.forest import Forest
from autorl.landscapes.regression import Array

if TYPE_CHECKING:
    import pandas as pd

Predict: TypeAlias = Callable[[Array], Array]


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


def partial_dependence(
    predict: Predict, rows: Array, columns: Sequence[int], points: Array
) -> Array:
    """Average `individual_dependence` over rows: (g,)."""
    return np.asarray(individual_dependence(predict, rows, columns, points).mean(axis=0))


def interaction_strength(predict: Predict, rows: Array, first: int, second: int) -> float:
    """Compute H squared of two columns over the rows, in [0, 1].

    It is 0 where the joint partial dependence is flat.
    """
    # At the rows themselves, as Friedman and Popescu do: n predictions for each of the n.
    joint, first_alone, second_alone = (
        partial_dependence(predict, rows, columns, rows[:, list(columns)])
        for columns in ((first, second), (first,), (second,))
    )
    rounding = 1e-12 * float(np.abs(joint).max())
    joint, first_alone, second_alone = (
        surface - surface.mean() for surface in (joint, first_alone, second_alone)
    )
    total = float((joint**2).mean())
    # A flat surface leaves round-off over round-off, which would read as a strong interaction.
    if total <= rounding**2:
        return 0.0
    # Unlike a share, the ratio can exceed 1.
    return min(1.0, float(((joint - first_alone - second_alone) ** 2).mean()) / total)


def dependence_table(forest: Forest, name: str, points: int = 32) -> pd.DataFrame:
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
    item = forest.space.hyperparameters[name]
    values = [item.from_unit(float(unit)) for unit in grid]
    return pd.DataFrame({"value": values, "mean": curves.mean(axis=0), "low": low, "high": high})


def dependence_surface(forest: Forest, first: str, second: str, points: int = 16) -> pd.DataFrame:
    """Tabulate the joint partial dependence on two hyperparameters.

    There is a row per value of `first` and a column per value of `second`.

    Raises:
        InputError: unknown or constant hyperparameter, or the same one twice.
    """
    import pandas as pd

    columns = [forest.column(name) for name in (first, second)]
    if first == second:
        raise InputError(
            f"two different hyperparameters are needed, got {first!r} twice", key="hyperparameter"
        )
    grids = [forest.grid(name, points) for name in (first, second)]
    mesh = np.stack(
        [axis_values.ravel() for axis_values in np.meshgrid(*grids, indexing="ij")], axis=1
    )
    surface = partial_dependence(forest.predict, forest.rows, columns, mesh).reshape(
        len(grids[0]), len(grids[1])
    )
    axes = []
    for name, grid in zip((first, second), grids, strict=True):
        item = forest.space.hyperparameters[name]
        axes.append(pd.Index([item.from_unit(float(unit)) for unit in grid], name=name))
    return pd.DataFrame(surface, index=axes[0], columns=axes[1])


def surface_places(forest: Forest, first: str, second: str, points: int = 16) -> Array:
    """Place configurations on the grid of `dependence_surface`.

    Row and column of each, (n, 2), as positions: cell 0 reaches from -0.5 to 0.5.
    """
    places = []
    for name in (first, second):
        count = len(forest.grid(name, points))
        places.append(count * forest.rows[:, forest.column(name)] - 0.5)
    return np.stack(places, axis=1)


def interaction_table(
    forest: Forest, names: Sequence[str] | None = None, sample: int = 48, seed: int = 0
) -> pd.DataFrame:
    """Compute H squared of every pair of hyperparameters.

    Columns: first, second, interaction. The largest comes first.

    Args:
        forest: the fitted forest.
        names: the hyperparameters that are paired, None = all.
        sample: configurations it is computed on, drawn without replacement; the cost grows with its
            square.
        seed: of that draw.

    Raises:
        InputError: unknown or constant hyperparameter, fewer than two.
    """
    import pandas as pd

    chosen = forest.names if names is None else tuple(names)
    columns = {name: forest.column(name) for name in chosen}
    if len(columns) < 2:
        raise InputError("an interaction needs two different hyperparameters", key="hyperparameter")
    drawn = np.random.default_rng(seed).permutation(len(forest.rows))[:sample]
    rows = forest.rows[drawn]
    strengths = [
        (first, second, interaction_strength(forest.predict, rows, columns[first], columns[second]))
        for first, second in combinations(columns, 2)
    ]
    table = pd.DataFrame(strengths, columns=["first", "second", "interaction"])
    # Stable, so that pairs that tie stay in the order of the names.
    return table.sort_values("interaction", ascending=False, kind="stable", ignore_index=True)
