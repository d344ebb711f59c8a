"""Runs a function given to `autorl.tune`: here, in threads, in processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from autorl import executors
from autorl.core.types import Executor, InputError
from autorl.executors.function_processes import FunctionProcesses, by_value, loader
from autorl.executors.in_process import InProcess, LocalThreads
from autorl.executors.worker import Load
from autorl.statistics.evaluation import PEAK_MEMORY
from autorl.store.events import CheckpointsCollected, StudyEvent
from autorl.study.setup import executor_limits, make_named_executor, segments_at_once
from autorl.study.spec import Spec
from autorl.study.study import Study
from autorl.trainers.function import FunctionTrainer
from autorl.trainers.trial_function import TrialTrainer, takes_trial, waiting_call

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
        workers = self.spec.executor.workers or 1
        if name == "in_process" and workers > 1:
            raise InputError(
                f"`in_process` runs one at a time, not {workers}: choose `threads` or `processes`",
                key="executor",
            )
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
