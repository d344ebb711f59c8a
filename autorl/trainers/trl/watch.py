"""Evaluations of one segment: measures on held-out prompts at the nominal steps, the guard, and divergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from autorl.rlhf.measures import (
    log_likelihoods,
    measure,
    pair_likelihoods,
    pair_measures,
    reward_measures,
)
from autorl.rlhf.task import Built, Pair
from autorl.seeds import evaluation_seeds
from autorl.trainers._shared import not_finite
from autorl.trainers._streams import preserved
from autorl.trainers.trl.guard import Guard
from autorl.types import Report, Segment


class Watch:
    """What one segment is evaluated with, and what it has shown so far.

    Attributes:
        reports: the evaluations, in step order.
        stopped: set once the guard has tripped.
        problem: set once weights or metrics are not finite.
    """

    def __init__(
        self, segment: Segment, built: Built, reference: Any, tokenizer: Any, guard: Guard
    ) -> None:
        self.segment, self.built, self.reference, self.tokenizer = (
            segment,
            built,
            reference,
            tokenizer,
        )
        self.guard = guard
        self.reports: list[Report] = []
        self.stopped = False
        self.problem = ""
        self._pending = list(segment.evaluate_at)

    def due(self, reached: int, align: Callable[[int], int]) -> list[int]:
        """The nominal steps whose reachable step is `reached` or lies before it; each is handed out once."""
        found = [step for step in self._pending if align(step) <= reached]
        self._pending = self._pending[len(found) :]
        return found

    def evaluate(
        self,
        policy: Any,
        step: int,
        kind: str,
        counted: Mapping[str, float],
        report: Callable[[Report], None],
    ) -> bool:
        """Measure `policy` at a nominal step and report it beside what training has counted; whether it is to stop."""
        if not is_finite(policy):
            self.problem = "parameters are not finite"
            return True
        with preserved():
            metrics = {**self._measures(policy, step, kind), **counted}
        found = Report(self.segment.id, step, metrics)
        self.problem = not_finite(found)
        if self.problem:
            return True
        self.reports.append(found)
        report(found)
        self.stopped = self.guard.tripped(metrics)
        return self.stopped

    def _measures(self, policy: Any, step: int, kind: str) -> dict[str, float]:
        segment, built = self.segment, self.built
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
        apart = segment.role == "test"
        if self._pairs:
            found = pair_likelihoods(policy, self.tokenizer, self._pairs)
            metrics |= pair_measures(found, self._reference_likelihoods)
        texts = (
            built.test_completions
            if apart and built.test_completions is not None
            else built.held_out_completions
        )
        if texts:
            metrics["log_likelihood"] = math.fsum(
                log_likelihoods(policy, self.tokenizer, texts)
            ) / len(texts)
        return metrics

    @property
    def _pairs(self) -> Sequence[Pair]:
        apart = self.segment.role == "test" and self.built.test_pairs is not None
        return (self.built.test_pairs if apart else self.built.held_out_pairs) or ()

    @cached_property
    def _reference_likelihoods(self) -> list[float]:
        return pair_likelihoods(self.reference, self.tokenizer, self._pairs)


def is_finite(model: Any) -> bool:
    """Whether every parameter of a model is."""
    import torch

    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
