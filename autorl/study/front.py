"""Chooses members of a front of several objectives."""

from __future__ import annotations

from collections.abc import Sequence

from autorl.types import ProposalId


def spread(front: Sequence[ProposalId], k: int) -> list[ProposalId]:
    """Choose at most `k` of a front: both ends, and evenly between.

    The front is ordered by one objective.
    """
    if k < 2 or len(front) < 2:
        return list(front[: max(k, 0)])
    # A set: where k is larger than the front, places coincide.
    places = {round(place * (len(front) - 1) / (k - 1)) for place in range(k)}
    return [front[place] for place in sorted(places)]
