"""The optimizer of a study file, and its defaults now and earlier."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from autorl import optimizers
from autorl.optimizers.base import Problem
from autorl.optimizers.registry import REGISTRY, build, find_stopping
from autorl.types import InputError, Optimizer

if TYPE_CHECKING:
    from autorl.space import Space
    from autorl.spec.study_file import Spec


def cuts_of(spec: Spec) -> tuple[int, ...]:
    """Return the steps at which the study's optimizer ends segments of runs.

    It is the horizon alone where its options are wrong: `optimizer_of` raises the error.
    """
    try:
        return optimizers.cuts(
            spec.optimizer.name, spec.fidelity.steps, spec.path, **_options(spec)
        )
    except InputError:
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
    )
    return build(section.name, problem, options, spec.path)


MOST_IN_FLIGHT = 8
LAGS = 8  # in a study's budget: so many times the proposals in flight


def default_parallelism(spec: Spec) -> int:
    """Return the proposals in flight where the study file does not say.

    An optimizer that learns from scores has an eighth of the budget, at most 8. With p in flight,
    proposal i knows the scores of those before i - p: a lag of 8 in a study of 16 leaves half of
    the proposals without any. Optimizers that do not look at scores, and generations that wait for
    all, have 8.
    """
    runs = spec.full_runs
    if math.isinf(runs) or (_is_lag_free(spec) and spec.optimizer.stop is None):
        return MOST_IN_FLIGHT
    return min(MOST_IN_FLIGHT, max(1, int(runs / LAGS)))


def _is_lag_free(spec: Spec) -> bool:
    try:
        return optimizers.find(spec.optimizer.name, spec.path).lag_free
    except InputError:  # the error comes with its line when the optimizer is built
        return False


def stored_options(spec: Spec) -> dict[str, Any]:
    """Give the options of a study's optimizer with every default written out.

    Those that the study file gives, alone, where the class of another package cannot be imported.
    """
    section = spec.optimizer
    written = section.options
    if section.rungs is not None:
        written = written | {"rungs": section.rungs}
    try:
        classes = [optimizers.find(section.name, spec.path)]
    except InputError:
        return written
    if section.stop is not None:
        classes.append(find_stopping(section.stop))
    fields = [field for cls in classes for field in dataclasses.fields(cls.Options)]
    defaults = {field.name: field.default for field in fields}
    if "seed" in defaults:
        defaults["seed"] = spec.seed
    return defaults | written


def earlier_options(
    name: str, read_space: Callable[[], Space], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Fill in what options were worth when the study was stored.

    A file stored today has all of them, so whatever is missing was stored by a version that did not
    write defaults. Classes of other packages have no such versions.

    Args:
        name: of the optimizer.
        read_space: gives the search space of the study, where a default depends on its size.
        stored: the optimizer's section, `stop` included.
    """
    earlier: dict[str, Any] = {}
    if name in REGISTRY:
        earlier |= optimizers.find(name).earlier_defaults(read_space)
    if stored.get("stop") is not None:
        earlier |= find_stopping(stored["stop"]).earlier_defaults(read_space)
    return earlier | dict(stored)
