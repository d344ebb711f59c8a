"""Reductions: one number for a learning curve.

A curve holds the evaluations of one run in step order. Larger is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from autorl.statistics.aggregates import Named, parsed
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


@Reduction.of
def last(curves: Array) -> Array:
    """The last evaluation."""
    return np.asarray(curves[..., -1])


@partial(Reduction.of, chooses_step=True)
def best(curves: Array) -> Array:
    """The largest evaluation.

    A maximum over noise is biased upwards: read tests at a step chosen in tuning.
    """
    return np.asarray(curves.max(axis=-1))


@Reduction.of
def auc(curves: Array) -> Array:
    """Area under the curve over the number of evaluations, their plain mean."""
    return np.asarray(curves.mean(axis=-1))


def _mean_last(curves: Array, k: int) -> Array:
    """Mean of the last k evaluations.

    While there are fewer than k, it is the mean of all.
    """
    return np.asarray(curves[..., -k:].mean(axis=-1))


def mean_last(k: float) -> Reduction:
    """Make the reduction that averages the last k >= 1 evaluations.

    Used as `mean_last(5)(curve)`.
    """
    # True is an `int` to Python.
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k of mean_last must be a whole number >= 1, got {k!r}")
    return Reduction(f"mean_last({k})", partial(_mean_last, k=k))


_PLAIN = {reduction.name: reduction for reduction in (last, best, auc)}
# `mean_last` refuses what is no whole number.
_WITH_NUMBER = {"mean_last": lambda k: mean_last(int(k) if k.is_integer() else k)}


def parse_reduction(text: str | Reduction, key: str = "reduce") -> Reduction:
    """Return `last`, `best`, `auc` or `mean_last(5)` as a function.

    Raises:
        InputError: unknown name, or k is not a whole number >= 1.
    """
    return parsed(text, _PLAIN, _WITH_NUMBER, key)
