"""Spaces of other libraries, recognised without importing any."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from autorl.core.types import InputError
from autorl.space.configspace_import import from_configspace
from autorl.space.define import define_space
from autorl.space.hyperparameter import Hyperparameter, Scale
from autorl.space.space import Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

_MOST_STEPS = 10_000  # values of a distribution with a step


def foreign_space(space: object) -> Space | None:
    """Make a space of a `ConfigurationSpace`, or of Optuna's distributions by name.

    The result is None for anything else. Neither library is imported here: a program with such a
    space has imported it.

    Raises:
        InputError: our search spaces cannot express it.
    """
    configspace = sys.modules.get("ConfigSpace")
    if configspace is not None and isinstance(space, configspace.ConfigurationSpace):
        return from_configspace(space)
    distributions = sys.modules.get("optuna.distributions")
    if distributions is None or not isinstance(space, Mapping):
        return None
    base = distributions.BaseDistribution
    unfit = [name for name, value in space.items() if not isinstance(value, base)]
    if len(unfit) == len(space):
        return None
    if unfit:
        kind = type(space[unfit[0]]).__name__
        raise InputError(
            f"expected a distribution of Optuna like the others, got {kind}", key=str(unfit[0])
        )
    return from_optuna(space)


def from_optuna(
    distributions: Mapping[str, BaseDistribution], conditions: Mapping[str, str] | None = None
) -> Space:
    """Make the space of distributions by name.

    Optuna's `trial.distributions` has this form. It knows no `conditions`.

    A number with a `step` becomes an ordered choice of its values, a distribution of one value a
    constant. Optuna has no defaults: the default configuration is the middle of each range, on its
    scale, and the first of each choice.

    Raises:
        InputError: a distribution of another kind, with choices that no file can hold, or with too
            many steps.
    """
    items = (_hyperparameter(name, item) for name, item in distributions.items())
    return define_space(items, conditions=conditions)


def _hyperparameter(name: str, item: BaseDistribution) -> Hyperparameter:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(item, CategoricalDistribution):
        if len(item.choices) == 1:
            return Hyperparameter.constant(name, item.choices[0])
        return Hyperparameter.categorical(name, item.choices)
    if not isinstance(item, FloatDistribution | IntDistribution):
        kind = type(item).__name__
        raise InputError(
            f"{kind} is not supported: give a Float-, Int- or CategoricalDistribution",
            key=f"hyperparameters.{name}",
        )
    if item.single():
        return Hyperparameter.constant(name, item.low)
    integral = isinstance(item, IntDistribution)
    if item.step is not None and not (integral and item.step == 1):
        return _stepped(name, item, integral=integral)
    scale: Scale = "log" if item.log else "linear"
    if integral:
        return Hyperparameter.integer(name, int(item.low), int(item.high), scale=scale)
    return Hyperparameter.real(name, float(item.low), float(item.high), scale=scale)


def _stepped(
    name: str, item: FloatDistribution | IntDistribution, *, integral: bool
) -> Hyperparameter:
    assert item.step is not None
    count = round((item.high - item.low) / item.step) + 1  # Optuna has made `high` a multiple
    if count > _MOST_STEPS:
        raise InputError(
            f"expected at most {_MOST_STEPS:,} values, got {count:,}: leave the step out",
            key=f"hyperparameters.{name}",
        )
    values: list[float]
    if integral:
        values = [int(item.low + place * item.step) for place in range(count)]
    else:
        # Rounded: three times 0.1 is above 0.3.
        values = [round(item.low + place * item.step, 12) for place in range(count)]
    return Hyperparameter.ordinal(name, values)
