"""The start-up of a model: proposals designed or drawn, before scores decide.

A start-up of n means n proposals, those in flight included: the model makes the next one as soon as
it knows any score. So a study of 16 configurations has 4 of the start-up, and one of 40 or more has
10. Earlier versions waited for 10 *scores*, and with 8 proposals in flight no model was asked
before proposal 18 (`startup_counts: scored`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autorl.optimizers.base import option

MOST = 10
PART = 4  # of the budget
# What versions did that stored neither: their studies end as they began.
EARLIER_STARTUP: Mapping[str, Any] = {"startup": 10, "startup_counts": "scored"}


def startup_option(minimum: int = 1) -> Any:
    """Make the option `startup` of a model."""
    return option(
        None,
        "proposals before the model is used; null: 10, at most a quarter of the budget",
        minimum=minimum,
    )


def counts_option() -> Any:
    """Make the option that says what a start-up is counted in."""
    return option(
        "proposed",
        "what `startup` counts: proposals, those in flight included, or scores, "
        "as earlier versions did",
        choices=("proposed", "scored"),
    )


def startup_size(given: int | None, budget: float, minimum: int = 1) -> int:
    """Return the number of proposals of the start-up.

    It is as given, or 10, at most a quarter of the full-length runs of the budget.
    """
    # Ten of sixteen configurations, and eight in flight, leave nothing to the model: that was
    # random search under another name (`docs/optimizers.md`).
    return given if given is not None else int(max(minimum, min(MOST, budget / PART)))


def startup_over(counts: str, size: int, proposed: int, scored: int, fewest: int = 1) -> bool:
    """Tell whether the model makes proposal number `proposed`.

    The model needs `fewest` scores.
    """
    return scored >= size if counts == "scored" else proposed >= size and scored >= fewest
