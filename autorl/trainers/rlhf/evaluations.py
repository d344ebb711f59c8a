"""The evaluations of one segment, and how it ends."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import Checkpoint, Outcome, Report, Segment, Status
from autorl.trainers._shared import Clock, not_finite
from autorl.trainers._streams import preserved
from autorl.trainers.language.completion_scores import log_likelihoods
from autorl.trainers.language.contract import Built, Pair
from autorl.trainers.language.models import load_policy, load_tokenizer, weights_hash
from autorl.trainers.language.policy_metrics import (
    measure,
    pair_likelihoods,
    pair_measures,
    reward_measures,
)
from autorl.trainers.language.rewards.options import RewardOptions
from autorl.trainers.rlhf.counted_reward import CountedReward
from autorl.trainers.rlhf.trainer import Guard, RLHFTrainer, build_task, parent_state
from autorl.trainers.saved_state import save

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Evaluations:
    """The plan and the results of a segment's evaluations.

    Attributes:
        reports: the evaluations, in step order.
        stopped: set once the guard has tripped.
        problem: set once weights or metrics are not finite.
    """

    def __init__(
        self,
        segment: Segment,
        built: Built,
        reference: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        guard: Guard,
    ) -> None:
        self.segment = segment
        self.built = built
        self.reference = reference
        self.tokenizer = tokenizer
        self.guard = guard
        self.reports: list[Report] = []
        self.stopped = False
        self.problem = ""
        self._pending = list(segment.evaluate_at)

    @property
    def status(self) -> Status:
        """How the segment ends."""
        if self.problem:
            return Status.DIVERGED
        return Status.STOPPED if self.stopped else Status.DONE

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the record on the data and on the guard."""
        return (*self.built.notes, *((self.guard.note,) if self.stopped else ()))

    def message(self, reached: int) -> str:
        """Say what was not finite at the step reached, if anything was."""
        return f"{self.problem} at step {reached}" if self.problem else ""

    def due(self, reached: int, align: Callable[[int], int]) -> list[int]:
        """Return the nominal steps to evaluate at the step reached, each once.

        Args:
            reached: by training.
            align: the step training reaches for a nominal one.
        """
        # training may pass several; they are in order, so those due are the first
        steps = [step for step in self._pending if align(step) <= reached]
        self._pending = self._pending[len(steps) :]
        return steps

    def evaluate(
        self,
        policy: PreTrainedModel,
        step: int,
        kind: str,
        counted: Mapping[str, float],
        report: Callable[[Report], None],
    ) -> bool:
        """Measure `policy` at a nominal step and report it.

        Args:
            policy: or reward model.
            step: the nominal one.
            kind: of data the method is trained on; see `autorl.trainers.trl.methods.Data`.
            counted: counts of the training, reported beside the measurements.
            report: receives the evaluation.

        Returns:
            Whether training is to stop.
        """
        # before sampling, which raises in torch for NaN
        if not is_finite(policy):
            self.problem = "parameters are not finite"
            return True
        # evaluations must not change training: a run is the same wherever it is evaluated
        with preserved():
            metrics = {**self._measures(policy, step, kind), **counted}
        evaluation = Report(self.segment.id, step, metrics)
        self.problem = not_finite(evaluation)
        if self.problem:
            return True
        self.reports.append(evaluation)
        report(evaluation)
        self.stopped = self.guard.tripped(metrics)
        return self.stopped

    def _measures(self, policy: PreTrainedModel, step: int, kind: str) -> dict[str, float]:
        segment = self.segment
        built = self.built
        # TRL moves the policy to the GPU, and nobody moves ours
        self.reference.to(policy.device)
        if kind == "ranking":
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
        )
        if kind == "prompts":
            return metrics
        if self._pairs:
            likelihoods = pair_likelihoods(policy, self.tokenizer, self._pairs)
            metrics |= pair_measures(likelihoods, self._reference_likelihoods)
        texts = built.held_out_completions
        if segment.role == "test" and built.test_completions is not None:
            texts = built.test_completions
        if texts:
            values = log_likelihoods(policy, self.tokenizer, texts)
            metrics["log_likelihood"] = math.fsum(values) / len(texts)
        return metrics

    @property
    def _pairs(self) -> Sequence[Pair]:
        if self.segment.role == "test" and self.built.test_pairs is not None:
            return self.built.test_pairs
        return self.built.held_out_pairs

    # the reference never changes: once a segment, not at each evaluation
    @cached_property
    def _reference_likelihoods(self) -> list[float]:
        return pair_likelihoods(self.reference, self.tokenizer, self._pairs)


class LanguageRun:
    """One segment of a language model in progress, but for training.

    Attributes:
        built: the task.
        state: the parent's checkpoint, None from scratch.
        evaluations: of the segment.

    Args:
        trainer: of the segment.
        segment: to be trained.
        name: of the trainer, in checkpoints.
        values: every hyperparameter.
        reward: the training signal.
    """

    def __init__(
        self,
        trainer: RLHFTrainer,
        segment: Segment,
        name: str,
        values: Mapping[str, Any],
        reward: RewardOptions,
    ) -> None:
        self.segment = segment
        self.name = name
        self.values = values
        self.built = build_task(segment.environment)
        reference = load_policy(self.built.reference)
        self.reference_hash = weights_hash(reference)
        self.state = parent_state(segment, name, self.reference_hash, values, trainer.changes)
        # of its own run only: evaluations of the agent it was copied from do not count
        history = self.state["history"] if self.state and segment.fork is None else ()
        guard = trainer.guard(self.built, reward, history)
        tokenizer = load_tokenizer(self.built.reference)
        self.evaluations = Evaluations(segment, self.built, reference, tokenizer, guard)

    def outcome(
        self, clock: Clock, step: int, applied: Mapping[str, Any], save: Callable[[], Checkpoint]
    ) -> Outcome:
        """Return how the segment ended, its checkpoint saved."""
        evaluations = self.evaluations
        cost = clock.cost(step - self.segment.start)
        # bytes on macOS, KiB elsewhere
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cost["peak_memory_mb"] = peak / (2**20 if sys.platform == "darwin" else 2**10)
        return Outcome(
            segment=self.segment.id,
            status=evaluations.status,
            reached=step,
            reports=tuple(evaluations.reports),
            cost=cost,
            checkpoint=save() if self.segment.save and not evaluations.problem else None,
            applied=dict(applied),
            notes=evaluations.notes,
            message=evaluations.message(step),
        )

    def save(
        self, step: int, tokens: int, reward: CountedReward, files: Path, **further: object
    ) -> Checkpoint:
        """Write the checkpoint of the segment, with the files of a folder."""
        state = {
            "values": self.values,
            "reference": self.reference_hash,
            "history": self.evaluations.guard.history,
            "tokens": tokens,
            **reward.state(),
            **further,
        }
        # Paths and host of the machine it was saved on; a model card.
        for name in ("training_args.bin", "README.md"):
            (files / name).unlink(missing_ok=True)
        return save(self.segment, self.name, step, state, moved=files)


def is_finite(model: PreTrainedModel) -> bool:
    """Whether every parameter of a model is."""
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
