"""The optimizer of a study file, and its defaults now and earlier."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from autorl import optimizers
from autorl.optimizers.registry import REGISTRY, STOPPING
from autorl.types import InputError, Optimizer

if TYPE_CHECKING:
    from autorl.space import Space
    from autorl.spec.study_file import Spec


def cuts_of(spec: Spec) -> tuple[int, ...]:
    """Return the steps at which the study's optimizer ends segments of runs.

    It is the horizon alone where its options are wrong.
    """
    try:
        return optimizers.cuts(spec.optimizer.name, spec.fidelity.steps, **_options(spec))
    except InputError:  # `optimizer_of` raises it, with the line of the study file
        return (spec.fidelity.steps,)


def _options(spec: Spec) -> dict[str, Any]:
    """Return the options of the optimizer, with those of `stop`."""
    section = spec.optimizer
    options = section.options
    options |= {} if section.stop is None else {"stop": section.stop}
    options |= {} if section.rungs is None else {"rungs": section.rungs}
    return options


def optimizer_of(spec: Spec, changeable: Collection[str]) -> Optimizer:
    """Make the study's optimizer, which has observed nothing yet.

    Args:
        spec: the study.
        changeable: hyperparameters that a continued run may change.
    """
    space = spec.search_space
    section = spec.optimizer
    options = _options(spec)
    if "seed" in {
        field.name for field in dataclasses.fields(optimizers.find(section.name).Options)
    }:
        # A scrambled sequence is a function of the study's seed.
        options.setdefault("seed", spec.seed)
    return optimizers.make(
        section.name,
        space,
        horizon=spec.fidelity.steps,
        budget=spec.full_runs,
        n_objectives=len(spec.objective),
        changeable=changeable,
        initial=[space.config(config) for config in spec.starts],
        **options,
    )


MOST_IN_FLIGHT = 8
LAGS = 8  # in a study's budget: so many times the proposals in flight


def default_parallelism(spec: Spec) -> int:
    """Return the proposals in flight where the study file does not say.

    It is 8, or an eighth of the budget for optimizers that learn from scores. With p in flight,
    proposal i knows the scores of those before i - p: a lag of 8 in a study of 16 leaves half of
    the proposals without any. Optimizers that do not look at scores, and generations that wait for
    all, have 8.
    """
    name = spec.optimizer.name
    if name in REGISTRY and optimizers.find(name).lag_free and spec.optimizer.stop is None:
        return MOST_IN_FLIGHT
    runs = spec.full_runs
    return MOST_IN_FLIGHT if math.isinf(runs) else min(MOST_IN_FLIGHT, max(1, int(runs / LAGS)))


def stored_options(
    name: str, stop: str | None, given: Mapping[str, object], seed: int
) -> dict[str, Any]:
    """Write out every default among the options of an optimizer.

    A user's own optimizer keeps the options it was given.

    Args:
        name: of the optimizer.
        stop: the stopping rule around it.
        given: the options of the study file.
        seed: of the study, which is that of an optimizer that has one.
    """
    if name not in REGISTRY:
        return dict(given)
    targets = [name] if stop is None else [name, STOPPING[stop]]
    fields = [
        field for target in targets for field in dataclasses.fields(optimizers.find(target).Options)
    ]
    defaults = {field.name: seed if field.name == "seed" else field.default for field in fields}
    return defaults | dict(given)


def earlier_options(name: str, space: Space, given: Mapping[str, object]) -> dict[str, Any]:
    """Add what an earlier version left out of a stored study's options.

    Each has the value of its default then. A file stored today has all of them, so whatever is
    missing was stored by a version that did not write defaults.
    """
    started = {"startup": 10, "startup_counts": "scored"}
    domains = space.hyperparameters.values()
    searched = [domain for domain in domains if domain.type != "constant"]
    earlier: dict[str, dict[str, Any]] = {
        "tpe": started,
        "gp": started,
        "cost_aware": started,
        "bohb": {"startup": 10},
        "nsga2": {"population_size": 50},
        "cmaes": {
            "start": "default",
            "sigma": 0.25,
            "population_size": 4 + int(3 * math.log(max(2, len(searched)))),
            "seed": None,
        },
    }
    stopping = {} if given.get("stop") is None else {"against": "scores"}
    return {**earlier.get(name, {}), **stopping, **given}
