"""The base of trainers that run a user's code.

Points are checked as they are told, and become the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.types import Checkpoint, InputError, Outcome, Report, Segment, Status, step_problem
from autorl.trainers._shared import Clock, Diverged, not_finite

NO_PRUNING = (
    "`report` does not end a run: take one parameter called `trial` instead, `f(trial)`, which has "
    "`trial.report()` and `trial.should_stop()`; what runs are compared by is the optimizer's "
    "option `stop: median` with `rungs`"
)


class NoPruningError(InputError, AttributeError):
    """Raised for the name of another tuner's pruning method.

    It is an `AttributeError` too, so that `hasattr` is False.
    """


def refuse_pruning(owner: object, name: str) -> Any:
    """Stand in as the `__getattr__` where other tuners have `should_prune`."""
    if name in ("report", "should_prune", "prune"):
        raise NoPruningError(NO_PRUNING)
    raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")


def metric_value(name: object, value: Any) -> float:
    """Return the number a user's code told for a metric.

    Raises:
        TypeError: it is none. Text and truth values are none either: `float` would take both.
    """
    several = (
        "; for several metrics return a dict of them by name"
        if isinstance(value, list | tuple)
        else ""
    )
    message = f"metric {name!r} is not a number: {shown(value)}{several}"
    # `float` would take `True` for 1 and the text "0.5" for a half.
    if isinstance(value, bool | np.bool_ | str | bytes):
        raise TypeError(message)
    try:
        return float(value)
    # OverflowError: of a whole number past the range of a float.
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(message) from error


def step_number(step: object) -> int:
    """Return the step a user's code told, a whole number.

    Raises:
        TypeError: it is none.
    """
    if isinstance(step, int | np.integer) and not isinstance(step, bool):
        return int(step)
    if isinstance(step, float | np.floating) and float(step).is_integer():
        return int(step)
    raise TypeError(f"expected a whole number of steps in report(step, value), got {shown(step)}")


class Told:
    """Points a user's training has told so far.

    Attributes:
        reports: in the order they were told; none has a value that is not finite.
        diverged: what was not finite, in words; empty while all is well.
    """

    def __init__(self, segment: Segment, report: Callable[[Report], None]) -> None:
        self.reports: list[Report] = []
        self.diverged = ""
        self._problem = ""  # stays, also where the user's code catches the exception that named it
        self._segment = segment
        self._report = report
        self._clock = Clock()

    def add(self, point: Report) -> None:
        """Pass a point on.

        Raises:
            Diverged: a metric is not finite, now or before.
            ValueError: its step is outside the segment, or not after the one told before.
        """
        if not self.diverged:
            # Only the last two: to check all at each report would cost their square.
            last = [*self.reports[-1:], point]
            self._problem = self._problem or step_problem(
                self._segment.start, self._segment.until, last
            )
        if self._problem:
            raise ValueError(self._problem)
        self.diverged = self.diverged or not_finite(point)
        if self.diverged:
            raise Diverged
        self.reports.append(point)
        self._report(point)

    def outcome(self, saved: Checkpoint | None) -> Outcome:
        """Return how the segment ended.

        It ended at its end, or at the last finite point of a training that diverged.

        Raises:
            ValueError: a point had a step it cannot have.
        """
        if self._problem:
            raise ValueError(self._problem)
        segment = self._segment
        last = max([segment.start, *(point.step for point in self.reports)])
        # A training that ended by itself has used all its steps, also where it told none.
        reached = last if self.diverged else segment.until
        status = Status.DIVERGED if self.diverged else Status.DONE
        return Outcome(
            segment=segment.id,
            status=status,
            reached=reached,
            reports=tuple(self.reports),
            cost=self._clock.cost(reached - segment.start),
            checkpoint=saved,
            applied=dict(segment.config),
            message=self.diverged,
        )
