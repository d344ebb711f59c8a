"""Signals made of signals: ensembles, process rewards, length penalties.

Everything here makes signals from signals, so that any of it can train a policy, rank samples or be
reported.

References:
    [Coste2023] Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization", 2023: mean,
        WCO, UWO.
    [Gao2024] Gao et al., "On Designing Effective RL Reward at Training Time for LLM Reasoning",
        2024: Clip, Delta.
    [Yu2025] Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025:
        soft overlong penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.trainers.language.contract import Signal

ProcessRewards: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[list[float]]]
"""prompts, completions -> a list of step rewards for each completion."""

Rule: TypeAlias = Literal["mean", "wco", "uwo"]
Array: TypeAlias = npt.NDArray[np.float64]


def combine(values: npt.ArrayLike, rule: Rule = "mean", weight: float = 0.5) -> Array:
    """Combine k models' rewards into one for each completion [Coste2023].

    Args:
        values: (k, n), one row per model.
        rule: `mean`; `wco`, worst-case optimisation = the lowest of the k; `uwo`,
            uncertainty-weighted optimisation = mean - weight * variance over the k models (divided
            by k, not k - 1).
        weight: of the variance in `uwo`.

    Returns:
        (n,)

    Raises:
        InputError: an unknown rule, no model, or a negative weight.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not len(table):
        raise InputError(
            f"expected one row of rewards per model, got an array of shape {table.shape}",
            key="reward",
        )
    if rule not in get_args(Rule):
        raise InputError(
            f"unknown rule {rule!r}; allowed: {', '.join(get_args(Rule))}", key="reward.rule"
        )
    if weight < 0:
        raise InputError(
            f"the weight of the variance cannot be negative, got {weight}", key="reward.weight"
        )
    # least over the models of each completion, not the least model: WCO of [Coste2023]
    if rule == "wco":
        return np.asarray(table.min(axis=0))
    mean = np.asarray(table.mean(axis=0))
    return mean if rule == "mean" else mean - weight * np.asarray(table.var(axis=0))


class Ensemble(Signal):
    """Several signals as one, by `combine`.

    Raises:
        InputError: as `combine`.
    """

    def __init__(self, signals: Sequence[Signal], rule: Rule = "mean", weight: float = 0.5) -> None:
        # a wrong rule is an error now, not in the first training step
        combine(np.zeros((len(signals), 1)), rule, weight)
        self.signals = tuple(signals)
        self.rule = rule
        self.weight = weight

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        values = [signal(prompts, completions) for signal in self.signals]
        return [float(value) for value in combine(values, self.rule, self.weight)]


def clip(steps: Sequence[float], threshold: float) -> list[float]:
    """Clip process rewards r of one solution: min(r, threshold) - threshold [Gao2024].

    None is above 0, so a step that is good enough earns nothing more: repeating it cannot raise the
    return.
    """
    return [min(step, threshold) - threshold for step in steps]


def delta(steps: Sequence[float]) -> list[float]:
    """Take differences of one solution's process rewards [Gao2024].

    The differences of r_1..r_K are r_k - r_(k+1).

    The last but one stays as it is and the last is 0. They telescope: the return from step k < K on
    is r_k, however many steps follow. For training on a reward at each step, as in the paper's PPO;
    as one number, their sum, it is r_1 alone.
    """
    if not steps:
        return []
    differences = [step - after for step, after in pairwise(steps[:-1])]
    return [*differences, *steps[-2:-1], 0.0]


def refine(
    steps: Sequence[float], threshold: float | None = None, difference: bool = False
) -> list[float]:
    """Clip (with a threshold), then take differences (if asked), as [Gao2024] does."""
    # Clip before Delta: the differences are of what Clip left [Gao2024]
    clipped = list(steps) if threshold is None else clip(steps, threshold)
    return delta(clipped) if difference else clipped


class WithProcess(Signal):
    """The outcome + weight * sum of the process rewards.

    If a threshold is given, process rewards are clipped first.

    One number per completion, so there is no Delta: its sum is the reward of the first step,
    whatever the others are.
    """

    def __init__(
        self,
        outcome: Signal,
        process: ProcessRewards,
        weight: float,
        *,
        threshold: float | None = None,
    ) -> None:
        self.outcome = outcome
        self.process = process
        self.weight = weight
        self.threshold = threshold

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        returns = [
            math.fsum(refine(steps, self.threshold)) for steps in self.process(prompts, completions)
        ]
        outcomes = self.outcome(prompts, completions)
        return [
            reward + self.weight * process
            for reward, process in zip(outcomes, returns, strict=True)
        ]


def soft_overlong(length: int, longest: int, buffer: int) -> float:
    """Penalise a length softly [Yu2025].

    The penalty is 0 up to longest - buffer, then linear to -1 at longest.

    Raises:
        InputError: unless 0 < buffer <= longest.
    """
    if not 0 < buffer <= longest:
        raise InputError(
            f"expected 0 < buffer <= longest, got {buffer} and {longest}", key="reward.buffer"
        )
    # -((length - (longest - buffer)) / buffer) within the buffer: linear from 0 to -1
    return float(min(0.0, max(-1.0, (longest - buffer - length) / buffer)))


def words(completion: str) -> int:
    """Count the words of a completion, for signals that know no tokenizer.

    `reward.length*` and the metric `length` are in tokens.
    """
    return len(completion.split())


class WithLength(Signal):
    """A signal + weight * soft overlong penalty.

    `longest` and `buffer` are in the unit of `length`.

    Raises:
        InputError: as `soft_overlong`.
    """

    def __init__(
        self,
        signal: Signal,
        longest: int,
        buffer: int,
        weight: float = 1.0,
        length: Callable[[str], int] = words,
    ) -> None:
        # a wrong limit is an error now, not in the first training step
        soft_overlong(0, longest, buffer)
        self.signal = signal
        self.longest = longest
        self.buffer = buffer
        self.weight = weight
        self.length = length

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        penalties = [
            soft_overlong(self.length(text), self.longest, self.buffer) for text in completions
        ]
        rewards = self.signal(prompts, completions)
        return [
            reward + self.weight * penalty
            for reward, penalty in zip(rewards, penalties, strict=True)
        ]
