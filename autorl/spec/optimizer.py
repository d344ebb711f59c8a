"""The optimizer a study file describes, its defaults, and what they were in earlier versions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from autorl import optimizers
from autorl.optimizers.registry import REGISTRY, STOPPING
from autorl.types import InputError, Optimizer

if TYPE_CHECKING:
    from autorl.space import Space
    from autorl.spec.study_file import Spec


def cuts_of(spec: Spec) -> tuple[int, ...]:
    """Steps at which the study's optimizer ends segments of runs; the horizon alone where its options are wrong."""
    try:
        return optimizers.cuts(spec.optimizer.name, spec.fidelity.steps, **_options(spec))
    except InputError:  # `optimizer_of` raises it, with the line of the study file
        return (spec.fidelity.steps,)


def _options(spec: Spec) -> dict[str, Any]:
    """The options of the optimizer, with those of `stop`."""
    section = spec.optimizer
    options = section.options
    options |= {} if section.stop is None else {"stop": section.stop}
    options |= {} if section.rungs is None else {"rungs": section.rungs}
    return options


def optimizer_of(spec: Spec, changeable: Collection[str]) -> Optimizer:
    """The study's optimizer before it has observed anything; `changeable`: what a continued run may change."""
    space, section = spec.search_space, spec.optimizer
    options = _options(spec)
    if "seed" in {
        field.name for field in dataclasses.fields(optimizers.find(section.name).Options)
    }:
        options.setdefault(
            "seed", spec.seed
        )  # a scrambled sequence is a function of the study's seed
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
    """Proposals in flight where the study file does not say: 8, or an eighth of the budget for who learns from scores.

    With p in flight, proposal i knows the scores of those before i - p: a lag of 8 in a study of 16 leaves half of the
    proposals without any. Optimizers that do not look at scores, and generations that wait for all, have 8.
    """
    name = spec.optimizer.name
    if name in REGISTRY and optimizers.find(name).lag_free and spec.optimizer.stop is None:
        return MOST_IN_FLIGHT
    runs = spec.full_runs
    return MOST_IN_FLIGHT if math.isinf(runs) else min(MOST_IN_FLIGHT, max(1, int(runs / LAGS)))


def stored_options(
    name: str, stop: str | None, given: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The options of a study's optimizer with every default written out, but for those of a user's own optimizer.

    `seed`: of the study, which is that of an optimizer that has one.
    """
    if name not in REGISTRY:
        return dict(given)
    targets = [name] if stop is None else [name, STOPPING[stop]]
    fields = [
        field for target in targets for field in dataclasses.fields(optimizers.find(target).Options)
    ]
    defaults = {field.name: seed if field.name == "seed" else field.default for field in fields}
    return defaults | dict(given)


def earlier_options(
    name: str, read_space: Callable[[], Space], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a stored study, with those left out at what they were worth then.

    A file stored today has all of them, so whatever is missing was stored by a version that did not
    write defaults. `read_space` gives the search space where a default depends on its size.
    """
    started = {"startup": 10, "startup_counts": "scored"}
    earlier: dict[str, dict[str, Any]] = {
        "tpe": started,
        "gp": started,
        "cost_aware": started,
        "bohb": {"startup": 10},
        "nsga2": {"population_size": 50},
    }
    options = dict(earlier.get(name, {}))
    if name == "cmaes":
        types = [item.type for item in read_space().hyperparameters.values()]
        searched = len(types) - types.count("constant")
        population = 4 + int(3 * math.log(max(2, searched)))
        options |= {"start": "default", "sigma": 0.25, "population_size": population, "seed": None}
    if given.get("stop") is not None:
        options["against"] = "scores"
    return options | dict(given)
