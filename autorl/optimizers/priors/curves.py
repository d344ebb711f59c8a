"""Learning curves of a task, as landscapes and prior files bring them.

They are curves of single tuning seeds, so that a study can make scores of as many seeds as its own
of them: configurations are not thinned by their scores, which would make good curves common.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.types import InputError
from autorl.landscapes.dataset import Dataset
from autorl.optimizers.priors.packed import Array, pack, unpack

MOST_CONFIGURATIONS = 256
MOST_SEEDS = 3
MOST_POINTS = 20
"""Evaluations of a curve: those of a longer one are thinned out evenly, the last stays."""
FEWEST_CONFIGURATIONS = 8
_LOW = 0.05  # quantile that counts as the worst: a diverged run may lie at -1e22


@dataclass(frozen=True, eq=False)
class Curves:
    """Learning curves of one task.

    Attributes:
        fractions: evaluations as parts of a full run, ascending to 1, shape (points,).
        values: between 0 and 1, larger is better, shape (configurations, seeds, points).
    """

    fractions: tuple[float, ...]
    values: Array

    def __post_init__(self) -> None:
        fractions = np.array(self.fractions)
        ascending = bool(np.all(np.diff(fractions, prepend=0.0) > 0)) and fractions[-1] == 1.0
        if not ascending or self.values.ndim != 3 or self.values.shape[-1] != len(fractions):
            message = f"values of shape {self.values.shape} at {shown(str(self.fractions))}"
            raise InputError(f"no learning curves: {message}")

    def to_dict(self) -> dict[str, Any]:
        """Return its content for a prior file, in JSON types."""
        return {
            "fractions": list(self.fractions),
            "shape": list(self.values.shape),
            "values": pack(self.values),
        }


def curves_of(content: Mapping[str, Any]) -> Curves:
    """Read what `Curves.to_dict` gave.

    Raises:
        ValueError: it is something else.
    """
    try:
        shape = tuple(int(size) for size in content["shape"])
        fractions = tuple(float(fraction) for fraction in content["fractions"])
        return Curves(fractions, unpack(content["values"], shape))
    except (KeyError, IndexError, TypeError, ValueError, zlib.error, InputError) as error:
        raise ValueError(f"curves: {error}") from None


def read_curves(data: Dataset) -> Curves | None:
    """Read the curves of a landscape or study, else None.

    Runs that lack an evaluation, such as stopped ones, are left out.
    """
    grid = data.grid
    columns = grid.columns(len(grid.steps) - 1)
    if len(columns) > MOST_POINTS:
        thinned = np.linspace(0, len(columns) - 1, MOST_POINTS).round().astype(np.int64)
        columns = [columns[place] for place in thinned]
    curves = grid.whole_curves("tuning", columns).astype(np.float64)
    complete = _complete(data.manifest.objective.sign * curves)
    if complete is None or not columns:
        return None
    try:
        units = unit_scores(complete)
    except InputError:
        return None
    fractions = grid.steps[columns] / grid.steps[-1]
    return Curves(tuple(float(round(fraction, 6)) for fraction in fractions), units)


def unit_scores(values: Array) -> Array:
    """Scale scores to 0 for the worst and 1 for the best.

    A score below the 5 % quantile counts as the worst, unless it is the best.

    Raises:
        InputError: all are equal, or there are none.
    """
    if not values.size:
        raise InputError("no configuration has a score")
    high = float(values.max())
    low = float(np.quantile(values, _LOW))
    low = low if high > low else float(values.min())
    if not high > low:
        raise InputError("all configurations score the same")
    return np.asarray(np.clip((values - low) / (high - low), 0.0, 1.0))


def _complete(curves: Array) -> Array | None:
    """Return curves of configurations that have as many whole ones, or None.

    With as many seeds as enough configurations have.
    """
    is_complete = np.asarray(np.isfinite(curves).all(axis=-1))  # (configurations, seeds)
    for count in range(min(MOST_SEEDS, curves.shape[1]), 0, -1):
        rows = np.flatnonzero(is_complete.sum(axis=1) >= count)
        if len(rows) >= FEWEST_CONFIGURATIONS:
            break
    else:
        return None
    if len(rows) > MOST_CONFIGURATIONS:
        places = np.linspace(0, len(rows) - 1, MOST_CONFIGURATIONS).round().astype(np.int64)
        rows = rows[places]
    return np.array([curves[row][is_complete[row]][:count] for row in rows])
