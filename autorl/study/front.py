"""The front of a study with several objectives: the proposals none of the others dominates, and which are tested."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autorl.statistics.aggregates import parse_aggregate
from autorl.store.query import Query
from autorl.types import ProposalId, Status

if TYPE_CHECKING:
    from autorl.spec import Spec


@dataclass(frozen=True)
class Point:
    """A proposal of the front.

    Attributes:
        tuning: its score by every objective, by the objective's label, over tuning seeds, in the metric's direction.
        test: the same over test seeds; None if no test run succeeded.
    """

    proposal: ProposalId
    tuning: Mapping[str, float]
    test: Mapping[str, float] | None


def spread(front: Sequence[ProposalId], k: int) -> list[ProposalId]:
    """At most `k` of a front that is ordered by one objective: both ends and what lies evenly between them."""
    if k < 2 or len(front) < 2:
        return list(front[: max(k, 0)])
    places = {round(place * (len(front) - 1) / (k - 1)) for place in range(k)}
    return [front[place] for place in sorted(places)]


def read_front(
    query: Query,
    spec: Spec,
    front: Sequence[ProposalId],
    tested: Sequence[ProposalId],
) -> tuple[Point, ...]:
    """The points of a front from a study's tables, best by the first objective first."""
    objectives = spec.objectives()
    aggregate = parse_aggregate(spec.evaluation.aggregate)
    points = []
    for proposal in front:
        ((scores,),) = query("SELECT score FROM proposals WHERE proposal = ?", (proposal,))
        tuning = dict(
            zip([objective.label for objective in objectives], json.loads(scores), strict=True)
        )
        test = {}
        for index, objective in enumerate(objectives if proposal in tested else ()):
            values = _test_values(query, spec, index, proposal)
            if values:  # aggregates may look at the worse end
                test[objective.label] = objective.sign * float(
                    aggregate(objective.sign * np.array(values))
                )
        points.append(Point(proposal, tuning, test or None))
    first = objectives[0]
    return tuple(
        sorted(points, key=lambda point: (-first.sign * point.tuning[first.label], point.proposal))
    )


def _test_values(query: Query, spec: Spec, objective: int, proposal: ProposalId) -> list[float]:
    """Values of test runs by one objective: failed ones count where the study file states their value."""
    rows = query(
        "SELECT value, status FROM tests WHERE objective = ? AND proposal = ? ORDER BY seed",
        (objective, proposal),
    )
    good = [value for value, status in rows if not Status(status).failed]
    stated = spec.stated_penalty
    return good if not good or stated is None else [*good, *[stated] * (len(rows) - len(good))]
