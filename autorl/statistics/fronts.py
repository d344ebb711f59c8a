"""Orders results of several objectives, front by front.

References:
    [Deb2002] Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic
        algorithm: NSGA-II", IEEE Transactions on Evolutionary Computation 6, 2002.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from autorl.core.types import ProposalId
from autorl.statistics.arrays import Array


def fronts(values: Array) -> Iterator[NDArray[np.intp]]:
    """Give the rows of each front, which no later row dominates.

    The first front is not dominated at all. Equal rows do not dominate each other.

    Args:
        values: shape (n, objectives), larger is better.
    """
    # In this order no row is dominated by a later one.
    remaining = np.lexsort(-values.T[::-1]) if len(values) else np.empty(0, dtype=np.intp)
    while remaining.size:
        later = remaining
        front = []
        while later.size:
            best = values[later[0]]
            front.append(later[(values[later] == best).all(axis=1)])
            later = later[(values[later] > best).any(axis=1)]
        rows = np.sort(np.concatenate(front))
        yield rows
        remaining = remaining[~np.isin(remaining, rows)]


def undominated(values: Mapping[ProposalId, tuple[float, ...]]) -> list[ProposalId]:
    """Return the proposals whose values no other's dominate, ascending.

    The first stands for all with equal values.
    """
    by_values = {values[number]: number for number in sorted(values, reverse=True)}
    numbers = sorted(by_values.values())
    first = next(fronts(np.array([values[number] for number in numbers])), ())
    return [numbers[row] for row in first]


def hypervolume(values: Array, reference: Array) -> float:
    """Measure the space that rows dominate above a reference point.

    Slices along the last objective are added up, so it is for fronts of hundreds of rows.

    Args:
        values: shape (n, objectives), larger is better.
        reference: shape (objectives,); a row below it in an objective dominates nothing.
    """
    above = np.clip(values - reference, 0.0, None)
    if above.shape[1] == 1:
        return float(above.max(initial=0.0))
    *lower, last = above.T
    heights = np.unique(last)
    steps = np.diff(heights, prepend=0.0)
    floor = np.zeros(len(lower))
    return sum(
        float(step) * hypervolume(np.stack(lower, axis=1)[last >= height], floor)
        for step, height in zip(steps, heights, strict=True)
    )


def crowded_order(values: Array) -> list[int]:
    """Order rows front by front, the least crowded first [Deb2002].

    The crowding distance is the sum over objectives of the distance of the two neighbours in the
    front, in parts of its range; the ends of a front have none on one side and come first.

    Args:
        values: shape (n, objectives), larger is better.
    """
    ordered: list[int] = []
    for front in fronts(values):
        distances = np.zeros(len(front))
        for column in values[front].T:
            order = np.argsort(column, kind="stable")
            ends = np.array([-np.inf, *column[order], np.inf])
            distances[order] += (ends[2:] - ends[:-2]) / (np.ptp(column) or 1.0)
        ordered += front[np.argsort(-distances, kind="stable")].tolist()
    return ordered
