"""Makes the optimizer of a study file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any

from autorl import optimizers
from autorl.core.types import InputError, Optimizer
from autorl.landscapes.library import find_landscape, is_study
from autorl.landscapes.manifest import Manifest
from autorl.optimizers.base import Problem, Surroundings
from autorl.optimizers.priors.families import algorithm_of
from autorl.optimizers.registry import DEFAULT_WITH_PRIOR, build, option_names, resolved_options
from autorl.study.spec.options import given_options, resolved_of
from autorl.study.spec.sections import ObjectiveSection, OptimizerSection
from autorl.study.spec.spec import Spec


def optimizer_of(spec: Spec, changeable: Collection[str]) -> Optimizer:
    """Make the study's optimizer, which has observed nothing yet.

    Args:
        spec: the study.
        changeable: hyperparameters that a continued run may change.
    """
    space = spec.search_space
    section = spec.optimizer
    options = given_options(section)
    names = option_names(optimizers.find(section.name, spec.path))
    if "seed" in names:
        # A scrambled sequence is a function of the study's seed.
        options.setdefault("seed", spec.seed)
    if "path" in names:
        options.setdefault("path", spec.path)
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


def with_resolved_options(spec: Spec) -> Spec:
    """Copy a spec with what its optimizer's options name elsewhere.

    The study then depends on no other data.

    Raises:
        InputError: what an option names cannot be used.
    """
    spec = _with_defaults(spec)
    section = spec.optimizer
    if not resolved_of(section, spec.path):
        return spec
    surroundings = dataclasses.replace(
        _surroundings(spec), n_seeds=len(spec.policy().first), reduction=spec.objective[0].reduce
    )
    stated = section.options | {"stop": section.stop}
    resolved = resolved_options(section.name, stated, surroundings, spec.path)
    options = {name: value for name, value in resolved.items() if name != "stop"}
    named: dict[str, Any] = {"name": section.name, "stop": section.stop, "rungs": section.rungs}
    return spec.changed(optimizer=OptimizerSection(**named, **options))


def _with_defaults(spec: Spec) -> Spec:
    """Give optimizer and seed rule where the file names none.

    `benchmarks/search_live.py` compares them with random search.
    """
    section = spec.optimizer
    usual = ObjectiveSection()  # what shipped priors are of
    objectives = [(objective.metric, objective.direction) for objective in spec.objective]
    if "name" in section.model_fields_set or objectives != [(usual.metric, usual.direction)]:
        return spec
    seeds = not spec.evaluation.model_fields_set and "tuning" not in spec.seeds.model_fields_set
    name, resolved = _default(spec)
    named = spec.with_default_search(name, seeds=seeds)
    # Data looked up for the choice are not looked up again.
    return named.changed(optimizer=named.optimizer.model_copy(update=resolved))


def _default(spec: Spec) -> tuple[str, Mapping[str, Any]]:
    """Return the default's name, and options resolved to choose it."""
    section = spec.optimizer
    options = section.options
    with_prior = optimizers.find(DEFAULT_WITH_PRIOR)
    if not options.keys() <= option_names(with_prior):
        return section.name, {}
    # `prior: none` alone says the name as well
    if options.keys() - option_names(optimizers.find(section.name)):
        return DEFAULT_WITH_PRIOR, {}
    resolved = resolved_options(DEFAULT_WITH_PRIOR, options, _surroundings(spec), spec.path)
    if with_prior.has_prior(resolved):
        return DEFAULT_WITH_PRIOR, resolved
    return section.name, {}


def _surroundings(spec: Spec) -> Surroundings:
    """Return what a study is, as far as its file says it.

    A study that replays a landscape trains what the landscape did. One that chooses between
    algorithms has none: its hyperparameters have other names.
    """
    described = Surroundings(spec.search_space, (), spec.environment.id, folder=spec.folder)
    if spec.trainer is None:
        return described
    info = spec.info(spec.trainer)
    if not info.replays_landscape:
        name = spec.trainer.name
        # A user's own trainer, `python:...` or a class, does not say what it trains.
        says = "/" in name and not info.of_user
        return dataclasses.replace(described, algorithms=(algorithm_of(name),) if says else ())
    source = spec.trainer.kwargs.get("landscape")
    replayed = None if source is None else find_landscape(str(source), folder=spec.folder)
    if replayed is None or is_study(replayed):  # the trainer says what is wrong
        return described
    manifest = Manifest.read(replayed)
    return dataclasses.replace(
        described,
        algorithms=(algorithm_of(manifest.algorithm),),
        environment=manifest.environment,
        replays=manifest.id,
    )


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
