"""The range that the objective of a landscape cannot leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autorl.core.plain_text import counted

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset


def outside_bounds(landscape: Dataset, bounds: tuple[float | None, float | None]) -> Iterator[str]:
    """Say how many values of the objective lie outside bounds.

    Values of any run count; None is unbounded.
    """
    low, high = bounds
    count, least, greatest = landscape.queries.outside(low, high)
    if count:
        yield (
            f"{counted(count, 'value', 'lie')} outside [{low}, {high}], from {least} to {greatest}"
        )
