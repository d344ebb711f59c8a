"""A reward under constraints on other signals.

The multipliers of the constraints are learnt in training.

References:
    [Moskovitz2023] Moskovitz et al., "Confronting Reward Model Overoptimization with Constrained
        RLHF", 2023.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.trainers.language.contract import Signal

Kind: TypeAlias = Literal["at_most", "at_least"]
_Values: TypeAlias = Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Constraint:
    """The mean of `signal` shall be at most, or at least, `threshold`."""

    signal: str
    threshold: float
    kind: Kind = "at_most"

    @property
    def name(self) -> str:
        """Name of its multiplier in a checkpoint."""
        return f"{self.signal} {self.kind}"

    @property
    def sign(self) -> float:
        """+1 where a larger value of the signal meets the constraint better."""
        return 1.0 if self.kind == "at_least" else -1.0


class Constrained:
    """A reward under constraints, by Lagrangian multipliers learnt in training [Moskovitz2023].

    With multipliers m_i >= 0 and signs s_i (+1 for `at_least`, -1 for `at_most`), a completion
    earns

        objective + sum_i m_i s_i (r_i - threshold_i),

    and after each batch m_i rises by learning_rate * violation_i, where violation_i =
    s_i (threshold_i - batch mean of r_i), kept in [0, ceiling]. The paper squashes its multipliers
    by a sigmoid instead; the bounds serve the same end.

    To score with it changes nothing. A run learns with a copy of its own, and saves and restores
    the multipliers.

    Args:
        objective: the reward without constraints.
        signals: by name; every constrained signal must be among them.
        learning_rate: of the multipliers, per batch.
        ceiling: largest multiplier.

    Raises:
        InputError: a number out of range.
    """

    def __init__(
        self,
        objective: Signal,
        signals: Mapping[str, Signal],
        constraints: Sequence[Constraint],
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
        self.signals = signals
        self.constraints = constraints
        self.learning_rate = learning_rate
        self.ceiling = ceiling
        self.multipliers = {constraint.name: 0.0 for constraint in constraints}

    def __call__(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        """Return the reward with the multipliers as they are."""
        return self._rewards(self._values(prompts, completions), prompts, completions)

    def learn(self, prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        """Return the reward of a training batch.

        The multipliers take one step then.
        """
        values = self._values(prompts, completions)
        # with the multipliers from before this batch: its own violation comes after
        rewards = self._rewards(values, prompts, completions)
        for limit in self.constraints:
            # down the gradient of the Lagrangian in its multiplier, projected on [0, ceiling]
            violation = limit.sign * (limit.threshold - float(np.mean(values[limit.signal])))
            moved = self.multipliers[limit.name] + self.learning_rate * violation
            self.multipliers[limit.name] = min(self.ceiling, max(0.0, moved))
        return rewards

    def copy(self) -> Constrained:
        """Return a signal with equal constraints and multipliers of its own."""
        # the signals are shared: they do not learn
        twin = copy.copy(self)
        twin.multipliers = {**self.multipliers}
        return twin

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

    def _values(self, prompts: Sequence[str], completions: Sequence[str]) -> _Values:
        # sorted: a set's order, and so the order of calls, changes with the hash seed
        return {
            name: np.asarray(self.signals[name](prompts, completions), np.float64)
            for name in sorted({constraint.signal for constraint in self.constraints})
        }

    def _rewards(
        self, values: _Values, prompts: Sequence[str], completions: Sequence[str]
    ) -> list[float]:
        total = np.asarray(self.objective(prompts, completions), np.float64)
        for limit in self.constraints:
            surplus = values[limit.signal] - limit.threshold
            total = total + self.multipliers[limit.name] * limit.sign * surplus
        return [float(value) for value in total]
