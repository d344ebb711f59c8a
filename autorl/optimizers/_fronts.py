"""The best results of several objectives, front by front."""

from __future__ import annotations

from collections.abc import Sequence
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
    remaining = np.arange(len(values))
    while len(chosen) < count:
        front = _front(values[remaining])
        fits = len(chosen) + len(front) <= count
        best = front if fits else _covering(-values[remaining[front]], front, count - len(chosen))
        chosen += remaining[best].tolist()
        remaining = np.delete(remaining, front)
    return sorted(chosen)


def _front(values: Array) -> NDArray[np.intp]:
    """Return the rows that no other dominates, ascending."""
    # In this order no row is dominated by a later one.
    later = np.lexsort(-values.T[::-1])
    front = []
    while later.size:
        best = values[later[0]]
        front.append(later[(values[later] == best).all(axis=1)])
        later = later[(values[later] > best).any(axis=1)]
    return np.sort(np.concatenate(front))


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
