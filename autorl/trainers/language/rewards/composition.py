"""Signals made of signals: ensembles, process rewards, length penalties, constraints.

References:
    [Coste2023] Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization", 2023: mean,
        WCO, UWO.
    [Gao2024] Gao et al., "On Designing Effective RL Reward at Training Time for LLM Reasoning",
        2024: Clip, Delta.
    [Moskovitz2023] Moskovitz et al., "Confronting Reward Model Overoptimization with Constrained
        RLHF", 2023.
    [Yu2025] Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025:
        soft overlong penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from autorl.core.types import InputError
from autorl.trainers.language.contract import Signal

RULES = ("mean", "wco", "uwo")
Kind: TypeAlias = Literal["at_most", "at_least"]
Process: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[list[float]]]
"""Gives a list of step rewards for each completion."""
StepRewards: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[list[tuple[int, float]]]]
"""Gives, for each step of each completion, the characters up to its end, and its reward."""


def ensemble(signals: Sequence[Signal], rule: str = "mean", weight: float = 0.5) -> Signal:
    """Make one signal of several models' rewards [Coste2023].

    Args:
        signals: k of them.
        rule: `mean`; `wco`, worst-case optimisation = the lowest of the k; `uwo`,
            uncertainty-weighted optimisation = mean - weight * variance over the k models (divided
            by k, not k - 1). It is nothing where k is 1.
        weight: of the variance in `uwo`.

    Raises:
        InputError: an unknown rule, no signal, or a negative weight.
    """
    # a wrong rule is an error now, not in the first training step
    if not signals:
        raise InputError("expected a signal or several", key="reward.signals")
    if rule not in RULES:
        raise InputError(f"unknown rule {rule!r}; allowed: {', '.join(RULES)}", key="reward.rule")
    if weight < 0:
        raise InputError(
            f"the weight of the variance cannot be negative, got {weight}", key="reward.weight"
        )
    if len(signals) == 1:
        return signals[0]

    def score(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        table = np.array([signal(prompts, completions) for signal in signals], np.float64)
        # least over the models of each completion, not the least model: WCO of [Coste2023]
        if rule == "wco":
            rewards = table.min(axis=0)
        else:
            rewards = table.mean(axis=0)
            if rule == "uwo":
                rewards = rewards - weight * table.var(axis=0)
        return [float(reward) for reward in rewards]

    return score


def clipped(steps: Sequence[float], threshold: float | None) -> list[float]:
    """Return the step rewards after Clip, min(r, threshold) - threshold [Gao2024].

    No step is above 0, so to repeat a good one cannot raise the return. No threshold: no Clip.
    """
    return [step if threshold is None else min(step, threshold) - threshold for step in steps]


def differences(steps: Sequence[float]) -> list[float]:
    """Return the step rewards after Delta [Gao2024].

    Step k of K gets r_k - r_(k+1), step K - 1 gets r_(K-1), and the last nothing: the outcome
    judges it. The rewards from a step on add up to r_k, however many steps follow.
    """
    earlier = steps[:-1]
    # one longer than `earlier`, or as long: nothing follows the last but one
    following = [*earlier[1:], 0.0]
    changes = [now - after for now, after in zip(earlier, following, strict=False)]
    return changes + [0.0] * bool(steps)


def with_process(
    outcome: Signal, process: Process, weight: float, threshold: float | None = None
) -> Signal:
    """Make the signal outcome + weight * sum of the process rewards.

    One number per completion, so there is no Delta: its sum is the reward of the first step,
    whatever the others are.

    Args:
        outcome: the reward of the whole completion.
        process: the step rewards.
        weight: of their sum.
        threshold: of Clip.
    """

    def score(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        lists = process(prompts, completions)
        returns = [math.fsum(clipped(steps, threshold)) for steps in lists]
        outcomes = outcome(prompts, completions)
        return [reward + weight * steps for reward, steps in zip(outcomes, returns, strict=True)]

    return score


def at_steps(
    process: Process, separator: str, weight: float, threshold: float | None, delta: bool
) -> StepRewards:
    """Make weight * process rewards, each at the end of its step.

    Args:
        process: the step rewards.
        separator: stands between the steps of a completion; blank ones do not count.
        weight: of each.
        threshold: of Clip, which comes first.
        delta: whether Delta follows.
    """

    def score(prompts: Sequence[str], completions: Sequence[str]) -> list[list[tuple[int, float]]]:
        lists = process(prompts, completions)
        scored = []
        for text, steps in zip(completions, lists, strict=True):
            ends = _step_ends(text, separator)
            if len(steps) != len(ends):
                raise InputError(
                    f"expected a reward for each of {len(ends)} steps between {separator!r}, got "
                    f"{len(steps)}, for the completion {text!r:.80}",
                    key="reward.process",
                )
            rewards = clipped(steps, threshold)
            rewards = differences(rewards) if delta else rewards
            scored.append([(end, weight * step) for end, step in zip(ends, rewards, strict=True)])
        return scored

    return score


def _step_ends(text: str, separator: str) -> list[int]:
    """Return the characters up to the end of each step."""
    ends = []
    end = -len(separator)
    for step in text.split(separator):
        end += len(separator) + len(step)
        if step.strip():
            ends.append(end)
    return ends


def with_length(
    signal: Signal, longest: int, buffer: int, weight: float, length: Callable[[str], int]
) -> Signal:
    """Make a signal + weight * soft overlong penalty [Yu2025].

    The penalty is 0 up to longest - buffer, then linear to -1 at longest, in the unit of `length`.

    Raises:
        InputError: unless 0 < buffer <= longest.
    """
    if not 0 < buffer <= longest:
        raise InputError(
            f"expected 0 < buffer <= longest, got {buffer} and {longest}", key="reward.buffer"
        )

    def penalty(text: str) -> float:
        # -((length - (longest - buffer)) / buffer) within the buffer: linear from 0 to -1
        return float(min(0.0, max(-1.0, (longest - buffer - length(text)) / buffer)))

    def score(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        rewards = signal(prompts, completions)
        return [
            reward + weight * penalty(text)
            for reward, text in zip(rewards, completions, strict=True)
        ]

    return score


class Constrained:
    """A reward under constraints, by Lagrangian multipliers learnt in training [Moskovitz2023].

    With multipliers m_i >= 0 and signs s_i (+1 for `at_least`, -1 for `at_most`), a completion
    earns

        objective + sum_i m_i s_i (r_i - threshold_i),

    and after each batch m_i rises by learning_rate * violation_i, where violation_i =
    s_i (threshold_i - batch mean of r_i), kept in [0, ceiling]. The paper squashes its multipliers
    by a sigmoid instead; the bounds serve the same end.

    Args:
        objective: the reward without constraints.
        signals: by name; every constrained signal must be among them.
        limits: the threshold that the mean of a signal shall keep, by (signal, kind).
        learning_rate: of the multipliers, per batch.
        ceiling: largest multiplier.

    Raises:
        InputError: a number out of range.
    """

    def __init__(
        self,
        objective: Signal,
        signals: Mapping[str, Signal],
        limits: Mapping[tuple[str, Kind], float],
        *,
        learning_rate: float = 0.1,
        ceiling: float = 10.0,
    ) -> None:
        for key, number in (("lagrange_rate", learning_rate), ("lagrange_ceiling", ceiling)):
            if number < 0:
                raise InputError(
                    f"expected a number of at least 0, got {number}", key=f"reward.{key}"
                )
        self.objective = objective
        # sorted: a set's order, and so the order of calls, changes with the hash seed
        self.signals = {name: signals[name] for name in sorted({signal for signal, _ in limits})}
        self.limits = limits
        self.learning_rate = learning_rate
        self.ceiling = ceiling
        self.multipliers = {f"{signal} {kind}": 0.0 for signal, kind in limits}

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        """Return a training batch's reward, then move the multipliers."""
        values = {
            name: np.asarray(signal(prompts, completions), np.float64)
            for name, signal in self.signals.items()
        }
        rewards = np.asarray(self.objective(prompts, completions), np.float64)
        for (signal, kind), threshold in self.limits.items():
            sign = 1.0 if kind == "at_least" else -1.0
            multiplier = self.multipliers[f"{signal} {kind}"]
            rewards = rewards + multiplier * sign * (values[signal] - threshold)
            # down the gradient of the Lagrangian in its multiplier, projected on [0, ceiling]
            violation = sign * (threshold - float(np.mean(values[signal])))
            moved = multiplier + self.learning_rate * violation
            self.multipliers[f"{signal} {kind}"] = min(self.ceiling, max(0.0, moved))
        return [float(reward) for reward in rewards]

    def state(self) -> dict[str, Any]:
        """Return the multiplier of each constraint, as JSON."""
        return {"multipliers": {**self.multipliers}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue with the multipliers of `state`.

        Raises:
            InputError: they belong to other constraints; thresholds may differ.
        """
        saved = state["multipliers"]
        if saved.keys() != self.multipliers.keys():
            raise InputError(
                f"the checkpoint has multipliers for {sorted(saved)}, "
                f"the configuration for {sorted(self.multipliers)}",
                key="reward.constraints",
            )
        self.multipliers = {name: float(saved[name]) for name in self.multipliers}
