"""Runs a whole study of a file, a space or a function.

A function runs here, in threads, or in processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from autorl import executors
from autorl.core.types import Executor, InputError
from autorl.executors.function_processes import FunctionProcesses, by_value, loader
from autorl.executors.in_process import InProcess, LocalThreads
from autorl.executors.worker import Load
from autorl.statistics.evaluation import PEAK_MEMORY
from autorl.store.events import CheckpointsCollected, StudyEvent
from autorl.study import Progress, Result, Study
from autorl.study.callbacks import CallbackEntry
from autorl.study.folder.opening import create_or_open
from autorl.study.setup import executor_limits, make_named_executor, segments_at_once
from autorl.study.spec import Spec, load_spec
from autorl.study.spec.arguments import space_definition, study_overrides
from autorl.study.spec.study_file import read_study
from autorl.trainers.families import FUNCTION_PREFIX
from autorl.trainers.function import FunctionTrainer
from autorl.trainers.trial_function import TrialTrainer, takes_trial, waiting_call


def tune(
    what: str | Path | Mapping[str, object] | Callable[..., object],
    space: object = None,
    *,
    out: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    callbacks: Sequence[CallbackEntry] = (),
    **options: object,
) -> Result:
    """Run a study to its result.

    The search is on tuning seeds, then the incumbent is tested on held-out seeds.

    Args:
        what: a study file; the name of a search space (`population/ppo`; the trainer has the same
            name); a study as a mapping; or a function. One whose first parameter is called `trial`
            is given a `LiveTrial`, which it reports to and asks whether to stop; any other is
            `f(config, *, seed, until, checkpoint=None, report=None) -> float | dict`.
        space: for a function: its search space, a `Space`, a definition, a name, a ConfigSpace, or
            distributions of Optuna by name.
        out: folder that keeps the study; it is taken up again if it holds this study already: call
            `tune` once more, with the function. None = in memory.
        progress: called after every step with where the study stands.
        callbacks: are told what happens; objects, or entries as in a study file.
        options: `env`, `optimizer`, `runs`, `steps`, `seeds` (a `SeedPlan`), `direction`, `stop`,
            `rungs`, `workers`, `executor`, `seed`; any other is a key of the study file, dots
            written as double underscores (`fidelity__episodes=8`). A function runs in this process
            one call at a time; with `workers=n`, n at once: in threads, or, with
            `executor="processes"`, in processes, where a function has an interpreter and global
            random numbers of its own. The result is the same.

    Raises:
        InputError: something in the study is wrong.
        StudyError: nothing was scored. If all test runs failed, `Result.test` is None and
            `Result.problem` says so.
    """
    overrides = study_overrides(options)
    folder = None if out is None else Path(out)
    if callable(what):
        spec = _function_study(what, space, overrides)
        with (
            closing(FunctionRuns(what, spec)) as runs,
            closing(open_study(runs.spec, folder, runs.load)) as study,
        ):
            if callbacks:
                study.listen(callbacks)
            runs.follow(study)
            return study.run(progress, runs.executor())
    if space is not None:
        raise InputError("only a function needs a space; a study file names its own", key="space")
    with closing(open_study(read_study(what, overrides), folder, None)) as study:
        if callbacks:
            study.listen(callbacks)
        return study.run(progress)


def open_study(spec: Spec, folder: Path | None, load: Load | None) -> Study:
    """Open the study in `folder`, or begin it there.

    If there is no folder, it is in memory.
    """
    if folder is not None:
        return create_or_open(spec, folder, load)
    if spec.storage is not None:
        raise InputError("needs a folder for the database: give `out`", key="storage")
    return Study.in_memory(spec, load)


def _function_study(
    function: Callable[..., object], space: object, overrides: dict[str, object]
) -> Spec:
    if space is None:
        raise InputError("a function needs a search space: tune(f, space)", key="space")
    # A `partial`, or an object that can be called, has no name of its own.
    function_name = getattr(function, "__qualname__", type(function).__name__)
    study = {
        "trainer": f"{FUNCTION_PREFIX}{function.__module__}:{function_name}",
        "space": space_definition(space),
        # The budget of a space alone, as on the command line.
        "budget": {"runs": 96},
    }
    return load_spec(study, overrides)


_EXECUTORS = ("in_process", "threads", "processes")


class FunctionRuns:
    """Runs the segments of a function of the caller's.

    Args:
        function: `f(trial)` or `f(config, *, seed, ...)`.
        spec: the study; its `executor` says where the function runs.

    Attributes:
        spec: the study, with the executor that was chosen.
        load: gives the trainer of the function, in this process.

    Raises:
        InputError: the function has a wrong signature, cannot run there, or cannot be sent there.
    """

    def __init__(self, function: Callable[..., object], spec: Spec) -> None:
        name = _executor_of(spec)
        executor = spec.executor.model_copy(update={"name": name})
        self.spec = spec.model_copy(update={"executor": executor})
        self._takes_trial = takes_trial(function)
        self._check(name)
        self._by_value: bytes | None = None
        self._to_close = ExitStack()
        self._trainer: FunctionTrainer
        if self._takes_trial:
            processes = FunctionProcesses(function) if name == "processes" else None
            if processes is not None:
                self._to_close.callback(processes.close)
            self._trainer = TrialTrainer(function, {}, processes)
            self._to_close.callback(self._trainer.close)
        else:
            self._trainer = FunctionTrainer(function, {})
            if name == "processes":
                self._by_value = by_value(function)
        self.load: Load = lambda _: self._trainer

    def executor(self) -> Executor:
        """Make what runs the segments of the study."""
        executor: Executor
        if self._by_value is not None:
            load = loader(self._by_value, {})
            preload = [loader.__module__]
            executor = make_named_executor("processes", self.spec, load, preload=preload)
        elif self.spec.executor.name == "in_process":
            executor = InProcess(self.load)
        else:
            executor = LocalThreads(self.load, segments_at_once(self.spec, "threads"))
        # A study that is over has returned before it has closed its executor.
        self._to_close.callback(executor.close)
        return executor

    def follow(self, study: Study) -> None:
        """Let go of every call that nothing goes on from.

        The study's sessions record the function's file.
        """
        study.function = self._trainer.function

        def take(event: StudyEvent) -> None:
            trainer = self._trainer
            if isinstance(event, CheckpointsCollected) and isinstance(trainer, TrialTrainer):
                names = [waiting_call(segment) for segment in event.segments]
                study.store.when_durable(lambda: trainer.release(names))

        study.journal.subscribe(take)

    def close(self) -> None:
        """End every call, every process and every thread of the function."""
        self._to_close.close()

    def _check(self, name: str) -> None:
        by_executor = name == "processes" and not self._takes_trial
        limited = executor_limits(self.spec) != executors.Limits()
        measured = PEAK_MEMORY in self.spec.stated_metrics
        if not by_executor and (limited or measured or self.spec.needs_gpu):
            key = "limits" if limited else PEAK_MEMORY if measured else "resources"
            raise InputError(
                "only `processes` with a function `f(config, seed=...)` enforces limits, measures "
                "memory and assigns devices: leave this out, or give such a function",
                key=key,
            )


def _executor_of(spec: Spec) -> str:
    """Name where a function runs.

    That is where the study says, else in threads if there are several workers.
    """
    name = spec.executor.name
    if name is None:
        return "threads" if (spec.executor.workers or 1) > 1 else "in_process"
    if name not in _EXECUTORS:
        raise InputError(
            f"a function given to `tune` runs in {', '.join(_EXECUTORS)}, not in {name!r}: for "
            "other machines name it in a study, as `trainer: python:module:function`",
            key="executor.name",
        )
    return name
