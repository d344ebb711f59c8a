"""A reward under constraints on other signals.

The multipliers of the constraints are learnt in training.

References:
    [Moskovitz2023] Moskovitz et al., "Confronting Reward Model Overoptimization with Constrained
        RLHF", 2023.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from autorl.core.types import InputError
from autorl.trainers.language.contract import LearningSignal, Signal
from autorl.trainers.language.rewards.composition import Array

Kind: TypeAlias = Literal["at_most", "at_least"]


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
    def name(self) -> str:
        """Name of its multiplier in a checkpoint."""
        return f"{self.signal} {self.kind}"

    @property
    def sign(self) -> float:
        """+1 where a larger value of the signal meets the constraint better."""
        return 1.0 if self.kind == "at_least" else -1.0


class Constrained(LearningSignal):
    """A reward under constraints, by Lagrangian multipliers learnt in training [Moskovitz2023].

    With multipliers m_i >= 0 and signs s_i (+1 for `at_least`, -1 for `at_most`), a completion
    earns

        (objective + sum_i m_i s_i (r_i - threshold_i)) / (1 + sum_i m_i if rescale else 1),

    and after each batch m_i rises by learning_rate * violation_i, where violation_i =
    s_i (threshold_i - batch mean of r_i), kept in [0, ceiling]. The paper squashes its multipliers
    by a sigmoid instead; the bounds serve the same end.

    Args:
        signals: by name; `objective` and every constrained signal must be among them.
        learning_rate: of the multipliers, per batch.
        ceiling: largest multiplier.
        initial: every multiplier before the first batch.
        rescale: keep the scale of the reward while multipliers grow.

    Raises:
        InputError: an unknown signal, one constrained twice in the same direction, or a number out
            of range.
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
        names = [constraint.name for constraint in constraints]
        if len(set(names)) < len(names):
            raise InputError(
                f"a constraint is given twice: {', '.join(names)}", key="reward.constraints"
            )
        if learning_rate < 0 or not 0 <= initial <= ceiling:
            raise InputError(
                "expected learning_rate >= 0 and 0 <= initial <= ceiling, "
                f"got {learning_rate}, {initial}, {ceiling}",
                key="reward",
            )
        self.signals = dict(signals)
        self.objective = objective
        self.constraints = tuple(constraints)
        self.learning_rate = learning_rate
        self.ceiling = ceiling
        self.rescale = rescale
        self.multipliers = [initial] * len(constraints)

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        """Return the reward with the multipliers as they are.

        This changes nothing.
        """
        return self._rewards(self._values(prompts, completions))

    def learn(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        """Return the reward of a training batch.

        The multipliers take one step then.
        """
        values = self._values(prompts, completions)
        # with the multipliers from before this batch: its own violation comes after
        rewards = self._rewards(values)
        for i, constraint in enumerate(self.constraints):
            mean = float(np.mean(values[constraint.signal]))
            # down the gradient of the Lagrangian in its multiplier, projected on [0, ceiling]
            violation = constraint.sign * (constraint.threshold - mean)
            moved = self.multipliers[i] + self.learning_rate * violation
            self.multipliers[i] = min(self.ceiling, max(0.0, moved))
        return rewards

    def copy(self) -> Constrained:
        """Return a signal with equal constraints and multipliers of its own."""
        # the signals are shared: they do not learn
        twin = copy.copy(self)
        twin.multipliers = [*self.multipliers]
        return twin

    def state(self) -> dict[str, Any]:
        """Return the multiplier of each constraint, as JSON."""
        names = [constraint.name for constraint in self.constraints]
        return {"multipliers": dict(zip(names, self.multipliers, strict=True))}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue with the multipliers of `state`.

        Raises:
            InputError: they belong to other constraints; thresholds may differ.
        """
        saved = state["multipliers"]
        names = [constraint.name for constraint in self.constraints]
        if set(saved) != set(names):
            raise InputError(
                f"the checkpoint has multipliers for {sorted(saved)}, "
                f"the configuration for {sorted(names)}",
                key="reward.constraints",
            )
        self.multipliers = [float(saved[name]) for name in names]

    def _values(self, prompts: Sequence[str], completions: Sequence[str]) -> dict[str, Array]:
        used = {self.objective, *(constraint.signal for constraint in self.constraints)}
        return {
            name: np.asarray(self.signals[name](prompts, completions), dtype=np.float64)
            # sorted: a set's order, and so the order of calls, changes with the hash seed
            for name in sorted(used)
        }

    def _rewards(self, values: Mapping[str, Array]) -> list[float]:
        total = values[self.objective]
        for multiplier, constraint in zip(self.multipliers, self.constraints, strict=True):
            surplus = values[constraint.signal] - constraint.threshold
            total = total + multiplier * constraint.sign * surplus
        # a mean weighted by the multipliers: its scale does not grow with them
        scale = 1.0 + math.fsum(self.multipliers) if self.rescale else 1.0
        return [float(value) / scale for value in total]
