"""Stands in for an optimizer whose model is dear.

It does so when only its proposals are counted (`--dry-run`).

optimizer:
  name: autorl.optimizers.dry_run:DryRun
  stands_for: smac
  settings: {startup: 8}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autorl.core.types import Proposal
from autorl.optimizers.base import BaseOptimizer, Problem, option
from autorl.optimizers.registry import make

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DryRunOptions:
    stands_for: str = option("random", "an optimizer of full-length runs")
    settings: Mapping[str, Any] | None = option(None, "its options")


class DryRun(BaseOptimizer[DryRunOptions]):
    """Random configurations that are counted as the model's.

    They are `informed` where the optimizer it stands for would use its model.
    """

    Options = DryRunOptions
    multi_objective = True

    def __init__(self, problem: Problem, options: DryRunOptions) -> None:
        super().__init__(problem, options)
        self._real = make(
            options.stands_for,
            problem.space,
            horizon=problem.horizon,
            budget=problem.budget,
            n_objectives=problem.n_objectives,
            changeable=problem.changeable,
            initial=problem.initial[1:],  # `make` puts the default first itself
            **(options.settings or {}),
        )

    def outline(self) -> tuple[str, ...]:
        """Describe the optimizer that it stands for."""
        return self._real.outline()

    def cautions(self) -> tuple[str, ...]:
        """Say what the optimizer that it stands for says."""
        return self._real.cautions()

    def blind(self, number: int) -> bool:
        """Ask the optimizer that it stands for.

        Both count the same proposals.
        """
        return self._real.blind(number)

    def _ask(self, rng: np.random.Generator) -> Proposal:
        scored = sum(bool(record.values) for record in self.history)
        informed = self._real.modelled(len(self.history), scored)
        return self._propose(self.problem.space.sample(rng), "random", informed=informed)
