"""Drives an optimizer by hand: what a study would ask it and tell it."""

import numpy as np

from autorl.core.types import Failed, Proposed, Scored, Status


def ask(optimizer, seed=None):
    return optimizer.ask(np.random.default_rng(len(optimizer.history) if seed is None else seed))


def proposed(optimizer, count=1):
    for number in range(len(optimizer.history), len(optimizer.history) + count):
        optimizer.observe(Proposed(number, ask(optimizer)))
    return optimizer


def tell(optimizer, number, value, **more):
    until = optimizer.history[number].proposal.until
    optimizer.observe(Scored(number, (float(value),), **{"reached": until, **more}))


def generation(optimizer, count):
    """Propose so many and return them."""
    first = len(optimizer.history)
    return [record.proposal for record in list(proposed(optimizer, count).history)[first:]]


def told(optimizer, values):
    """Propose a generation and tell its scores; None is a failure, which has the best value."""
    first = len(optimizer.history)
    made = generation(optimizer, len(values))
    for number, value in enumerate(values, start=first):
        if value is None:
            optimizer.observe(Failed(number, Status.CRASH, (99.0,)))
        else:
            tell(optimizer, number, value)
    return made
