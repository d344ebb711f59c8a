"""The range that the objective of a landscape cannot leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset


def outside_bounds(landscape: Dataset, bounds: tuple[float | None, float | None]) -> Iterator[str]:
    """Say how many values of the objective lie outside bounds.

    Those of any run count. None = unbounded.
    """
    low, high = bounds
    tests = ["value < ?"] * (low is not None) + ["value > ?"] * (high is not None)
    if tests:
        query = f"SELECT count(*), min(value), max(value) FROM measured WHERE {' OR '.join(tests)}"
        limits = [limit for limit in bounds if limit is not None]
        count, smallest, largest = landscape.own_query(query, limits).fetchall()[0]
        if count:
            yield f"{count} values lie outside [{low}, {high}], from {smallest} to {largest}"
