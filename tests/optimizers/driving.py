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


def told(optimizer, values, first=0, until=20):
    """Propose a generation and tell its scores; None is a failure."""
    made = []
    for number, _ in enumerate(values, start=first):
        made.append(ask(optimizer, number))
        optimizer.observe(Proposed(number, made[-1]))
    for number, value in enumerate(values, start=first):
        outcome = Failed(number, Status.CRASH, ())
        if value is not None:
            outcome = Scored(number, (value,), reached=until)
        optimizer.observe(outcome)
    return made
