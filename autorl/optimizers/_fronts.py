"""The best results of several objectives, front by front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MARGIN = 0.1
"""By how much the reference point is beyond the worst values, of their size."""
NOT_ZERO = 1e-12


def best_of_fronts(values: Array, count: int) -> list[int]:
    """Choose whole fronts, and rows of the last that cover most.

    Args:
        values: shape (n, objectives), larger is better.
        count: of rows to choose, at most n.
    """
    chosen: list[int] = []
    for front in _fronts(values):
        room = count - len(chosen)
        best = front if len(front) <= room else _covering(-values[front], front, room)
        chosen += best.tolist()
        if len(chosen) == count:
            break
    return sorted(chosen)


def crowded_order(values: Array) -> list[int]:
    """Order rows front by front, the least crowded first (Deb et al. 2002).

    The crowding distance is the sum over objectives of the distance of the two neighbours in the
    front, in parts of its range; the ends of a front have none on one side and come first.

    Args:
        values: shape (n, objectives), larger is better.
    """
    ordered: list[int] = []
    for front in _fronts(values):
        distances = np.zeros(len(front))
        for column in values[front].T:
            order = np.argsort(column, kind="stable")
            ends = np.array([-np.inf, *column[order], np.inf])
            distances[order] += (ends[2:] - ends[:-2]) / (np.ptp(column) or 1.0)
        ordered += front[np.argsort(-distances, kind="stable")].tolist()
    return ordered


def _fronts(values: Array) -> Iterator[NDArray[np.intp]]:
    """Give the rows that no other dominates, then of the remaining ones, and so on."""
    # In this order no row is dominated by a later one.
    remaining = np.lexsort(-values.T[::-1])
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


def _covering(losses: Array, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Choose one by one the rows that add most to the hypervolume."""
    worst = losses.max(axis=0)
    reference = np.maximum((1 + MARGIN) * worst, (1 - MARGIN) * worst)
    reference[reference == 0] = NOT_ZERO
    volumes = np.prod(reference - losses, axis=1).tolist()
    # What a row adds only shrinks: most are never computed again.
    queue = [(-volume, place, 0) for place, volume in enumerate(volumes)]
    heapify(queue)
    chosen: list[int] = []
    while len(chosen) < count:
        _, place, age = heappop(queue)
        if age == len(chosen):
            chosen.append(place)
            continue
        covered = hypervolume(np.maximum(losses[chosen], losses[place]), reference)
        heappush(queue, (covered - volumes[place], place, len(chosen)))
    return rows[chosen]


def hypervolume(losses: Array, reference: Sequence[float] | Array) -> float:
    """Return the volume between points, shape (n, d), and a reference point.

    Smaller is better; it is cut into slices along the last objective.
    """
    ordered = losses[np.argsort(losses[:, -1], kind="stable")]
    depths = np.diff(np.append(ordered[:, -1], reference[-1]))
    if losses.shape[1] == 2:
        return float(depths @ (reference[0] - np.minimum.accumulate(ordered[:, 0])))
    areas = [hypervolume(ordered[: n + 1, :-1], reference[:-1]) for n in range(len(ordered))]
    return float(depths @ areas)
