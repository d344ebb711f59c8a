"""Signals made of signals: ensembles, process rewards, length penalties.

References:
    [Coste2023] Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization", 2023: mean,
        WCO, UWO.
    [Gao2024] Gao et al., "On Designing Effective RL Reward at Training Time for LLM Reasoning",
        2024: Clip.
    [Yu2025] Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025:
        soft overlong penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autorl.core.types import InputError
from autorl.trainers.language.contract import Signal

RULES = ("mean", "wco", "uwo")


@dataclass(frozen=True)
class Ensemble:
    """Several models' rewards as one [Coste2023].

    Args:
        signals: k of them.
        rule: `mean`; `wco`, worst-case optimisation = the lowest of the k; `uwo`,
            uncertainty-weighted optimisation = mean - weight * variance over the k models (divided
            by k, not k - 1).
        weight: of the variance in `uwo`.

    Raises:
        InputError: an unknown rule, no signal, or a negative weight.
    """

    signals: Sequence[Signal]
    rule: str = "mean"
    weight: float = 0.5

    def __post_init__(self) -> None:
        # a wrong rule is an error now, not in the first training step
        if not self.signals:
            raise InputError("expected a signal or several", key="reward.signals")
        if self.rule not in RULES:
            raise InputError(
                f"unknown rule {self.rule!r}; allowed: {', '.join(RULES)}", key="reward.rule"
            )
        if self.weight < 0:
            raise InputError(
                f"the weight of the variance cannot be negative, got {self.weight}",
                key="reward.weight",
            )

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        table = np.array([signal(prompts, completions) for signal in self.signals], np.float64)
        # least over the models of each completion, not the least model: WCO of [Coste2023]
        if self.rule == "wco":
            rewards = table.min(axis=0)
        else:
            rewards = table.mean(axis=0)
            if self.rule == "uwo":
                rewards = rewards - self.weight * table.var(axis=0)
        return [float(reward) for reward in rewards]


@dataclass(frozen=True)
class WithProcess:
    """The outcome + weight * sum of the process rewards.

    With a threshold a process reward r counts as min(r, threshold) - threshold, Clip of [Gao2024]:
    none is above 0, so to repeat a good step cannot raise the return.

    One number per completion, so there is no Delta: its sum is the reward of the first step,
    whatever the others are.

    Args:
        process: gives a list of step rewards for each completion.
    """

    outcome: Signal
    process: Callable[[Sequence[str], Sequence[str]], list[list[float]]]
    weight: float
    threshold: float | None = None

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        returns = [self._return(steps) for steps in self.process(prompts, completions)]
        outcomes = self.outcome(prompts, completions)
        return [
            reward + self.weight * process
            for reward, process in zip(outcomes, returns, strict=True)
        ]

    def _return(self, steps: Sequence[float]) -> float:
        limit = self.threshold
        return math.fsum(steps if limit is None else [min(step, limit) - limit for step in steps])


@dataclass(frozen=True)
class WithLength:
    """A signal + weight * soft overlong penalty [Yu2025].

    The penalty is 0 up to longest - buffer, then linear to -1 at longest, in the unit of `length`.

    Raises:
        InputError: unless 0 < buffer <= longest.
    """

    signal: Signal
    longest: int
    buffer: int
    weight: float
    length: Callable[[str], int]

    def __post_init__(self) -> None:
        if not 0 < self.buffer <= self.longest:
            raise InputError(
                f"expected 0 < buffer <= longest, got {self.buffer} and {self.longest}",
                key="reward.buffer",
            )

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        return [
            reward + self.weight * self.penalty(self.length(text))
            for reward, text in zip(self.signal(prompts, completions), completions, strict=True)
        ]

    def penalty(self, length: int) -> float:
        """Penalise a length."""
        # -((length - (longest - buffer)) / buffer) within the buffer: linear from 0 to -1
        return float(min(0.0, max(-1.0, (self.longest - self.buffer - length) / self.buffer)))
