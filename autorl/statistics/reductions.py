"""Reductions: one number for a learning curve.

A curve holds the evaluations of one run in step order. Larger is better.

References:
    [Hutter2009] Hutter, Hoos, Leyton-Brown and Stützle, "ParamILS: an automatic algorithm
        configuration framework", 2009: penalised average run time (PAR).
"""

from __future__ import annotations

from collections.abc import Callable
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
        goal: the score whose first step it returns, in the metric's own direction; None: it returns
            a score.
    """

    chooses_step: bool = False
    goal: float | None = None

    def __call__(self, curve: npt.ArrayLike) -> float:
        """Return the reduction of a curve of shape (evaluations,).

        Raises:
            ValueError: the curve is empty, not finite, or of another rank.
        """
        return float(self.stacked(as_vector(curve, "curve")))

    @property
    def window(self) -> int | None:
        """Number of last evaluations it averages, None for one evaluation or all."""
        return self.stacked.keywords.get("k") if isinstance(self.stacked, partial) else None

    def sign(self, of_metric: float) -> float:
        """Return the factor that makes larger results better, -1 of a time.

        `of_metric` makes larger values of the metric better.
        """
        return of_metric if self.goal is None else -1.0

    def at(self, steps: npt.ArrayLike, horizon: int, sign: float) -> Callable[[Array], Array]:
        """Return the reduction of curves measured at these steps.

        Args:
            steps: of the evaluations, ascending.
            horizon: steps of a full run.
            sign: that curves of the metric were multiplied by.
        """
        if self.goal is None:
            return self.stacked
        goal = sign * self.goal
        return partial(_time_to, goal=goal, steps=steps, never=never_reached(horizon))


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


def _time_to(
    curves: Array, goal: float, steps: npt.ArrayLike = (), never: float | None = None
) -> Array:
    """First step at which a curve is at least the goal, negated.

    A curve that never is counts twice the horizon, however near it came: PAR2 [Hutter2009]. Its
    evaluations are counted, from 1, if it has no horizon.
    """
    count = curves.shape[-1]
    axis = np.arange(1.0, count + 1) if never is None else np.asarray(steps, dtype=float)
    never = never_reached(count) if never is None else never
    reached = curves >= goal
    times = np.where(reached.any(axis=-1), axis[reached.argmax(axis=-1)], never)
    # A landscape may lack a value of a curve.
    return -np.where(np.isnan(curves).any(axis=-1), np.nan, times)


def never_reached(horizon: int) -> float:
    """Return the time of a run that never reaches its goal."""
    return 2.0 * horizon


def time_to(score: float) -> Reduction:
    """Make the reduction that returns the first step at a score."""
    if not np.isfinite(score):
        raise ValueError(f"the score of time_to must be finite, got {score!r}")
    return Reduction(f"time_to({score:.12g})", partial(_time_to, goal=score), goal=score)


_PLAIN = {reduction.name: reduction for reduction in (last, best, auc)}
# `mean_last` refuses what is no whole number.
_WITH_NUMBER = {
    "mean_last": lambda k: mean_last(int(k) if k.is_integer() else k),
    "time_to": time_to,
}


def parse_reduction(text: str | Reduction, key: str = "reduce") -> Reduction:
    """Return `last`, `best`, `auc`, `mean_last(5)` or `time_to(400)` as a function.

    Raises:
        InputError: unknown name, or a number that it does not take.
    """
    return parsed(text, _PLAIN, _WITH_NUMBER, key)
