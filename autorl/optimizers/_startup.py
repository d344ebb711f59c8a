"""The start-up of a model: proposals designed or drawn, before scores decide.

A start-up of n means n proposals, those in flight included: the model makes the next one as soon as
it knows any score. A study of 16 configurations therefore has a start-up of 4, a study of 40 or
more has 10. Counted in scores, with 8 proposals in flight, no model would be asked before proposal
18.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from autorl.optimizers.base import BaseOptimizer, option

MOST = 10
PART = 4  # of the budget


def startup_option(minimum: int = 1) -> Any:
    """Make the option `startup` of a model."""
    return option(
        None,
        "proposals before the model is used; null: 10, at most a quarter of the budget",
        minimum=minimum,
    )


def startup_size(given: int | None, budget: float, minimum: int = 1) -> int:
    """Return the number of proposals of the start-up.

    It is as given, or 10, at most a quarter of the full-length runs of the budget.
    """
    # Ten of sixteen configurations, and eight in flight, leave nothing to the model: that was
    # random search under another name (`docs/decisions.md`).
    return given if given is not None else int(max(minimum, min(MOST, budget / PART)))


@dataclass(frozen=True)
class StartupOptions:
    startup: int | None = startup_option()


S = TypeVar("S", bound=StartupOptions)


class StartedOptimizer(BaseOptimizer[S]):
    """A model that is asked after a start-up."""

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether the start-up is over."""
        return not self.blind(proposed) and scored > 0

    def blind(self, number: int) -> bool:
        """Tell whether a proposal belongs to the start-up, which reads no score."""
        return number < startup_size(self.options.startup, self.problem.budget)
