"""The Python front door: `tune` and `Tuner`.

`tune` runs a whole study. `Tuner` embeds the search in a training loop of your own.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl import trainers
from autorl.executors import InProcess
from autorl.optimizers.registry import DEFAULT
from autorl.seeds import SeedPlan
from autorl.space import Space, read_document, unknown_key
from autorl.spec import UNLIMITED, Spec, load_spec, thaw
from autorl.store.folder import holds_study
from autorl.study import Progress, Result, Study
from autorl.trainers.contract import AnyChange, Change, Trainer
from autorl.trainers.families import FUNCTION_PREFIX
from autorl.trainers.function import FunctionTrainer
from autorl.trainers.user_code import NO_PRUNING, metric_value, refuse_pruning
from autorl.types import (
    AutorlError,
    Checkpoint,
    Config,
    InputError,
    Outcome,
    Report,
    Segment,
    Status,
    TrainerSpec,
)


def tune(
    what: str | Path | Mapping[str, object] | Callable[..., object],
    space: Space | Mapping[str, object] | str | None = None,
    *,
    out: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    **options: object,
) -> Result:
    """Run a study to its result.

    The search is on tuning seeds, then the incumbent is tested on held-out seeds.

    Args:
        what: a study file; the name of a search space (`population/ppo`; the trainer has the same
            name); a study as a mapping; or a function
            `f(config, *, seed, until, checkpoint=None, report=None) -> float | dict`, which runs in
            this process, one segment at a time. For several at once, name it in a study: as a
            mapping `{"trainer": "python:module:function", "executor": {"workers": 4}, ...}` it runs
            in worker processes.
        space: for a function: its search space.
        out: folder that keeps the study; it is taken up again if it holds this study already.
            None = in memory.
        progress: called after every step with where the study stands.
        options: `env`, `optimizer`, `runs`, `steps`, `seeds` (a `SeedPlan`), `direction`, `workers`
            (not with a function), `seed`; any other is a key of the study file, dots written as
            double underscores (`fidelity__episodes=8`).

    Raises:
        InputError: something in the study is wrong.
        StudyError: nothing was scored. Where all test runs failed, `Result.test` is None and
            `Result.problem` says so.
    """
    overrides = study_overrides(options)
    load: Callable[[TrainerSpec], Trainer] | None = None
    if callable(what):
        spec, load = _function_study(what, space, overrides)
    elif space is not None:
        raise InputError("only a function needs a space; a study file names its own", key="space")
    elif isinstance(what, str | Path) and not _is_file(what):
        spec = load_spec(space_study(str(what), overrides.pop("environment", None)), overrides)
    else:
        spec = load_spec(what, overrides)
    folder = None if out is None else Path(out)
    study = _study(spec, folder, load)
    try:
        # A function of this process cannot be sent to a worker: a lambda has no name to be found
        # by.
        executor = None if load is None else InProcess(load)
        return study.run(progress, executor)
    finally:
        study.close()


def space_study(name: str, environment: object = None) -> dict[str, Any]:
    """Make the study that a search space's name stands for.

    It has a usual budget. The trainer is the name without a `-suffix` of its last part:
    `sb3/ppo-small` is a space of `sb3/ppo`. What it is trained for is said by
    `TrainerInfo.study_of_space`.
    """
    folder, _, last = name.rpartition("/")
    # `ppo-small` and `ppo-continuous` are spaces of one trainer.
    short = last.split("-")[0]
    trainer = f"{folder}/{short}" if folder else short
    study = trainers.info(trainer).study_of_space(name, trainer, environment)
    return study | ({"environment": environment} if environment is not None else {})


def read_study(
    source: str | Path | Mapping[str, object], overrides: Mapping[str, object] | None = None
) -> Spec:
    """Read the study of a file, a mapping or a space's name.

    `overrides`: values by dotted key, as given to `--set`.

    Raises:
        InputError: the study or a value of it is wrong, or the file is a search space.
    """
    if isinstance(source, Mapping):
        return load_spec(source, overrides)
    if not _is_file(source):
        environment = (overrides or {}).get("environment.id")
        return load_spec(space_study(str(source), environment), overrides)
    content = read_document(source)
    # A likely slip, which would end in a list of every key that a study lacks.
    if isinstance(content.data, Mapping) and "hyperparameters" in content.data:
        raise content.error(
            "is a search space, not a study: name it under `space` in a study file",
            "hyperparameters",
        )
    return load_spec(source, overrides)


@dataclass(frozen=True)
class Trial:
    """One (configuration, seed) to be trained by the caller of `Tuner`.

    Attributes:
        start, until: train from step `start` (where `checkpoint` was saved; 0 from scratch) to step
            `until`.
        checkpoint: what was told as the checkpoint of the trial this one continues; None = from
            scratch.

    A trial cannot be pruned from inside. With `fidelity` and an optimizer with `stop: median` and
    `rungs`, a trial is a part of a run, and a run that is below the median is not continued.
    """

    id: str
    config: Config
    seed: int
    role: str
    start: int
    until: int
    checkpoint: str | None

    # For mypy a name that a trial does not have stays an error.
    if not TYPE_CHECKING:
        __getattr__ = refuse_pruning


class Waiting(AutorlError):  # noqa: N818 - a state of the search, not a mistake
    """`Tuner.ask` has nothing before an open trial is told."""


class Finished(AutorlError):  # noqa: N818 - a state of the search, not a mistake
    """`Tuner.ask` has nothing any more.

    The budget is used up, or the optimizer is done.
    """


class Tuner:
    """Ask for trials, tell their values.

    There is a trial for each proposal and tuning seed. What is asked is a function of the order of
    the calls. Trials may be trained in other threads or processes, but every method is called from
    the thread that made the tuner.

    Args:
        space: a `Space`, an inline definition or the name of a search space.
        optimizer: its name, or a mapping with `name` and options.
        direction: `maximize` or `minimize`.
        seeds: tuning seeds for `ask`, test seeds for `test_trials`.
        path: folder that keeps the study; taken up again if it holds this study. None = in memory.
        fidelity: steps of a full trial; None = trials have no length.
        options: further keys of the study file, e.g. `parallelism=4` to have four proposals open at
            once, `budget={"runs": 60}`, `seed=1`, `evaluation={"aggregate": "iqm"}`.

    Raises:
        InputError: something is wrong with these, or `path` holds another study.
        StudyError: a method is called from another thread.
    """

    def __init__(
        self,
        space: Space | Mapping[str, object] | str,
        optimizer: str | Mapping[str, object] = DEFAULT,
        direction: str = "maximize",
        seeds: SeedPlan | None = None,
        path: str | Path | None = None,
        fidelity: int | None = None,
        **options: object,
    ) -> None:
        keys = {*Spec.model_fields, *inspect.signature(Tuner).parameters} - {"options"}
        of_training = {"trainer", "algorithms", "executor", "storage"}  # the caller trains
        _check_options(options, keys - of_training)
        _check_direction(direction)
        plan = seeds or SeedPlan()
        study = {
            "trainer": "ask-tell",  # for the record: `_Caller` stands in its place
            "space": _definition(space),
            "optimizer": optimizer,
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
        self._study = _study(spec, folder, lambda _: _Caller())
        self._metrics = [objective.metric for objective in spec.objectives()]
        self._ready: deque[Segment] = deque()
        self._open: dict[str, Segment] = {}

    def ask(self) -> Trial:
        """Return the next trial of the search.

        Raises:
            Waiting: an open trial has to be told first.
            Finished: nothing is left to ask for.
        """
        self._study.store.check_thread()
        # Only when all that was decided is handed out: what is decided follows from the order of
        # calls.
        if not self._ready:
            self._ready.extend(self._study.driver.advance())
        if self._ready:
            return self._hand_out(self._ready.popleft())
        if self._open:
            raise Waiting(f"tell one of the {len(self._open)} open trials first")
        if self._study.driver.budget_used >= 1:
            raise Finished("the budget is used up")
        raise Finished("the optimizer is done")

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
        # The first thing: nothing has changed where another thread is refused.
        segment = self._take(trial)
        values = dict(value) if isinstance(value, Mapping) else {"value": value}
        try:
            metrics = {str(name): metric_value(name, item) for name, item in values.items()}
        except TypeError as error:
            # The trial stays open: it can be told again, with a number.
            self._open[trial.id] = segment
            raise InputError(str(error)) from None
        missing = [name for name in self._metrics if name not in metrics]
        if missing:
            self._open[trial.id] = segment
            names = ", ".join(sorted(metrics)) or "none"
            raise InputError(f"the objective needs metric {missing[0]!r}; told: {names}")
        saved = None
        if checkpoint is not None:
            saved = Checkpoint(segment.id, str(checkpoint))
        self._study.record(
            Outcome(
                segment.id,
                Status.DONE,
                reached=segment.until,
                reports=(Report(segment.id, segment.until, metrics),),
                # Without `wall_seconds`: when its training began is not known here.
                cost={"environment_steps": float(segment.until - segment.start)},
                checkpoint=saved,
                fence=segment.fence,
            )
        )

    def fail(self, trial: Trial, kind: str = "crash", message: str = "") -> None:
        """Tell that a trial ended without a value.

        `kind` is crash, timeout, out_of_memory, diverged or lost, which is handed out again.

        Raises:
            InputError: the trial is not open, or there is no such kind of failure.
        """
        kinds = [status.value for status in Status if status.failed]
        # What other libraries and our own log call a run that was cut: no failure.
        if kind in ("pruned", "stopped"):
            raise InputError(NO_PRUNING)
        if kind not in kinds:
            raise InputError(f"unknown kind of failure {kind!r}; known: {', '.join(kinds)}")
        segment = self._take(trial)
        self._study.record(
            Outcome(
                segment.id,
                Status(kind),
                reached=segment.start,
                message=message,
                fence=segment.fence,
            )
        )

    def test_trials(self) -> Iterator[Trial]:
        """End the search, and hand out trials on the test seeds.

        They are of the incumbent. Tell each before the next.

        Raises:
            StudyError: nothing was scored.
        """
        self._study.store.check_thread()
        # What was told is observed first: it may decide who the incumbent is.
        self._study.driver.settle()
        self._study.driver.end_search()
        # Trials of the search that nobody has asked for.
        self._ready.clear()
        while segments := self._study.tests.advance():
            for segment in segments:
                yield self._hand_out(segment)
        self._study.tests.advance()

    def result(self) -> Result:
        """Return the result as it stands.

        It has a test score once `test_trials` were told.

        Raises:
            StudyError: nothing was scored.
        """
        self._study.store.check_thread()
        self._study.driver.settle()
        if self._study.tests.candidates:
            # Records the scores of the last trials that were told.
            self._study.tests.advance()
        return self._study.result()

    def close(self) -> None:
        """Release the folder.

        Nothing is lost: a `Tuner` on the same `path` goes on.
        """
        self._study.close()

    def _hand_out(self, segment: Segment) -> Trial:
        self._open[segment.id] = segment
        checkpoint = segment.parent.path if segment.parent else None
        return Trial(
            segment.id,
            segment.config,
            segment.seed,
            segment.role,
            segment.start,
            segment.until,
            checkpoint,
        )

    def _take(self, trial: Trial) -> Segment:
        self._study.store.check_thread()
        if trial.id not in self._open:
            raise InputError(
                f"trial {trial.id} is not open: it was told already, or is not of this tuner"
            )
        return self._open.pop(trial.id)


class _Caller(Trainer):
    """The trainer of a `Tuner`: the caller's own loop."""

    @property
    def changes(self) -> Mapping[str, Change]:
        return AnyChange()

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        raise InputError("the trials of an embedded tuner are trained by its caller")


