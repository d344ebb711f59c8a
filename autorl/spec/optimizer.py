"""Makes the optimizer of a study file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from autorl import optimizers
from autorl.optimizers.base import Problem
from autorl.optimizers.registry import build
from autorl.spec.options import given_options
from autorl.spec.spec import Spec
from autorl.types import InputError, Optimizer


def optimizer_of(spec: Spec, changeable: Collection[str]) -> Optimizer:
    """Make the study's optimizer, which has observed nothing yet.

    Args:
        spec: the study.
        changeable: hyperparameters that a continued run may change.
    """
    space = spec.search_space
    section = spec.optimizer
    options = given_options(section)
    fields = dataclasses.fields(optimizers.find(section.name, spec.path).Options)
    if "seed" in {field.name for field in fields}:
        # A scrambled sequence is a function of the study's seed.
        options.setdefault("seed", spec.seed)
    starts = [space.default(), *map(space.config, spec.starts)]
    problem = Problem(
        space,
        spec.fidelity.steps,
        spec.full_runs,
        len(spec.objective),
        frozenset(changeable),
        tuple(dict.fromkeys(starts)),
        # Not of racing: its studies would go on with other proposals than they began with.
        weigh_seeds=spec.evaluation.seeds == "adaptive",
    )
    return build(section.name, problem, options, spec.path)


MOST_IN_FLIGHT = 8
LAGS = 8  # in a study's budget: so many times the proposals in flight


def default_parallelism(spec: Spec) -> int:
    """Return the proposals in flight where the study file does not say.

    An optimizer that learns from scores has an eighth of the budget, at most 8. Optimizers that do
    not look at scores, and generations that wait for all, have 8.
    """
    runs = spec.full_runs
    try:
        lag_free = optimizers.find(spec.optimizer.name, spec.path).lag_free
    except InputError:  # the error comes with its line when the optimizer is built
        lag_free = False
    if math.isinf(runs) or (lag_free and spec.optimizer.stop is None):
        return MOST_IN_FLIGHT
    # With p in flight, proposal i knows the scores of those before i - p: a lag of 8 in a study of
    # 16 leaves half of the proposals without any.
    return min(MOST_IN_FLIGHT, max(1, int(runs / LAGS)))
