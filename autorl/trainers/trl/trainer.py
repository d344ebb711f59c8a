"""Trainers on TRL: online (`trl/rloo`, `trl/grpo`), on preferences (`trl/dpo`), and of rewards.

One segment is one TRL trainer, rebuilt from the reference policy's own path with the segment's
configuration and then given the parent's weights, optimizer, scheduler and streams: what a
continued run may change it takes from its new configuration, and what a checkpoint would bring
along (learning rate, weight decay, moments) is written over and read back. A fidelity step is an
optimizer step.

Reference: von Werra et al. (2020), TRL: Transformer Reinforcement Learning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from autorl.rlhf.contract import Built
from autorl.rlhf.models import load_tokenizer
from autorl.seeds import integer_seed
from autorl.store.checkpoints import scratch
from autorl.trainers._shared import Clock, check_start
from autorl.trainers.contract import Change
from autorl.trainers.rlhf import checkpoint as checkpoints
from autorl.trainers.rlhf.trainer import RLHFTrainer, build_task, load_parent, peak_memory_mb
from autorl.trainers.trl.methods import Method, find
from autorl.trainers.trl.settings import Settings, check_fixed, check_hyperparameters, check_values
from autorl.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    Outcome,
    Report,
    Segment,
    TrainerSpec,
)

if TYPE_CHECKING:
    from autorl.trainers.trl.segment_trainer import SegmentTrainer


class TRLTrainer(RLHFTrainer):
    """Runs segments of one TRL method on an RLHF task.

    A further option: `data` (what a method this package does not know is trained on; see
    `methods.Data`).
    """

    def __init__(self, spec: TrainerSpec) -> None:
        super().__init__(spec)
        self.method: Method = find(self.name, spec.kwargs.get("data"))

    @property
    def preload(self) -> tuple[str, ...]:
        return ("autorl.trainers.trl.preload",)

    @property
    def changes(self) -> Mapping[str, Change]:
        return self.method.changes

    @property
    def learns_from(self) -> tuple[str, ...]:
        return self.method.learns_from

    @property
    def scores(self) -> bool:
        return self.method.online

    def check_names(self, names: Collection[str]) -> None:
        check_hyperparameters(self.method, names, cuda=self.cuda)

    def check_fixed(self, fixed: Mapping[str, object], searched: Collection[str]) -> None:
        check_fixed(self.method, fixed, searched, cuda=self.cuda)

    def check_configuration(self, config: Config) -> None:
        check_values(self.method, self.defaults, config, cuda=self.cuda)

    @property
    def policies(self) -> bool:
        return self.method.data != "ranking"

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return where the batch of completions of `step` is used up.

        It is the first such step >= `step`.
        """
        stride = Settings(self.method, self.defaults, config).stride
        return -(-step // stride) * stride

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        from autorl.trainers._streams import preserved

        clock = Clock()
        check_start(segment)
        built = build_task(segment.environment)
        settings = Settings(self.method, self.defaults, segment.config)
        with preserved(), warnings.catch_warnings(), scratch(segment) as folder:
            # TRL's own use of names transformers is renaming
            warnings.simplefilter("ignore", FutureWarning)
            return _Run(self, segment, settings, built).train(clock, str(folder), report)


class _Run:
    """One segment in progress."""

    def __init__(
        self, trainer: TRLTrainer, segment: Segment, settings: Settings, built: Built
    ) -> None:
        from autorl.trainers.rlhf.evaluations import Evaluations
        from autorl.trainers.trl.segment_trainer import load_model

        self.trainer = trainer
        self.segment = segment
        self.settings = settings
        self.built = built
        reference = load_model(built.reference)
        self.reference_hash = checkpoints.weights_hash(reference)
        self.state = load_parent(
            segment, trainer.name, self.reference_hash, settings.values, trainer.changes
        )
        # of its own run only: evaluations of the agent it was copied from do not count
        history = self.state["history"] if self.state and segment.fork is None else ()
        guard = trainer.guard(built, settings.reward, history)
        tokenizer = load_tokenizer(built.reference)
        self.evaluations = Evaluations(segment, built, reference, tokenizer, guard)

    def train(self, clock: Clock, folder: str, report: Callable[[Report], None]) -> Outcome:
        """Train to the end of the segment, and evaluate on the way.

        Args:
            clock: measures what it costs.
            folder: that TRL may write to.
            report: receives evaluations.
        """
        from autorl.trainers.rlhf.evaluations import is_finite
        from autorl.trainers.trl.segment_trainer import SegmentCallback, build

        segment = self.segment
        # a copy draws otherwise than the run it was copied from
        keys = () if segment.fork is None else (segment.fork,)
        seed = integer_seed(segment.seed, "algorithm", *keys)
        callback = SegmentCallback(segment, self.settings, self.evaluations, self._align, report)
        horizon = self._align(segment.horizon)
        arguments = self.settings.arguments(
            seed, horizon, folder, self.built.max_completion, self.trainer.cuda
        )
        # from the reference's path: TRL would take a checkpoint's for that of the KL reference
        running = build(self.settings, self.built, callback, arguments, seed)
        if self.state is not None:
            running.reward.load(self.state)
        parent = segment.parent.path if segment.parent else None
        try:
            running.trainer.train(resume_from_checkpoint=parent)
        # torch raises where it samples from NaN: with weights that are finite it is another failure
        except RuntimeError:
            if is_finite(running.policy):
                raise
        if not self.evaluations.problem and not is_finite(running.policy):
            self.evaluations.problem = "parameters are not finite"
        return self._outcome(clock, running)

    def _outcome(self, clock: Clock, running: SegmentTrainer) -> Outcome:
        """Return how the segment ended, its checkpoint saved."""
        segment = self.segment
        evaluations = self.evaluations
        cost = clock.cost(running.step - segment.start)
        cost["peak_memory_mb"] = peak_memory_mb()
        checkpoint: Checkpoint | None = None
        if segment.save and not evaluations.problem:
            checkpoint = self._save(running)
        return Outcome(
            segment=segment.id,
            status=evaluations.status,
            reached=running.step,
            reports=tuple(evaluations.reports),
            cost=cost,
            checkpoint=checkpoint,
            applied=running.callback.applied,
            notes=evaluations.notes,
            message=evaluations.message(running.step),
        )

    def _save(self, running: SegmentTrainer) -> Checkpoint:
        """Write the checkpoint of the segment."""
        state = {
            "method": self.trainer.name,
            "values": self.settings.values,
            "step": running.step,
            "reference": self.reference_hash,
            "history": self.evaluations.guard.history,
            "tokens": running.tokens,
            **running.reward.state(),
        }
        return checkpoints.save(self.segment, running.saved(), state)

    def _align(self, step: int) -> int:
        return -(-step // self.settings.stride) * self.settings.stride


def make(spec: TrainerSpec) -> TRLTrainer:
    """Build the trainer `trl/<method>`."""
    return TRLTrainer(spec)
