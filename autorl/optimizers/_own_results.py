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


def ranks(records: Sequence[Record]) -> Array:
    """Return places of results from the worst, shape (n,).

    Equal ones share a place. Failures come last, before them what is infeasible.
    """
    keys = [
        (
            not isinstance(record.result, Failed),
            -violation(record),
            *(record.values[:1] or (-math.inf,)),
        )
        for record in records
    ]
    place = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys], dtype=np.float64)
