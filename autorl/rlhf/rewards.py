"""What a training signal is made of: several reward signals as one, refined process rewards, length, constraints.

A *signal* maps prompts and completions (n of each) to n numbers, larger is better, as in `autorl.rlhf.task.Built`.
Everything here makes signals from signals, so that any of it can train a policy, rank samples or be reported.

References:
    [Coste2023] Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization", 2023: mean, WCO, UWO.
    [Gao2024] Gao et al., "On Designing Effective RL Reward at Training Time for LLM Reasoning", 2024: Clip, Delta.
    [Yu2025] Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025: soft overlong penalty.
    [Moskovitz2023] Moskovitz et al., "Confronting Reward Model Overoptimization with Constrained RLHF", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from autorl.rlhf.task import Signal
from autorl.types import InputError

StepSignal: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[list[float]]]
Rule: TypeAlias = Literal["mean", "wco", "uwo"]
Kind: TypeAlias = Literal["at_most", "at_least"]
Array: TypeAlias = npt.NDArray[np.float64]


def combine(values: npt.ArrayLike, rule: Rule = "mean", weight: float = 0.5) -> Array:
    """The rewards of k models for n completions as one reward each [Coste2023].

    Args:
        values: (k, n), one row per model.
        rule: `mean`; `wco`, worst-case optimisation = the lowest of the k; `uwo`, uncertainty-weighted optimisation =
            mean - weight * variance over the k models (divided by k, not k - 1).
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
    if rule == "wco":
        return np.asarray(table.min(axis=0))
    mean = np.asarray(table.mean(axis=0))
    return mean if rule == "mean" else mean - weight * np.asarray(table.var(axis=0))


