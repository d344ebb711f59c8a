"""The native environments by Gymnasium id, and users' own by name."""

from __future__ import annotations

import importlib

from autorl.plain_text import did_you_mean
from autorl.population.environments.acrobot import ACROBOT
from autorl.population.environments.base import Environment
from autorl.population.environments.cartpole import CARTPOLE
from autorl.population.environments.mountain_car import MOUNTAIN_CAR
from autorl.population.environments.mountain_car_continuous import MOUNTAIN_CAR_CONTINUOUS
from autorl.population.environments.pendulum import PENDULUM
from autorl.types import InputError

ENVIRONMENTS = {
    environment.id: environment
    for environment in (ACROBOT, CARTPOLE, MOUNTAIN_CAR, MOUNTAIN_CAR_CONTINUOUS, PENDULUM)
}

__all__ = ["ENVIRONMENTS", "Environment", "find_environment"]


def find_environment(name: str | None) -> Environment:
    """Return the native environment of this id, or a user's own.

    A user's own `Environment` is named by `module:NAME`.

    Raises:
        InputError: there is no such environment.
    """
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    if name and ":" in name:
        return _imported(name)
    hint = did_you_mean(name or "", ENVIRONMENTS)
    raise InputError(
        f"{name!r} is not an environment of the population engine{hint} "
        f"(native: {', '.join(ENVIRONMENTS)}; your own: module:NAME; "
        "for any other use an sb3/* trainer)",
        key="environment.id",
    )


def _imported(name: str) -> Environment:
    module_name, _, attribute = name.partition(":")
    try:
        environment = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot load {name!r}: {error}", key="environment.id") from error
    if not isinstance(environment, Environment):
        raise InputError(
            f"{name!r} is a {type(environment).__name__}, "
            "not an autorl.population.environments.Environment",
            key="environment.id",
        )
    environment.check()
    return environment
