"""Runs a Python function `f(trial)` as a trainer.

    def f(trial):
        for step in range(1, trial.until + 1):
            ...
            trial.report(step, score)
            if trial.should_stop():
                return None
        return score

A function is one of these where its first parameter is called `trial` or is annotated as
`LiveTrial`; any other is `f(config, *, seed, ...)` (`autorl.trainers.function`). Its return value
is the value at its last step, beside its reports; None means that the reports say it all. One that
returns before its last step, or raises `TrialStopped`, has ended its run by itself: it is scored by
what it has told, and not continued.

The checkpoint of a segment is the call itself, which waits (`live:SEGMENT`). A call that is gone,
as after a kill or in a worker that trains one segment alone, is made once more from step 0, which
is not charged: with one seed a function does the same again.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autorl.core.plain_values import plain
from autorl.core.types import (
    Checkpoint,
    FrozenMap,
    InputError,
    NotLoggedError,
    Outcome,
    Report,
    Segment,
    SegmentId,
    Status,
    TrainerSpec,
)
from autorl.trainers import function as plain_function
from autorl.trainers.contract import Change
from autorl.trainers.function import FunctionTrainer, described
from autorl.trainers.live_trial import Call, LiveTrial, TrialStopped
from autorl.trainers.shared import Diverged, check_start
from autorl.trainers.user_code import Told

# Each holds the memory of its function. Methods that pause most of their runs for good (asha) would
# hold all of them: those that wait longest begin anew if they are continued after all.
_MOST_WAITING = 64
_ANNOTATIONS = ("LiveTrial", "autorl.LiveTrial")


def takes_trial(function: Callable[..., object]) -> bool:
    """Say whether a function is `f(trial)`.

    The name or the annotation of its first parameter says so.
    """
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return False
    return first.name == "trial" or first.annotation in (LiveTrial, *_ANNOTATIONS)


def make(spec: TrainerSpec) -> FunctionTrainer:
    """Make the trainer of `python:module:function`, whichever kind the function is."""
    trainer = plain_function.make(spec)
    if not takes_trial(trainer.function):
        return trainer
    # A worker may never see the next segment of a run: no call waits for it.
    return TrialTrainer(trainer.function, spec.kwargs, most_waiting=0)


def waiting_call(segment: SegmentId) -> str:
    """Name the call that waits at the end of a segment."""
    return f"live:{segment}"


class TrialTrainer(FunctionTrainer):
    """Runs segments of a function that waits where the study compares runs.

    Its state is the calls that wait; `close` ends them.

    Args:
        function: is given a `LiveTrial`.
        options: those of `FunctionTrainer`.
        call: calls the function, in another process say; by default it is called as it is.
        most_waiting: calls; those that wait longest begin anew if they are continued after all.

    Raises:
        InputError: the function needs another argument than the trial.
    """

    resumable = True
    changes: Mapping[str, Change] = FrozenMap()  # it has read its configuration when it began

    def __init__(
        self,
        function: Callable[..., object],
        options: Mapping[str, Any],
        call: Callable[[LiveTrial], object] | None = None,
        most_waiting: int = _MOST_WAITING,
    ) -> None:
        super().__init__(function, options)
        more = list(inspect.signature(function).parameters.values())[1:]
        many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        demanded = [arg.name for arg in more if arg.default is arg.empty and arg.kind not in many]
        if demanded:
            message = f"f(trial) is given nothing else, but needs {demanded[0]!r}: read the trial"
            raise InputError(message, key="trainer")
        self._call = call or function
        self._most_waiting = most_waiting
        self._guard = threading.Lock()
        self._waiting: dict[str, Call] = {}
        self._training: set[Call] = set()

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        check_start(segment)
        course = Told(segment, report)
        parent = "" if segment.parent is None else segment.parent.path
        with self._guard:
            waiting = self._waiting.pop(parent, None)
            call = waiting or Call(self._call, self.tell, self.folders)
            self._training.add(call)
        try:
            if waiting is None:
                call.begin(segment, course, _trial(segment, call))
            else:
                call.go_on(segment, course)
        finally:
            with self._guard:
                self._training.discard(call)
        if call.waits:
            return self._paused(call, segment, course)
        return self._ended(call, segment, course)

    def release(self, paths: Iterable[str]) -> None:
        """Stop the calls that wait under these names."""
        with self._guard:
            calls = [self._waiting.pop(path) for path in paths if path in self._waiting]
        for call in calls:
            call.stop()

    def close(self) -> None:
        """Stop every call, and return when the functions that waited have returned.

        One that trains, in a session that was interrupted, ends with its next report.
        """
        with self._guard:
            calls = list(self._waiting.values())
            self._waiting.clear()
            training = list(self._training)
        for call in [*training, *calls]:
            call.stop()
        for call in calls:
            call.join()

    def _paused(self, call: Call, segment: Segment, course: Told) -> Outcome:
        try:
            if not call.reported:
                raise NotLoggedError(
                    f"the function reported nothing up to step {segment.until}, where the study "
                    "compares runs: report earlier, or compare later (`rungs`)"
                )
            saved = Checkpoint(segment.id, waiting_call(segment.id)) if segment.save else None
            outcome = course.ended(saved)
        except BaseException:
            call.stop()
            raise
        if saved is None or outcome.status is not Status.DONE:
            call.stop()
            return dataclasses.replace(outcome, checkpoint=None)
        with self._guard:
            self._waiting[saved.path] = call
            longest = list(self._waiting)[: max(0, len(self._waiting) - self._most_waiting)]
        self.release(longest)
        return outcome

    def _ended(self, call: Call, segment: Segment, course: Told) -> Outcome:
        """Return the outcome where the function returned or raised."""
        if isinstance(call.error, Diverged):
            return course.ended(None)
        if isinstance(call.error, TrialStopped):
            stopped = course.ended(None)
            return dataclasses.replace(stopped, status=Status.STOPPED, reached=course.last)
        if call.error is not None:
            raise call.error
        if call.value is None and not call.reported:
            raise NotLoggedError("the function returned nothing and reported nothing")
        early = segment.until < segment.horizon
        if early and not call.reported:
            raise NotLoggedError(
                f"the function returned without a report, but the study compares runs at step "
                f"{segment.until}: call `trial.report(step, value)` on the way"
            )
        try:
            if call.value is not None:
                self.tell_returned(course, call.value)
        except Diverged:
            early = False
        outcome = course.ended(None)
        # Ended by itself, as by a rule of its own: there is nothing to go on from.
        return dataclasses.replace(outcome, status=Status.STOPPED) if early else outcome


def _trial(segment: Segment, call: Call) -> LiveTrial:
    return LiveTrial(
        id=str(segment.id),
        config=plain(segment.config),
        seed=segment.seed,
        role=segment.role,
        until=segment.horizon,
        episodes=segment.episodes,
        environment=described(segment.environment),
        line=call,
    )
