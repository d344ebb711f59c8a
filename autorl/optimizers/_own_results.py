"""Places of a study's results, for models of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autorl.core.types import Failed, Scored
from autorl.optimizers.base import History, Record, violation
from autorl.optimizers.priors.packed import Array

FITTED = 96  # of the latest outcomes, those that parameters are fitted to


def as_they_were(outcomes: Sequence[Scored | Failed], history: History) -> list[Record]:
    """Return the latest records as they were after these outcomes.

    Later scores have superseded some of them since.
    """
    then = {event.proposal: event for event in outcomes}
    numbers = list(then)[-FITTED:]
    return [Record(number, history[number].proposal, then[number]) for number in numbers]


def _rank_key(record: Record, unscored: float = -math.inf) -> tuple[bool, float, float]:
    """Return what results are ordered by, larger is better.

    Failures come last, before them what is infeasible.
    """
    value = record.values[0] if record.values else unscored
    return (not isinstance(record.result, Failed), -violation(record), value)


def ranks(records: Sequence[Record], unscored: float = -math.inf) -> Array:
    """Return places of results from the worst, shape (n,).

    Equal ones share a place. A failure without a penalty counts as `unscored`.
    """
    keys = [_rank_key(record, unscored) for record in records]
    place = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys], dtype=np.float64)
