"""Trainers for TRL: online (`trl/rloo`, `trl/grpo`), on preferences (`trl/dpo`, `trl/kto`, `trl/orpo`), and rewards.

One segment is one TRL trainer, rebuilt from the reference policy's own path with the segment's configuration and then
given the parent's weights, optimizer, scheduler and streams: what a continued run may change it takes from its new
configuration, and what a checkpoint would bring along (learning rate, weight decay, moments) is written over and read
back. A fidelity step is an optimizer step.

Reference: von Werra et al. (2020), TRL: Transformer Reinforcement Learning.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from autorl.rlhf import task as tasks
from autorl.seeds import integer_seed
from autorl.trainers._shared import Change, Clock, check_continuation, check_start
from autorl.trainers.trl.guard import PATIENCE, Guard
from autorl.trainers.trl.methods import Method, find
from autorl.trainers.trl.settings import OPTIONS, Settings, check_hyperparameters
from autorl.types import Checkpoint, Config, EnvironmentSpec, InputError, Outcome, Report, Segment, Status, TrainerSpec

_NEVER = ("loss", "train_loss", "reward")


class TRLTrainer:
    """Runs segments of one TRL method on an RLHF task.

    Options (`trainer.kwargs`): any hyperparameter (a default under the configuration), `guard` (stop a run once its
    training signal rose and its held-out score fell this many evaluations in a row; default 3, 0 = never), `device`
    (`cpu`, the default, or `auto`), `data` (what an unknown experimental method is trained on).
    """

    def __init__(self, spec: TrainerSpec) -> None:
        self.kwargs = spec.kwargs
        self.method: Method = find(spec.name.partition("/")[2], spec.kwargs.get("data"))
        self.patience = spec.kwargs.get("guard", PATIENCE)
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 0:
            raise InputError(f"expected a whole number, got {self.patience!r}", key="trainer.kwargs.guard")
        if spec.kwargs.get("device", "cpu") not in ("cpu", "auto"):
            raise InputError(f"expected cpu or auto, got {spec.kwargs['device']!r}", key="trainer.kwargs.device")

    @property
    def changes(self) -> Mapping[str, Change]:
        return self.method.changes

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.trl.preload",)

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """The task and its options must exist, and every name be one TRL's configuration has."""
        found = _task(environment)
        options = {name: value for name, value in environment.kwargs.items() if name != "instance"}
        tasks.resolve_options(found.options, options, found.name)
        own = {name for name in self.kwargs if name not in OPTIONS}
        check_hyperparameters(self.method, {*hyperparameters, *own})

    def check_objective(self, environment: EnvironmentSpec, metrics: Sequence[str]) -> None:
        """Raise `InputError` if a study would select by what it trains on: the signal itself, or a loss."""
        found = _task(environment)
        for metric in metrics:
            if metric == found.training or metric in _NEVER:
                raise InputError(
                    f"{metric!r} is what {found.name} trains on: selecting by it finds the configuration that exploits "
                    f"it hardest. Select by {found.selection!r}, or say `allow_proxy_selection: true`",
                    key="objective",
                )

    def align(self, config: Config, step: int) -> int:
        """The first step >= `step` at which a batch of completions is used up."""
        stride = Settings(self.method, self.kwargs, config).stride
        return -(-step // stride) * stride

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers.sb3.streams import preserved

        clock = Clock()
        check_start(segment)
        built = tasks.build(_task(segment.environment).name, segment.environment.kwargs)
        settings = Settings(self.method, self.kwargs, segment.config)
        with preserved(), tempfile.TemporaryDirectory(prefix="autorl-trl-") as folder:
            return _Run(self, segment, settings, built).train(clock, folder, report)


class _Run:
    """One segment in progress."""

    def __init__(self, trainer: TRLTrainer, segment: Segment, settings: Settings, built: tasks.Built) -> None:
        from autorl.trainers.trl import checkpoint, live
        from autorl.trainers.trl.watch import Watch

        self.trainer, self.segment, self.settings, self.built = trainer, segment, settings, built
        reference = live.load_model(built.reference)
        self.reference_hash = checkpoint.weights_hash(reference)
        self.state = self._load_parent()
        history = self.state["history"] if self.state and segment.fork is None else ()
        guard = Guard(trainer.patience, built.training, built.selection, history)
        self.watch = Watch(segment, built, reference, live.load_tokenizer(built.reference), guard)

    def train(self, clock: Clock, folder: str, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers.trl import live

        segment = self.segment
        keys = () if segment.fork is None else (segment.fork,)
        seed = integer_seed(segment.seed, "algorithm", *keys)
        callback = live.Callback(segment, self.settings, self.watch, self._align, report)
        arguments = self.settings.arguments(
            seed,
            self._align(segment.horizon),
            folder,
            self.built.max_completion,
            cuda=self.trainer.kwargs.get("device", "cpu") == "auto",
        )
        running = live.build(self.settings, self.built, callback, arguments, seed)
        if self.state is not None:
            running.reward.tokens = self.state["tokens"]
            running.reward.load(self.state["signal"])
        parent = segment.parent.path if segment.parent else None
        try:
            running.trainer.train(resume_from_checkpoint=parent)
        except RuntimeError:
            from autorl.trainers.trl.watch import is_finite

            if is_finite(running.policy):
                raise
            self.watch.problem = "parameters are not finite"
        return self._outcome(clock, running)

    def _outcome(self, clock: Clock, running: Any) -> Outcome:
        from autorl.trainers.trl.watch import is_finite

        segment, watch = self.segment, self.watch
        if not watch.problem and not is_finite(running.policy):
            watch.problem = "parameters are not finite"
        status = Status.DIVERGED if watch.problem else Status.STOPPED if watch.stopped else Status.DONE
        cost = {**clock.cost(running.step - segment.start), "peak_memory_mb": _peak_memory_mb()}
        return Outcome(
            segment=segment.id,
            status=status,
            reached=running.step,
            reports=tuple(watch.reports),
            cost=cost,
            checkpoint=self._save(running) if segment.save and not watch.problem else None,
            applied=running.callback.applied,
            notes=(watch.guard.note,) if watch.stopped else (),
            message=f"{watch.problem} at step {running.step}" if watch.problem else "",
        )

    def _save(self, running: Any) -> Checkpoint:
        from autorl.trainers.trl import checkpoint

        state = {
            "method": self.settings.method.name,
            "values": self.settings.values,
            "step": running.step,
            "reference": self.reference_hash,
            "history": self.watch.guard.history,
            "tokens": running.tokens,
            "signal": running.reward.state(),
        }
        return checkpoint.save(self.segment, running.saved(), state)

    def _load_parent(self) -> dict[str, Any] | None:
        from autorl.trainers.trl import checkpoint

        segment, method = self.segment, self.settings.method
        if segment.parent is None:
            return None
        state = checkpoint.load_state(segment.parent, method.name, self.reference_hash)
        check_continuation(state["values"], Config(self.settings.values), method.changes)
        if state["step"] != segment.start:
            raise InputError(f"checkpoint is at step {state['step']}, segment {segment.id!r} starts at {segment.start}")
        return state

    def _align(self, step: int) -> int:
        return -(-step // self.settings.stride) * self.settings.stride


def make(spec: TrainerSpec) -> TRLTrainer:
    """The trainer `trl/<method>`."""
    return TRLTrainer(spec)


def _task(environment: EnvironmentSpec) -> tasks.Task:
    if environment.id is None:
        raise InputError(f"names no task; there are {', '.join(tasks.tasks())}", key="environment")
    return tasks.task(environment.id)


def _peak_memory_mb() -> float:
    """Most resident memory this process has had, in MiB; segments have a process each."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
