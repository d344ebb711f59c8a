"""`Tuner` gives trials and takes their values in the caller's loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from autorl.core.plain_text import shown
from autorl.core.seeds import SeedPlan
from autorl.core.types import (
    AutorlError,
    Checkpoint,
    Config,
    InputError,
    Outcome,
    Report,
    Segment,
    Status,
    StudyError,
    step_problem,
)
from autorl.optimizers.registry import DEFAULT
from autorl.store.events import ConfigEnqueued
from autorl.store.lock import lock_holder
from autorl.study import Result
from autorl.study.callbacks import CallbackEntry
from autorl.study.results.record import search_end_text
from autorl.study.spec import UNLIMITED, Spec, load_spec
from autorl.study.spec.arguments import (
    check_direction,
    check_options,
    optimizer_by_name,
    space_definition,
)
from autorl.study.tuner.whole_study import open_study
from autorl.trainers.contract import AnyChange, Change, Trainer
from autorl.trainers.user_code import metric_value, step_number


@dataclass(frozen=True)
class Trial:
    """One (configuration, seed) to be trained by the caller of `Tuner`.

    Attributes:
        start, until: train from step `start` (where `checkpoint` was saved; 0 from scratch) to step
            `until`.
        checkpoint: what was told as the checkpoint of the trial this one continues; None = from
            scratch.
        environment: its name, or that of the task.

    With `fidelity`, `stop: median` and `rungs` a trial is a part of a run: what is told at its end
    decides whether `ask` hands out the next part, which goes on from `checkpoint`. Stopping needs
    no call here. (`tune` gives a function `f(trial)` a `LiveTrial`, which waits in between.)
    """

    id: str
    config: Config
    seed: int
    role: str
    start: int
    until: int
    checkpoint: str | None
    environment: str | None = None

    # For mypy a name that a trial does not have stays an error.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = _NOT_OF_A_TRIAL.get(name)
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{text}: {hint}" if hint else text)


PARTS_OF_RUNS = (
    "a trial of ask and tell ends at its `until`: tell it, and the study decides (`stop: median`, "
    "`rungs`) whether `ask` hands out what follows; a function `f(trial)` of `tune` can ask"
)
_NOT_OF_A_TRIAL = {
    "report": "tell the tuner, `tuner.report(trial, step, value)`",
    "should_stop": PARTS_OF_RUNS,
    "should_prune": PARTS_OF_RUNS,
    "params": "the values are in `trial.config`",
    "number": "it is `trial.id`",
}


class Waiting(AutorlError):  # noqa: N818 - a state of the search, not a mistake
    """`Tuner.ask` has nothing before an open trial is told."""


class Finished(AutorlError):  # noqa: N818 - a state of the search, not a mistake
    """`Tuner.ask` has nothing any more.

    The budget is used up, or the optimizer is done.
    """


P = ParamSpec("P")
T = TypeVar("T")


class OwnerThread:
    """Calls functions one after another in one thread.

    A study belongs to the thread that opened it, as SQLite demands of a connection. Calls are done
    in the order in which they come.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="autorl-tuner")
        self._thread = self._pool.submit(threading.get_ident).result()
        self._process = os.getpid()
        self._closed = False

    def submit(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Call a function soon, and return the future of what it returns.

        Raises:
            StudyError: the owner is closed, belongs to the parent of this process, or is the
                thread that asks, which would wait for itself.
        """
        if os.getpid() != self._process:
            raise StudyError(
                "a Tuner belongs to the process that made it: send trials to other processes, "
                "and tell their values in the first one"
            )
        if threading.get_ident() == self._thread:
            raise StudyError(
                "a callback cannot call its tuner, which is still at work: note what to do, and "
                "call the tuner after the method that told the callback has returned"
            )
        if self._closed:
            raise StudyError("the tuner is closed: make another one on the same path")
        return self._pool.submit(function, *arguments, **named)

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function, and return what it returns.

        Raises:
            StudyError: as `submit`.
        """
        return self.submit(function, *arguments, **named).result()

    def close(self, last: Callable[[], None]) -> None:
        """Call `last`, and accept nothing more. A second call does nothing."""
        if self._closed:
            return
        ended = self.submit(last)
        self._closed = True
        try:
            ended.result()
        finally:
            self._pool.shutdown()


class Tuner:
    """Ask for trials, tell their values.

    There is a trial for each proposal and tuning seed. The questions are a function of the order of
    the calls, and with `parallelism` open proposals not of the order in which answers are told.

    Every method may be called from any thread of the process that made the tuner, and from
    coroutines as `ask_async`, `tell_async` or through `asyncio.to_thread`; a callback is told while
    a method is at work, and may call none. One process at a time
    has the folder; trials can be pickled, trained in other processes, and told here.

    Args:
        space: a `Space`, an inline definition, the name of a search space, a ConfigSpace, or
            distributions of Optuna by name.
        optimizer: its name, a mapping with `name` and options, or the class of one's own.
        direction: `maximize` or `minimize`.
        seeds: tuning seeds for `ask`, test seeds for `test_trials`.
        path: folder that keeps the study; taken up again if it holds this study. None = in memory.
        fidelity: steps of a full trial; None = trials have no length.
        callbacks: as of `tune`; are told what happens, of results what `result` returns.
        options: further keys of the study file, e.g. `parallelism=4` to have four proposals open at
            once, `budget={"runs": 60}`, `seed=1`, `evaluation={"aggregate": "iqm"}`.

    Raises:
        InputError: something is wrong with these, `path` holds another study, or another process
            has it.
        StudyError: a method is called in another process, in a callback, or after `close`.
    """

    def __init__(
        self,
        space: object,
        optimizer: str | Mapping[str, object] | type = DEFAULT,
        direction: str = "maximize",
        seeds: SeedPlan | None = None,
        path: str | Path | None = None,
        fidelity: int | None = None,
        callbacks: Sequence[CallbackEntry] = (),
        **options: object,
    ) -> None:
        keys = {*Spec.model_fields, *inspect.signature(Tuner).parameters} - {"options"}
        of_training = {"trainer", "algorithms", "executor", "storage"}  # the caller trains
        check_options(options, keys - of_training)
        check_direction(direction)
        plan = seeds or SeedPlan()
        study = {
            "trainer": "ask-tell",  # for the record: `_Caller` stands in its place
            "space": space_definition(space),
            "optimizer": optimizer_by_name(optimizer),
            "objective": {"metric": "value", "direction": direction},
            "seeds": {"tuning": list(plan.tuning), "test": list(plan.test)},
            # A trial without a length is one step.
            "fidelity": {"steps": fidelity or 1, "evaluations": 1, "episodes": 1},
            # The caller ends the search by asking no more.
            "budget": {"configurations": UNLIMITED},
            "parallelism": 1,
            # Test runs are asked for by `test_trials`, not trained by the study.
            "test": {"top": 0},
        }
        spec = load_spec(study | options)  # the caller's keys replace those above
        folder = None if path is None else Path(path)
        holder = None if folder is None else lock_holder(folder)
        if holder is not None:
            raise InputError(
                f"{holder} has this study: one process asks and tells; have it hand its trials to "
                "others, or close it there first",
                file=str(folder),
            )
        self._owner = OwnerThread()
        self._study = self._owner.call(open_study, spec, folder, lambda _: _Caller())
        try:
            self._owner.call(self._study.listen, callbacks)
        except InputError:
            self._owner.close(self._study.close)
            raise
        self._needed = spec.judge().needed
        self._ready: deque[Segment] = deque()
        self._open: dict[str, Segment] = {}
        self._reports: dict[str, list[Report]] = {}
        self._news: Future[None] = Future()

    def ask(self, *, wait: bool = False) -> Trial:
        """Return the next trial of the search.

        Args:
            wait: until there is one; for threads, of which others tell.

        Raises:
            Waiting: an open trial has to be told first, and `wait` is False.
            Finished: nothing is left to ask for.
        """
        if not wait:
            return self._owner.call(self._ask)
        while True:
            answer = self._owner.call(self._ask_or_news)
            if isinstance(answer, Trial):
                return answer
            answer.result()

    async def ask_async(self) -> Trial:
        """Return the next trial as soon as there is one.

        Raises:
            Finished: nothing is left to ask for.
        """
        while True:
            asked = self._owner.submit(self._ask_or_news)
            try:
                answer = await asyncio.wrap_future(asked)
            except asyncio.CancelledError:
                asked.add_done_callback(self._put_back)
                raise
            if isinstance(answer, Trial):
                return answer
            # Others wait for the same news: it is not cancelled with one of them.
            await asyncio.shield(asyncio.wrap_future(answer))

    def tell(
        self,
        trial: Trial,
        value: float | Mapping[str, float],
        *,
        checkpoint: str | Path | None = None,
    ) -> None:
        """Tell what a trial brought: its value, or metrics by name.

        `checkpoint` is given back to a trial that continues it.

        Raises:
            InputError: the trial is not open (never asked for, or told already), or a metric is
                missing.
        """
        self._owner.call(self._tell, trial, value, checkpoint)

    async def tell_async(
        self,
        trial: Trial,
        value: float | Mapping[str, float],
        *,
        checkpoint: str | Path | None = None,
    ) -> None:
        """Tell what a trial brought, as `tell` does."""
        await asyncio.wrap_future(self._owner.submit(self._tell, trial, value, checkpoint))

    def report(self, trial: Trial, step: int, value: float | Mapping[str, float]) -> None:
        """Tell an evaluation on the way, a point of the learning curve.

        Steps ascend; they are after `trial.start` and before `trial.until`, where `tell` is.

        Raises:
            InputError: the trial is not open, or the step is none of it.
        """
        self._owner.call(self._report, trial, step, value)

    def enqueue(self, config: Mapping[str, object]) -> None:
        """Have a configuration tried next, in place of one of the optimizer's.

        It is recorded at once, and proposed as soon as a new configuration is; the default one and
        warm starts come before.

        Raises:
            InputError: it is none of the space, or the optimizer's plan has no place for others.
        """
        self._owner.call(self._enqueue, config)

    def fail(self, trial: Trial, kind: str = "crash", message: str = "") -> None:
        """Tell that a trial ended without a value.

        `kind` is crash, timeout, out_of_memory, diverged or lost, which is handed out again.

        Raises:
            InputError: the trial is not open, or there is no such kind of failure.
        """
        self._owner.call(self._fail, trial, kind, message)

    def test_trials(self) -> Iterator[Trial]:
        """End the search, and hand out trials on the test seeds.

        They are of the incumbent. Tell each before the next.

        Raises:
            StudyError: nothing was scored.
        """
        segments = self._owner.call(self._begin_tests)
        while segments:
            for segment in segments:
                yield self._owner.call(self._hand_out, segment)
            segments = self._owner.call(self._study.tests.advance)

    def result(self) -> Result:
        """Return the result as it stands.

        It has a test score once `test_trials` were told.

        Raises:
            StudyError: nothing was scored.
        """
        return self._owner.call(self._result)

    def close(self) -> None:
        """Release the folder.

        Nothing is lost: a `Tuner` on the same `path` goes on.
        """
        self._owner.close(self._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- in the owner's thread ---------------------------------------------------------------------

    def _ask(self) -> Trial:
        driver = self._study.driver
        # Only when all that was decided is handed out: what is decided follows from the order of
        # calls.
        if not self._ready:
            with self._study.store.batch():
                self._ready.extend(driver.advance())
        if self._ready:
            return self._hand_out(self._ready.popleft())
        if self._open:
            count = len(self._open)
            what = "the open trial" if count == 1 else f"one of the {count} open trials"
            raise Waiting(f"tell {what} first; `parallelism` is {driver.spec.parallelism}")
        assert driver.search_end is not None, "nothing to train, and the search is not over"
        raise Finished(search_end_text(driver.search_end, driver.spec, driver.budget.used))

    def _ask_or_news(self) -> Trial | Future[None]:
        """Return a trial, or the future after which to ask again."""
        try:
            return self._ask()
        except Waiting:
            return self._news

    def _tell_news(self) -> None:
        news = self._news
        self._news = Future()
        news.set_result(None)

    def _put_back(self, asked: Future[Trial | Future[None]]) -> None:
        """Have a trial of a cancelled coroutine handed out again."""
        if asked.cancelled() or asked.exception() is not None:
            return
        answer = asked.result()
        if isinstance(answer, Trial):  # in the owner's thread, where the future was completed
            self._ready.appendleft(self._open.pop(answer.id))
            self._tell_news()

    def _tell(
        self, trial: Trial, value: float | Mapping[str, float], checkpoint: str | Path | None
    ) -> None:
        segment = self._open_segment(trial)
        point = Report(segment.id, segment.until, _metrics(value, self._needed))
        saved = None
        if checkpoint is not None:
            saved = Checkpoint(segment.id, str(checkpoint))
        self._end(
            Outcome(
                segment.id,
                Status.DONE,
                reached=segment.until,
                reports=(*self._reports.get(trial.id, ()), point),
                # No `wall_seconds`: the begin of the training is not known here.
                cost={"environment_steps": float(segment.until - segment.start)},
                checkpoint=saved,
                fence=segment.fence,
            )
        )

    def _report(self, trial: Trial, step: int, value: float | Mapping[str, float]) -> None:
        segment = self._open_segment(trial)
        try:
            reached = step_number(step)
        except TypeError as error:
            raise InputError(str(error)) from None
        point = Report(segment.id, reached, _metrics(value, self._needed))
        before = self._reports.setdefault(trial.id, [])
        problem = step_problem(segment.start, segment.until - 1, [*before[-1:], point])
        if problem:
            raise InputError(problem)
        before.append(point)
        self._study.take_report(replace(point, fence=segment.fence))

    def _fail(self, trial: Trial, kind: str, message: str) -> None:
        kinds = [status.value for status in Status if status.failed]
        # Names of a cut run in other libraries and our own log: it is no failure.
        if kind in ("pruned", "stopped"):
            raise InputError(f"{kind!r} is no failure: {PARTS_OF_RUNS}")
        if kind not in kinds:
            raise InputError(f"unknown kind of failure {kind!r}; known: {', '.join(kinds)}")
        segment = self._open_segment(trial)
        self._end(
            Outcome(
                segment.id,
                Status(kind),
                reached=segment.start,
                message=message,
                fence=segment.fence,
            )
        )

    def _end(self, outcome: Outcome) -> None:
        segment = self._open.pop(outcome.segment)
        # One that was lost is trained once more.
        points = self._reports.pop(outcome.segment, [])
        for point in outcome.reports[len(points) :]:
            self._study.take_report(replace(point, fence=segment.fence))
        self._study.record(outcome)
        self._tell_news()

    def _enqueue(self, config: Mapping[str, object]) -> None:
        spec = self._study.spec
        if not isinstance(config, Mapping):
            raise InputError(
                f"expected values by hyperparameter, got {shown(config)}", key="enqueue"
            )
        if not getattr(self._study.optimizer, "takes_enqueued", False):
            name = spec.optimizer.name
            raise InputError(
                f"{name} has no place for other configurations than its own: give them as "
                "`warm_start` when the study begins",
                key="enqueue",
            )
        valid = spec.search_space.config(config)
        self._study.journal.record(ConfigEnqueued(valid))
        self._tell_news()

    def _begin_tests(self) -> list[Segment]:
        # Told values are observed first: they may decide who the incumbent is.
        self._study.driver.settle()
        self._study.driver.end_search()
        # Trials of the search that nobody has asked for.
        self._ready.clear()
        return self._study.tests.advance()

    def _result(self) -> Result:
        self._study.driver.settle()
        if self._study.tests.candidates:
            # Records the scores of the last trials that were told.
            self._study.tests.advance()
        result = self._study.result()
        self._study.listeners.finished(result)
        return result

    def _close(self) -> None:
        self._study.close()
        self._tell_news()

    def _hand_out(self, segment: Segment) -> Trial:
        self._open[segment.id] = segment
        self._study.listeners.begun(segment)
        checkpoint = segment.parent.path if segment.parent else None
        return Trial(
            segment.id,
            segment.config,
            segment.seed,
            segment.role,
            segment.start,
            segment.until,
            checkpoint,
            self._study.spec.task_name(segment.id.seed),
        )

    def _open_segment(self, trial: Trial) -> Segment:
        if not isinstance(trial, Trial):
            raise InputError(
                f"expected a trial that `ask` returned, got {shown(trial)}", key="trial"
            )
        if trial.id not in self._open:
            raise InputError(
                f"trial {trial.id} is not open: it was told already, or is not of this tuner"
            )
        return self._open[trial.id]


def _metrics(value: float | Mapping[str, float], needed: Sequence[str]) -> dict[str, float]:
    values = dict(value) if isinstance(value, Mapping) else {"value": value}
    missing = [name for name in needed if name not in values]
    if missing:
        names = ", ".join(sorted(map(str, values))) or "none"
        raise InputError(f"the study needs metric {missing[0]!r}; told: {names}")
    try:
        return {str(name): metric_value(name, item) for name, item in values.items()}
    except TypeError as error:
        raise InputError(str(error)) from None


class _Caller(Trainer):
    """The trainer of a `Tuner`: the caller's own loop."""

    @property
    def changes(self) -> Mapping[str, Change]:
        return AnyChange()

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        raise InputError("the trials of an embedded tuner are trained by its caller")
