"""Drives an optimizer by hand: what a study would ask it and tell it."""

import numpy as np

from autorl.types import Proposed, Scored


def ask(optimizer, seed=None):
    return optimizer.ask(np.random.default_rng(len(optimizer.history) if seed is None else seed))


def proposed(optimizer, count=1):
    for number in range(len(optimizer.history), len(optimizer.history) + count):
        optimizer.observe(Proposed(number, ask(optimizer)))
    return optimizer


def tell(optimizer, number, value, **more):
    until = optimizer.history[number].proposal.until
    optimizer.observe(Scored(number, (float(value),), **{"reached": until, **more}))
