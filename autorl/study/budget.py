"""Counts what a study may spend and has spent.

It is for the driver, and for whoever reads its tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from autorl.spec import MOST_RUNS, Spec


@dataclass(frozen=True)
class Spent:
    """Amounts a study has used so far.

    Attributes:
        charged_steps: nominal tuning steps.
        begun: configurations that started from scratch.
        extra_runs: what was added to the budget.
        hours: of driver time, earlier sessions included.
    """

    charged_steps: int
    begun: int
    extra_runs: float
    hours: float

    def budget_steps(self, spec: Spec) -> float:
        """The budget in nominal tuning steps, infinite if not counted in them."""
        budget = spec.budget
        if budget.environment_steps is not None:
            return float(budget.environment_steps)
        if budget.runs is not None:
            # 2.3 runs of 100 are 230.
            return round((budget.runs + self.extra_runs) * spec.fidelity.steps, 6)
        return float("inf")

    def budget_used(self, spec: Spec) -> float:
        """Share of the budget used, in [0, 1].

        Racing may end a little above.
        """
        budget = spec.budget
        # Each budget is counted in one thing alone: `BudgetSection` refuses two.
        if budget.hours is not None:
            return self.hours / budget.hours
        if budget.configurations is not None:
            return self.begun / (budget.configurations + self.extra_runs)
        return self.charged_steps / self.budget_steps(spec)


def is_extension(runs: float) -> bool:
    """Tell whether a budget can be larger by so many runs.

    It must be a positive number that a study can hold.
    """
    return not isinstance(runs, bool) and 0 < runs <= MOST_RUNS  # False for NaN
