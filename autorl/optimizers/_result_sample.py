"""Chooses the results that a model is made of.

The densities of TPE hold one kernel for every result, so that an ask costs more with each. From
`most` results on they are made of as many: the best, which alone make the density of the good, and
of the others a sample. A proposal's place in the sample is a hash of its number, so the sample is
the same in every session, hardly changes from one result to the next, and holds early and late
proposals alike.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import TypeAlias

from autorl.core.seeds import digest

Rank: TypeAlias = tuple[float, float]
"""By how much a result breaks the constraints, and its value, negative: smaller is better."""

BEST = 25  # as many as TPE takes for good, whatever the number of results (Bergstra et al. 2011)


class ResultSample:
    """Chooses results by number: the best, and a sample of the others.

    Orders are kept sorted, so that a result costs a bisection. The choice is a function of the
    results alone, in whatever order they came.

    Args:
        most: results that are chosen, at most.
    """

    def __init__(self, most: int) -> None:
        assert most > BEST
        self._most = most
        self._ranks: dict[int, Rank] = {}
        self._by_rank: list[tuple[Rank, int]] = []
        self._by_hash: list[tuple[int, int]] = []

    def put(self, number: int, rank: Rank) -> None:
        """Take note of a result.

        It takes the place of an earlier one of the same number.
        """
        self.remove(number)
        self._ranks[number] = rank
        insort(self._by_rank, (rank, number))
        insort(self._by_hash, (_place(number), number))

    def remove(self, number: int) -> None:
        """Forget a result.

        Nothing happens where there is none.
        """
        rank = self._ranks.pop(number, None)
        if rank is not None:
            del self._by_rank[bisect_left(self._by_rank, (rank, number))]
            del self._by_hash[bisect_left(self._by_hash, (_place(number), number))]

    def chosen(self) -> list[int]:
        """List the numbers of what the model is made of, ascending."""
        if len(self._ranks) <= self._most:
            return sorted(self._ranks)
        best = {number for _, number in self._by_rank[:BEST]}
        sampled = (number for _, number in self._by_hash if number not in best)
        return sorted([*best, *islice(sampled, self._most - BEST)])


def _place(number: int) -> int:
    return digest(0, "sample of results", number)
