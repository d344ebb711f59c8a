"""The trial of a function `f(trial)`, and the call it runs in.

The study cuts runs where it compares them (`stop: median`, `asha`, ...). A function is not called
again at each cut: its call waits in `LiveTrial.should_stop` until the study has decided, and goes
on from there. Nothing is saved, nothing is trained twice, and every decision follows from the
recorded outcomes alone, with one or n workers.

    driver        segment to step 20            outcome       segment from 20 to 40
    the call      report(1) ... report(20)  should_stop() waits ----> False  report(21) ...
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from autorl.core.forks import ends_forked_children
from autorl.core.plain_text import shortened
from autorl.core.plugins import module_path
from autorl.core.types import AutorlError, Segment
from autorl.trainers.user_code import Told, step_number

_ELSEWHERE = {
    "should_prune": "ask `trial.should_stop()`",
    "params": "the values are in `trial.config`",
    "number": "the run is `trial.id`",
}


class TrialStopped(AutorlError):  # noqa: N818 - a state of the search, not a mistake
    """A function `f(trial)` ends its run: raise it, or let it pass.

    `LiveTrial.report` raises it in a run that the study has stopped. A function that raises it by
    itself ends its run there, which is scored by what it has reported.
    """


class Line(Protocol):
    """The call that a trial is connected to, or the way there."""

    def report(self, step: int, value: object) -> None: ...

    def should_stop(self) -> bool: ...


@dataclass(frozen=True)
class _Question:
    ask: Callable[[], bool]

    def __call__(self) -> bool:
        return self.ask()

    def __bool__(self) -> bool:
        raise TypeError("trial.should_stop is a function: write trial.should_stop()")


@dataclass(frozen=True)
class LiveTrial:
    """One (configuration, seed) that a function `f(trial)` trains.

    Attributes:
        id: of the run's first segment, `12.3`: proposal 12 with seed 3.
        config: the hyperparameters that are active, by name.
        seed: the only source of randomness to use.
        role: `tuning` or `test`.
        until: the step a full run goes to.
        episodes: evaluation episodes that the study wants at each evaluation.
        environment: `{id, kwargs, n_envs}` of the study file.
    """

    id: str
    config: Mapping[str, Any]
    seed: int
    role: str
    until: int
    episodes: int
    environment: Mapping[str, Any]
    line: Line = field(repr=False, compare=False)

    def report(self, step: int, value: float | Mapping[str, float]) -> None:
        """Tell an evaluation at a step: a number, or metrics by name.

        Steps count from 1 to `until`, ascending. Past a step where the study compares runs it waits
        for the decision, unless `should_stop` has.

        Raises:
            TrialStopped: the study has stopped this run.
            ValueError: the step is not after the one before, or past `until`.
        """
        self.line.report(step, value)

    @property
    def should_stop(self) -> Callable[[], bool]:
        """Says when called whether the study has stopped this run: return then.

        If the study compares runs this waits for the decision, while other trials train. The value
        that a stopped function returns does not count. A method without its brackets would be true.
        """
        return _Question(self.line.should_stop)

    # Hidden from mypy, which would take any attribute for one that is there.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = _ELSEWHERE.get(name, "")
            if name.startswith("suggest_"):
                hint = "the space is given to `tune`, the values are in `trial.config`"
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{text}: {hint}" if hint else text)


class _State(Enum):
    TRAINING = "training"
    WAITING = "waiting"
    ENDED = "ended"


class Call:
    """One call of a function, which waits between its segments.

    Args:
        function: is called with a `LiveTrial`.
        tell: records a step and what the function told there.
        folders: where its modules are looked for while it runs.

    Attributes:
        value: what the function returned.
        error: what it raised.
        reported: whether it has reported anything.
    """

    def __init__(
        self,
        function: Callable[[LiveTrial], object],
        tell: Callable[[Told, int, object], None],
        folders: tuple[str, ...],
    ) -> None:
        self.value: object = None
        self.error: BaseException | None = None
        self.reported = False
        self._function = function
        self._tell = tell
        self._folders = folders
        self._changed = threading.Condition()
        self._state = _State.TRAINING
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._step = 0
        self._segment: Segment
        self._told: Told

    # -- for the trainer ---------------------------------------------------------------------------

    def begin(self, segment: Segment, told: Told, trial: LiveTrial) -> None:
        """Call the function, and return where the segment ends.

        A call that begins in the middle of a run, as after a kill, trains the steps before once
        more; what it reports of them is known already.
        """
        self._segment = segment
        self._told = told
        if segment.start == 0 and self._is_last():
            self._run(trial)  # never waits: it can do without a thread
            return
        # A daemon: a session that was interrupted does not wait for the end of its functions.
        self._thread = threading.Thread(target=self._run, args=(trial,), daemon=True)
        self._thread.start()
        self._wait()

    def go_on(self, segment: Segment, told: Told) -> None:
        """Let the call train its next segment, and return there."""
        with self._changed:
            self._segment = segment
            self._told = told
            self._state = _State.TRAINING
            self._changed.notify_all()
        self._wait()

    @property
    def waits(self) -> bool:
        """Whether the function waits at the end of a segment."""
        return self._state is _State.WAITING

    def stop(self) -> None:
        """Tell the function that its run is stopped.

        A stopped call never waits.
        """
        with self._changed:
            self._stopped = True
            if self._state is _State.WAITING:
                self._state = _State.TRAINING
                self._changed.notify_all()

    def join(self) -> None:
        """Wait until the function has returned."""
        if self._thread is not None:
            self._thread.join()

    def _wait(self) -> None:
        try:
            with self._changed:
                while self._state is _State.TRAINING:
                    self._changed.wait()
        except BaseException:  # Ctrl-C: nobody goes on with this call
            self.stop()
            raise

    def _run(self, trial: LiveTrial) -> None:
        try:
            # A forked child that came back would report a second time.
            with module_path(*self._folders), ends_forked_children():
                self.value = self._function(trial)
        except BaseException as error:  # noqa: BLE001 - user code: the trainer raises it again
            self.error = error
        with self._changed:
            self._state = _State.ENDED
            self._changed.notify_all()
        # Its outcome is recorded already: nobody else would hear of this.
        if self._stopped and self.error is not None and not isinstance(self.error, TrialStopped):
            problem = shortened(f"{type(self.error).__name__}: {self.error}")
            text = f"autorl: trial {trial.id}, after it was stopped, raised {problem}\n"
            sys.stderr.write(text)

    # -- for the function, in its thread -----------------------------------------------------------

    def report(self, step: int, value: object) -> None:
        """See `LiveTrial.report`."""
        reached = step_number(step)
        if reached == 0:
            raise ValueError(
                "step 0 in report(step, value): steps count from 1, as trained steps do"
            )
        while reached > self._segment.until and not self._is_last():
            self._pause()
            if self._stopped:
                break
        if self._stopped:
            raise TrialStopped("the study has stopped this run")
        self._step = reached
        self.reported = True
        if reached > self._segment.start:
            self._tell(self._told, reached, value)

    def should_stop(self) -> bool:
        """See `LiveTrial.should_stop`."""
        if self._step >= self._segment.until and not self._is_last():
            self._pause()
        return self._stopped

    def _pause(self) -> None:
        with self._changed:
            if self._stopped:
                return
            self._state = _State.WAITING
            self._changed.notify_all()
            while self._state is _State.WAITING:
                self._changed.wait()

    def _is_last(self) -> bool:
        return self._segment.until >= self._segment.horizon
