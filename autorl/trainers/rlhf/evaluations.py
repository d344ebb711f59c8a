"""The evaluations of one segment, and how it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import Checkpoint, InputError, Outcome, Report, Segment, Status
from autorl.store.checkpoints import MODEL_ONLY, reading
from autorl.trainers._streams import preserved
from autorl.trainers.language.merging import all_merged
from autorl.trainers.language.models import (
    load_policy,
    load_reward_model,
    load_tokenizer,
    weights_hash,
)
from autorl.trainers.language.passes import bounded, reference_of
from autorl.trainers.language.policy_metrics import (
    measure,
    pair_likelihoods,
    pair_measures,
    reward_measures,
)
from autorl.trainers.language.rewards.options import RewardOptions
from autorl.trainers.language.sampling import log_likelihoods
from autorl.trainers.rlhf.counted_reward import CountedReward
from autorl.trainers.rlhf.guards import Collapse
from autorl.trainers.rlhf.trainer import RLHFTrainer, build_task
from autorl.trainers.saved_state import STATE, load_parent, read, save
from autorl.trainers.shared import Course, after_update

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LanguageRun(Course):
    """One segment of a language model in progress, but for training.

    Attributes:
        built: the task.
        reward: the training signal, which counts.
        state: the parent's checkpoint, None from scratch.
        training: metrics of the latest update.
        policy: the model that is trained.
        stopped: why a guard has stopped it, empty while none has.

    Args:
        trainer: of the segment.
        segment: to be trained.
        report: receives evaluations.
        name: of the trainer, in checkpoints.
        values: every hyperparameter.
        earlier: folder of the policy that an earlier stage trained, None: that of the task.
    """

    def __init__(
        self,
        trainer: RLHFTrainer,
        segment: Segment,
        report: Callable[[Report], None],
        name: str,
        values: Mapping[str, Any],
        earlier: Path | None = None,
    ) -> None:
        super().__init__(segment, report)
        self.trainer = trainer
        self.name = name
        self.values = values
        self.built = build_task(segment.environment)
        self.reference: Any = load_policy(self.built.reference)
        self.tokenizer = load_tokenizer(self.built.reference)
        self.earlier = earlier
        # it is trained against what it begins with, and judged against the task's
        if earlier is not None:
            self.built = replace(self.built, reference=earlier)
        of_training = self.reference if earlier is None else load_policy(earlier)
        self.reference_hash = weights_hash(of_training)
        self.state = load_parent(segment, name, values, trainer.changes)
        options = RewardOptions.read(values)
        signal = options.signal(self.built) if trainer.scores else _unscored
        self.reward = CountedReward(self.built.training, signal, grouped=trainer.grouped)
        self.training: dict[str, float] = {}
        history: Sequence[Sequence[float]] = ()
        counts: Mapping[str, int] = {}
        if self.state is not None:
            if self.state["reference"] != self.reference_hash:
                raise InputError(
                    "the checkpoint was trained against another reference policy "
                    f"({self.state['reference']})"
                )
            self.reward.load(self.state)
            self.training = self.state["training"]
            # of its own run only: evaluations of the agent it was copied from do not count
            if segment.fork is None:
                history = self.state["history"]
                counts = self.state["collapse"]
        elif earlier is not None:
            self.reward.tokens = read(earlier / STATE)["tokens"]
        self.guard = trainer.guard(self.built, options, history)
        self.collapse = Collapse(trainer.collapse_bounds, counts)
        self.stopped = ""

    @property
    def policy(self) -> Any:
        raise NotImplementedError

    def average(self) -> None:
        """Average the policy with the second of its segment, if any.

        Policies are merged by their differences to the one they began with, reward models, which
        began with a head of chance, by their weights.
        """
        segment = self.segment
        if segment.second is None:
            return
        place = Path(segment.second.path)
        weights = {name: weight.cpu() for name, weight in self.policy.state_dict().items()}
        with preserved(), reading(place):
            if self.trainer.policies:
                start = load_policy(self.built.reference).state_dict()
                second = load_policy(place).state_dict()
            else:
                start = {name: torch.zeros_like(weight) for name, weight in weights.items()}
                second = load_reward_model(place).state_dict()
        self.policy.load_state_dict(all_merged(start, [second, weights], method=segment.mean))

    def align(self, step: int) -> int:
        """Return the step training reaches for a nominal one."""
        return self.trainer.align(self.segment.config, step)

    def updated(self, measured: Mapping[str, float], step: int | None = None) -> None:
        """Take on what an update measured, and note it at a step."""
        self.training = after_update(self.training, measured)
        if step is not None and step not in self.segment.evaluate_at:
            self.updates.append(Report(self.segment.id, step, self.training))

    def evaluate(self, reached: int) -> bool:
        """Measure the policy at each nominal step reached, and report it.

        Returns:
            Whether training is to stop.
        """
        for step in self.due(reached, self.align):
            policy = self.policy
            # before sampling, which raises in torch for NaN
            if not is_finite(policy):
                self.problem = "parameters are not finite"
                continue
            # evaluations must not change training: a run is the same wherever it is evaluated
            with preserved(), bounded(self.trainer.memory):
                metrics = self._measures(policy, step)
            metrics |= {"tokens": float(self.reward.tokens), **self.training}
            metrics["parameters"] = float(policy.num_parameters())
            if self.trainer.scores:
                metrics["reward_zero_std"] = self.reward.zero_std
                metrics["completions"] = float(self.reward.completions)
            if self.add(step, metrics):
                for guard in (self.guard, self.collapse):
                    self.stopped = guard.note if guard.tripped(metrics) else self.stopped
        return bool(self.stopped or self.problem)

    def ended(
        self, step: int, applied: Mapping[str, Any], save: Callable[[], Checkpoint | None]
    ) -> Outcome:
        """Return how the segment ended, its checkpoint saved."""
        return self.outcome(
            step,
            applied,
            save,
            status=Status.STOPPED if self.stopped else Status.DONE,
            notes=(*self.built.notes, *filter(None, [self.stopped])),
        )

    def save(self, step: int, files: Path, **further: object) -> Checkpoint:
        """Write the checkpoint of the segment, with the files of a folder."""
        state = {
            "values": self.values,
            "reference": self.reference_hash,
            "history": self.guard.history,
            "collapse": self.collapse.counts,
            "training": self.training,
            **self.reward.state(),
            **further,
        }
        if self.segment.model_only:
            (files / MODEL_ONLY).touch()
        # Paths and host of the machine it was saved on; a model card.
        for name in ("training_args.bin", "README.md"):
            (files / name).unlink(missing_ok=True)
        return save(self.segment, self.name, step, state, moved=files)

    def _measures(self, policy: PreTrainedModel, step: int) -> dict[str, float]:
        segment = self.segment
        built = self.built
        # TRL moves the policy to the GPU, and nobody moves ours; an adapter has it inside
        if self.reference is not None:
            self.reference.to(policy.device)
        if not self.trainer.policies:
            (seed,) = evaluation_seeds(segment.seed, segment.role, step, 1)
            return reward_measures(
                policy, self.tokenizer, self.reference, built, seed, segment.role
            )
        metrics = measure(
            policy,
            self.reference,
            self.tokenizer,
            built,
            seed=segment.seed,
            role=segment.role,
            step=step,
            n=segment.episodes,
            asked=segment.environment.metrics,
        )
        if self.trainer.scores:
            return metrics
        pairs = built.pairs_of(segment.role)
        if pairs:
            likelihoods = pair_likelihoods(policy, self.tokenizer, pairs)
            metrics |= pair_measures(likelihoods, self._reference_likelihoods)
        test = segment.role == "test"
        texts = built.test_completions if test else built.held_out_completions
        if texts:
            values = log_likelihoods(policy, self.tokenizer, texts)
            metrics["log_likelihood"] = math.fsum(values) / len(texts)
        return metrics

    # the reference never changes: once a segment, not at each evaluation
    @cached_property
    def _reference_likelihoods(self) -> list[float]:
        pairs = self.built.pairs_of(self.segment.role)
        with reference_of(self.policy, self.reference) as reference:
            return pair_likelihoods(reference, self.tokenizer, pairs)


def _unscored(prompts: object, completions: object) -> list[float]:
    """Stand for the signal of a method that learns from data."""
    raise NotImplementedError


def is_finite(model: PreTrainedModel) -> bool:
    """Whether every parameter of a model is."""
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