def _study(spec: Spec, folder: Path | None, load: Callable[[TrainerSpec], Trainer] | None) -> Study:
    """Open the study in `folder`, or begin it there.

    Without a folder it is in memory.
    """
    if folder is None:
        if spec.storage is not None:
            raise InputError("needs a folder for the database: give `out`", key="storage")
        return Study.in_memory(spec, load)
    if not holds_study(folder):
        return Study.create(spec, folder, load)
    study = Study.open(folder, load)
    file = folder / "study.yaml"
    # As it was stored: test seeds that were added since are no other study.
    if not spec.same_study(thaw(file.read_text(encoding="utf-8"), str(file))):
        study.close()
        raise InputError(
            "holds a study of another file: choose another folder, or `resume` it", file=str(folder)
        )
    return study


def _function_study(
    function: Callable[..., object],
    space: Space | Mapping[str, object] | str | None,
    overrides: dict[str, object],
) -> tuple[Spec, Callable[[TrainerSpec], Trainer]]:
    if space is None:
        raise InputError("a function needs a search space: tune(f, space)", key="space")
    # A `partial`, or an object that can be called, has no name of its own.
    function_name = getattr(function, "__qualname__", type(function).__name__)
    study = {
        "trainer": f"{FUNCTION_PREFIX}{function.__module__}:{function_name}",
        "space": _definition(space),
        # The budget of a space alone, as on the command line.
        "budget": {"runs": 96},
        "executor": {"name": "in_process"},
    }
    trainer = FunctionTrainer(function, {})
    spec = load_spec(study, overrides)
    executor = spec.executor
    if executor.name not in (None, "in_process") or (executor.workers or 1) > 1:
        raise InputError(
            "a function given to `tune` runs in this process, one segment at a time: "
            "leave this out, or give a study "
            "with `trainer: python:module:function`, which runs in worker processes",
            key="executor.workers",
        )
    return spec, lambda _: trainer


