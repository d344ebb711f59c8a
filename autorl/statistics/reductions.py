"""Reductions: one number for a learning curve.

A curve holds the evaluations of one run in step order. Larger is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.statistics._parse import Named, name_and_number
from autorl.statistics.arrays import Array, as_vector


@dataclass(frozen=True)
class Reduction(Named):
    """A named function of a learning curve: (..., e) -> (...).

    Attributes:
        chooses_step: whether the value is read at a step that depends on the curve; it must be
            chosen on tuning seeds.
    """

    chooses_step: bool = False

    def __call__(self, curve: npt.ArrayLike) -> float:
        """Return the reduction of a curve of shape (evaluations,).

        Raises:
            ValueError: the curve is empty, not finite, or of another rank.
        """
        return float(self.stacked(as_vector(curve, "curve")))

    @property
    def window(self) -> int | None:
        """Number of last evaluations it averages, None for one evaluation or all."""
        return int(self.stacked.keywords["k"]) if isinstance(self.stacked, partial) else None

    def read(self, curve: npt.ArrayLike, position: int) -> float:
        """Read the value of another curve at an evaluation chosen elsewhere.

        `best` is read at `position`, every other reduction is computed as usual.

        Raises:
            ValueError: `position` lies outside the curve.
        """
        values = as_vector(curve, "curve")
        if not 0 <= position < len(values):
            raise ValueError(f"position must lie in 0..{len(values) - 1}, got {position}")
        # The maximum of a test curve would be over its own noise: it is read where tuning chose.
        return float(values[position]) if self.chooses_step else self(values)


def _named(stacked: Callable[[Array], Array], *, chooses_step: bool = False) -> Reduction:
    """Make the reduction that a function defines, under the function's name."""
    # That name is the reduction's from here on: pickle finds the function by this path.
    stacked.__qualname__ = f"{stacked.__name__}.stacked"
    return Reduction(stacked.__name__, stacked, chooses_step)


@_named
def last(curves: Array) -> Array:
    """The last evaluation."""
    return np.asarray(curves[..., -1])


@partial(_named, chooses_step=True)
def best(curves: Array) -> Array:
    """The largest evaluation.

    A maximum over noise is biased upwards: read tests at a step chosen in tuning.
    """
    return np.asarray(curves.max(axis=-1))


@_named
def auc(curves: Array) -> Array:
    """Area under the curve over the number of evaluations, their plain mean."""
    return np.asarray(curves.mean(axis=-1))


def _mean_last(curves: Array, k: int) -> Array:
    """Mean of the last k evaluations.

    While there are fewer than k, it is the mean of all.
    """
    return np.asarray(curves[..., -k:].mean(axis=-1))


def mean_last(k: int) -> Reduction:
    """Make the reduction that averages the last k >= 1 evaluations.

    Used as `mean_last(5)(curve)`.
    """
    # True is an `int` to Python.
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k of mean_last must be a whole number >= 1, got {k!r}")
    return Reduction(f"mean_last({k})", partial(_mean_last, k=k))


_PLAIN = {reduction.name: reduction for reduction in (last, best, auc)}


def parse_reduction(text: str | Reduction, key: str = "reduce") -> Reduction:
    """Return `last`, `best`, `auc` or `mean_last(5)` as a function.

    Raises:
        InputError: unknown name, or k is not a whole number >= 1.
    """
    if isinstance(text, Reduction):
        return text
    name, number = name_and_number(text, tuple(_PLAIN), ("mean_last",), key)
    if number is None:
        return _PLAIN[name]
    if not number.is_integer() or number < 1:
        raise InputError(f"k of mean_last must be a whole number >= 1, got {text!r}", key=key)
    return mean_last(int(number))
