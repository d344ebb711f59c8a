"""Runs that over-optimise: the score that the law of Gao et al. predicts at the end decides, not that of the rung."""

import math

from numpy.random import default_rng

from autorl.core.types import FrozenMap, Proposed, Scored
from autorl.optimizers import make
from autorl.testing.optimizers import space_of

RATES = (0.1, 0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 4.0, 9.0)
"""KL that runs spend by step 50, in nats; as much again by step 100."""


def gold(kl):
    distance = math.sqrt(kl)
    return distance * (1.0 - 0.8 * math.log(distance))


def told(rates, **options):
    """An optimizer of runs to step 100 that has heard of step 50, and what it continues."""
    optimizer = make(
        "random", space_of("continuous"), horizon=100, stop="overoptimizing", **options
    )
    continued = []
    number = 0
    for rate in rates:
        proposal = optimizer.ask(default_rng(number))
        optimizer.observe(Proposed(number, proposal))
        watched = FrozenMap(kl=(rate / 2, rate))
        optimizer.observe(Scored(number, (gold(rate),), reached=50, watched=watched))
        number += 1
        following = optimizer.ask(default_rng(number))
        if following.resume_from is not None:
            continued.append(rate)
            optimizer.observe(Proposed(number, following))
            number += 1
    return continued


def test_the_best_at_half_is_stopped_where_it_will_fall():
    at_half = max(RATES, key=gold)
    at_end = max(RATES, key=lambda rate: gold(2 * rate))
    assert (at_half, at_end) == (1.5, 0.8)
    order = [*(rate for rate in RATES if rate not in (at_half, at_end)), at_half, at_end]
    continued = told(order, keep=0.25)
    assert at_half not in continued
    assert at_end in continued


def test_nothing_is_stopped_among_too_few():
    assert told(RATES[:8]) == list(RATES[:8])