_SHORT = {
    "env": "environment",
    "runs": "budget.runs",
    "steps": "fidelity.steps",
    "direction": "objective.direction",
    "workers": "executor.workers",
}


def study_overrides(options: Mapping[str, object]) -> dict[str, Any]:
    """Read arguments of `tune` as values by dotted key.

    Raises:
        InputError: one is neither an option of `tune` nor a key of the study file.
    """
    _check_options(options, {*Spec.model_fields, *_SHORT})
    _check_direction(options.get("direction"))
    overrides: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, SeedPlan):
            value = {"tuning": list(value.tuning), "test": list(value.test)}
        overrides[_SHORT.get(name, name.replace("__", "."))] = value
    return overrides


def _check_options(options: Mapping[str, object], allowed: Collection[str]) -> None:
    """Raise `InputError` for an argument whose first part is not allowed."""
    for name in options:
        # `fidelity__episodes`: Python has no keyword with a dot.
        if name.replace("__", ".").partition(".")[0] not in allowed:
            raise InputError(unknown_key(name, allowed), key=name)


def _check_direction(direction: object) -> None:
    if isinstance(direction, list | tuple):
        example = (
            'objective=[{"metric": "a", "direction": "maximize"}, '
            '{"metric": "b", "direction": "minimize"}]'
        )
        raise InputError(
            f"one direction is expected; several objectives are {example}", key="direction"
        )


def _definition(space: Space | Mapping[str, object] | str) -> str | dict[str, Any]:
    if isinstance(space, Space):
        return space.to_dict()
    return space if isinstance(space, str) else dict(space)


def _is_file(what: str | Path) -> bool:
    return Path(what).suffix in (".yaml", ".yml", ".json") or Path(what).is_file()
