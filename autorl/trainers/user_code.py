"""The base of trainers that run a user's code.

Points are checked as they are told, and become the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.types import Checkpoint, InputError, Outcome, Report, Segment, step_problem
from autorl.store.checkpoints import writing
from autorl.trainers.contract import AnyChange, Change, Trainer
from autorl.trainers.shared import Course, Diverged, check_start

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
    message = f"metric {name!r} is not a number: {shown(value)}"
    if isinstance(value, list | tuple):
        message += "; for several metrics return a dict of them by name"
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


class UserTrainer(Trainer):
    """Runs segments by a user's code.

    Attributes:
        folders: where its modules and files are; none: in the working folder.
        changeable: hyperparameters a continued segment may change; None: all.
    """

    folders: tuple[str, ...]
    changeable: tuple[str, ...] | None

    @property
    def changes(self) -> Mapping[str, Change]:
        if not self.resumable:
            return {}
        return AnyChange() if self.changeable is None else dict.fromkeys(self.changeable, "apply")

    def run(self, segment: Segment, course: Told, folder: Path | None) -> None:
        """Run the code, which saves in `folder` unless that is None."""
        raise NotImplementedError

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        check_start(segment, self.resumable)
        course = Told(segment, report)
        saves = segment.save and self.resumable
        saved = None
        try:
            with writing(segment, theirs=True) if saves else nullcontext() as folder:
                self.run(segment, course, folder)
                if folder is not None and not any(folder.iterdir()):
                    raise RuntimeError("the code saved nothing in the folder it was given")
            saved = Checkpoint(segment.id, segment.folder) if saves else None
        # The reports so far stay, and the outcome says where it diverged.
        except Diverged:
            pass
        return course.ended(saved)


class Told(Course):
    """Points a user's training has told so far.

    Attributes:
        cost: of the segment, by name, over what the clock says.
    """

    cost: Mapping[str, float] | None = None
    _wrong = ""  # stays, also where the user's code catches the exception that named it

    def tell(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass a point on.

        Raises:
            Diverged: a metric is not finite, now or before.
            ValueError: its step is outside the segment, or not after the one told before.
        """
        if not self.problem:
            # Only the last two: to check all at each report would cost their square.
            last = [*self.reports[-1:], Report(self.segment.id, step, metrics)]
            self._wrong = self._wrong or step_problem(self.segment.start, self.segment.until, last)
        if self._wrong:
            raise ValueError(self._wrong)
        if self.problem or not self.add(step, metrics):
            raise Diverged

    @property
    def last(self) -> int:
        """The step of the last finite point."""
        return max([self.segment.start, *(point.step for point in self.reports)])

    def ended(self, saved: Checkpoint | None) -> Outcome:
        """Return how the segment ended.

        It ended at its end, or at the last finite point of a training that diverged.

        Raises:
            ValueError: a point had a step it cannot have.
        """
        if self._wrong:
            raise ValueError(self._wrong)
        # A training that ended by itself has used all its steps, also where it told none.
        reached = self.last if self.problem else self.segment.until
        return self.outcome(reached, self.segment.config, lambda: saved, cost=self.cost or {})
