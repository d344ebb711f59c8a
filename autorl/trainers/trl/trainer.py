"""Trainers for TRL: online (`trl/rloo`, `trl/grpo`), on preferences (`trl/dpo`, `trl/kto`, `trl/orpo`), and rewards.

One segment is one TRL trainer, rebuilt from the reference policy's own path with the segment's configuration and then
given the parent's weights, optimizer, scheduler and streams: what a continued run may change it takes from its new
configuration, and what a checkpoint would bring along (learning rate, weight decay, moments) is written over and read
back. A fidelity step is an optimizer step.

Reference: von Werra et al. (2020), TRL: Transformer Reinforcement Learning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from autorl.rlhf.models import load_tokenizer
from autorl.rlhf.task import Built
from autorl.seeds import integer_seed
from autorl.store.checkpoints import scratch
from autorl.trainers._shared import Clock, check_start
from autorl.trainers.contract import Change
from autorl.trainers.trl import checkpoint
from autorl.trainers.trl.methods import Method, find
from autorl.trainers.trl.settings import Settings, check_fixed, check_hyperparameters, check_values
from autorl.trainers.trl.shell import RLHFTrainer, build_task, load_parent, peak_memory_mb
from autorl.types import Checkpoint, Config, Outcome, Report, Segment, Status, TrainerSpec


class TRLTrainer(RLHFTrainer):
    """Runs segments of one TRL method on an RLHF task.

    A further option: `data` (what a method this package does not know is trained on; see `methods.Data`).
    """

    def __init__(self, spec: TrainerSpec) -> None:
        super().__init__(spec)
        self.method: Method = find(self.name, spec.kwargs.get("data"))

    @property
    def changes(self) -> Mapping[str, Change]:
        return self.method.changes

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.method.kinds

    @property
    def scores(self) -> bool:
        return self.method.online

    def check_names(self, names: Collection[str]) -> None:
        check_hyperparameters(self.method, names, cuda=self.cuda)

    def check_fixed(self, fixed: Mapping[str, Any], free: Collection[str]) -> None:
        check_fixed(self.method, fixed, free, cuda=self.cuda)

    def check_configuration(self, config: Config) -> None:
        check_values(self.method, self.defaults, config, cuda=self.cuda)

    @property
    def policies(self) -> bool:
        return self.method.data != "ranking"

    def align(self, config: Config, step: int) -> int:
        """The first step >= `step` at which a batch of completions is used up."""
        stride = Settings(self.method, self.defaults, config).stride
        return -(-step // stride) * stride

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers._streams import preserved

        clock = Clock()
        check_start(segment)
        built = build_task(segment.environment)
        settings = Settings(self.method, self.defaults, segment.config)
        with preserved(), warnings.catch_warnings(), scratch(segment) as folder:
            warnings.simplefilter(
                "ignore", FutureWarning
            )  # TRL's own use of names transformers is renaming
            return _Run(self, segment, settings, built).train(clock, str(folder), report)


class _Run:
    """One segment in progress."""

    def __init__(
        self, trainer: TRLTrainer, segment: Segment, settings: Settings, built: Built
    ) -> None:
        from autorl.trainers.trl import live
        from autorl.trainers.trl.watch import Watch

        self.trainer, self.segment, self.settings, self.built = trainer, segment, settings, built
        reference = live.load_model(built.reference)
        self.reference_hash = checkpoint.weights_hash(reference)
        self.state = load_parent(
            segment, trainer.name, self.reference_hash, settings.values, trainer.changes
        )
        history = self.state["history"] if self.state and segment.fork is None else ()
        guard = trainer.guard(built, settings.values, history)
        self.watch = Watch(segment, built, reference, load_tokenizer(built.reference), guard)

    def train(self, clock: Clock, folder: str, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers.trl import live
        from autorl.trainers.trl.watch import is_finite

        segment = self.segment
        keys = () if segment.fork is None else (segment.fork,)
        seed = integer_seed(segment.seed, "algorithm", *keys)
        callback = live.Callback(segment, self.settings, self.watch, self._align, report)
        horizon = self._align(segment.horizon)
        arguments = self.settings.arguments(
            seed, horizon, folder, self.built.max_completion, self.trainer.cuda
        )
        running = live.build(self.settings, self.built, callback, arguments, seed)
        if self.state is not None:
            running.reward.load(self.state)
        try:
            running.trainer.train(
                resume_from_checkpoint=segment.parent.path if segment.parent else None
            )
        except RuntimeError:
            if is_finite(running.policy):
                raise
        if not self.watch.problem and not is_finite(running.policy):
            self.watch.problem = "parameters are not finite"
        return self._outcome(clock, running)

    def _outcome(self, clock: Clock, running: Any) -> Outcome:
        segment, watch = self.segment, self.watch
        status = (
            Status.DIVERGED if watch.problem else Status.STOPPED if watch.stopped else Status.DONE
        )
        return Outcome(
            segment=segment.id,
            status=status,
            reached=running.step,
            reports=tuple(watch.reports),
            cost={**clock.cost(running.step - segment.start), "peak_memory_mb": peak_memory_mb()},
            checkpoint=self._save(running) if segment.save and not watch.problem else None,
            applied=running.callback.applied,
            notes=(*self.built.notes, *((watch.guard.note,) if watch.stopped else ())),
            message=f"{watch.problem} at step {running.step}" if watch.problem else "",
        )

    def _save(self, running: Any) -> Checkpoint:
        state = {
            "method": self.trainer.name,
            "values": self.settings.values,
            "step": running.step,
            "reference": self.reference_hash,
            "history": self.watch.guard.history,
            "tokens": running.tokens,
            **running.reward.state(),
        }
        return checkpoint.save(self.segment, running.saved(), state)

    def _align(self, step: int) -> int:
        return -(-step // self.settings.stride) * self.settings.stride


def make(spec: TrainerSpec) -> RLHFTrainer:
    """The trainer `trl/<method>`; PPO is the package's own."""
    if spec.name == "trl/ppo":
        from autorl.trainers.trl.ppo import PPOTrainer

        return PPOTrainer(spec)
    return TRLTrainer(spec)