def ensemble(signals: Sequence[Signal], rule: Rule = "mean", weight: float = 0.5) -> Signal:
    """`signals` as one signal; see `combine`."""
    combine(
        np.zeros((len(signals), 1)), rule, weight
    )  # a wrong rule is an error now, not in the first training step

    def signal(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        return [
            float(value)
            for value in combine([one(prompts, completions) for one in signals], rule, weight)
        ]

    return signal


def clip(steps: Sequence[float], threshold: float) -> list[float]:
    """Process rewards r of one solution as min(r, threshold) - threshold, so none is above 0 [Gao2024].

    A step that is good enough earns nothing more: repeating it cannot raise the return.
    """
    return [min(step, threshold) - threshold for step in steps]


def delta(steps: Sequence[float]) -> list[float]:
    """Process rewards r_1..r_K of one solution as r_k - r_(k+1), the last but one as it is and the last 0 [Gao2024].

    They telescope: the return from step k < K on is r_k, however many steps follow. For training on a reward at each
    step, as in the paper's PPO; as one number, their sum, it is r_1 alone.
    """
    if not steps:
        return []
    refined = [step - after for step, after in pairwise(steps[:-1])]
    return [*refined, *steps[-2:-1], 0.0]


def refine(
    steps: Sequence[float], threshold: float | None = None, difference: bool = False
) -> list[float]:
    """Clip (where a threshold is given), then Delta (where `difference`), in the order of [Gao2024]."""
    clipped = list(steps) if threshold is None else clip(steps, threshold)
    return delta(clipped) if difference else clipped


def with_process(
    outcome: Signal, process: StepSignal, weight: float, *, threshold: float | None = None
) -> Signal:
    """The outcome + weight * sum of the process rewards, after Clip where a threshold is given.

    One number per completion, so there is no Delta: its sum is the reward of the first step, whatever the others are.
    """

    def signal(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        returns = [math.fsum(refine(steps, threshold)) for steps in process(prompts, completions)]
        return [a + weight * b for a, b in zip(outcome(prompts, completions), returns, strict=True)]

    return signal


def soft_overlong(length: int, longest: int, buffer: int) -> float:
    """Penalty of a completion of `length` tokens: 0 up to longest - buffer, then linear to -1 at longest [Yu2025].

    Raises:
        InputError: unless 0 < buffer <= longest.
    """
    if not 0 < buffer <= longest:
        raise InputError(
            f"expected 0 < buffer <= longest, got {buffer} and {longest}", key="reward.buffer"
        )
    return float(min(0.0, max(-1.0, (longest - buffer - length) / buffer)))


def words(completion: str) -> int:
    """Length of a completion in words, for signals that know no tokenizer; `reward.length*` and `length` are tokens."""
    return len(completion.split())


def with_length(
    signal: Signal,
    longest: int,
    buffer: int,
    weight: float = 1.0,
    length: Callable[[str], int] = words,
) -> Signal:
    """The signal + weight * soft overlong penalty; `longest` and `buffer` are in the unit of `length`."""
    soft_overlong(0, longest, buffer)

    def penalised(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        penalties = [soft_overlong(length(text), longest, buffer) for text in completions]
        return [
            a + weight * b for a, b in zip(signal(prompts, completions), penalties, strict=True)
        ]

    return penalised


@dataclass(frozen=True)
class Constraint:
    """The mean of `signal` shall be at most, or at least, `threshold`."""

    signal: str
    threshold: float
    kind: Kind = "at_most"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(
                f"unknown kind {self.kind!r}; allowed: at_most, at_least", key="reward.constraints"
            )

    @property
    def sign(self) -> float:
        """+1 where a larger value of the signal meets the constraint better."""
        return 1.0 if self.kind == "at_least" else -1.0


class Constrained:
    """A reward under constraints on other signals, by Lagrangian multipliers learnt during training [Moskovitz2023].

    With multipliers m_i >= 0 and signs s_i (+1 for `at_least`, -1 for `at_most`), a completion earns

        (objective + sum_i m_i s_i (r_i - threshold_i)) / (1 + sum_i m_i if rescale else 1),

    and after each batch m_i rises by learning_rate * violation_i, where violation_i = s_i (threshold_i - batch mean of
    r_i), kept in [0, ceiling]. The paper squashes its multipliers by a sigmoid instead; the bounds serve the same end.

    Args:
        signals: by name; `objective` and every constrained signal must be among them.
        learning_rate: of the multipliers, per batch.
        ceiling: largest multiplier.
        initial: every multiplier before the first batch.
        rescale: keep the scale of the reward while multipliers grow.

    Raises:
        InputError: an unknown signal, one constrained twice in the same direction, or a number out of range.
    """

    def __init__(
        self,
        signals: Mapping[str, Signal],
        objective: str,
        constraints: Sequence[Constraint],
        *,
        learning_rate: float = 0.1,
        ceiling: float = 10.0,
        initial: float = 0.0,
        rescale: bool = False,
    ) -> None:
        for name in (objective, *(constraint.signal for constraint in constraints)):
            if name not in signals:
                raise InputError(
                    f"no signal {name!r}; there are {', '.join(sorted(signals))}", key="reward"
                )
        names = [_name(constraint) for constraint in constraints]
        if len(set(names)) < len(names):
            raise InputError(
                f"a constraint is given twice: {', '.join(names)}", key="reward.constraints"
            )
        if learning_rate < 0 or not 0 <= initial <= ceiling:
            raise InputError(
                f"expected learning_rate >= 0 and 0 <= initial <= ceiling, got {learning_rate}, {initial}, {ceiling}",
                key="reward",
            )
        self.signals, self.objective, self.constraints = (
            dict(signals),
            objective,
            tuple(constraints),
        )
        self.learning_rate, self.ceiling, self.rescale = learning_rate, ceiling, rescale
        self.multipliers = [initial] * len(constraints)

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        """The reward with the multipliers as they are; changes nothing."""
        return self._rewards(self._values(prompts, completions))

    def learn(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        """The reward of a training batch; the multipliers then take one step."""
        values = self._values(prompts, completions)
        rewards = self._rewards(values)
        for i, constraint in enumerate(self.constraints):
            violation = constraint.sign * (
                constraint.threshold - float(np.mean(values[constraint.signal]))
            )
            self.multipliers[i] = min(
                self.ceiling, max(0.0, self.multipliers[i] + self.learning_rate * violation)
            )
        return rewards

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, as JSON: the multiplier of each constraint."""
        return {
            "multipliers": dict(zip(map(_name, self.constraints), self.multipliers, strict=True))
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue with the multipliers of `state`; they must be those of the same constraints, thresholds apart."""
        saved = state["multipliers"]
        names = [_name(constraint) for constraint in self.constraints]
        if set(saved) != set(names):
            raise InputError(
                f"the checkpoint has multipliers for {sorted(saved)}, the configuration for {sorted(names)}",
                key="reward.constraints",
            )
        self.multipliers = [float(saved[name]) for name in names]

    def _values(self, prompts: Sequence[str], completions: Sequence[str]) -> dict[str, Array]:
        used = {self.objective, *(constraint.signal for constraint in self.constraints)}
        return {
            name: np.asarray(self.signals[name](prompts, completions), dtype=np.float64)
            for name in sorted(used)
        }

    def _rewards(self, values: Mapping[str, Array]) -> list[float]:
        total = values[self.objective]
        for multiplier, constraint in zip(self.multipliers, self.constraints, strict=True):
            total = total + multiplier * constraint.sign * (
                values[constraint.signal] - constraint.threshold
            )
        scale = 1.0 + math.fsum(self.multipliers) if self.rescale else 1.0
        return [float(value) / scale for value in total]


def _name(constraint: Constraint) -> str:
    return f"{constraint.signal} {constraint.kind}"
