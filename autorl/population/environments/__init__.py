"""The native environments by Gymnasium id, and users' own by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autorl.core.plain_text import did_you_mean
from autorl.core.types import FrozenMap, InputError
from autorl.population.environments.base import Environment
from autorl.population.environments.minigrid import GRID_TASKS, observed
from autorl.population.variants import NATIVE, PARAMETERS, variant

ENVIRONMENTS: dict[str, Environment] = {
    name: importlib.import_module(f"{__name__}.{native.module}").ENVIRONMENT
    for name, native in NATIVE.items()
}
"""Those of Gymnasium itself; `GRID_TASKS` has MiniGrid's."""

__all__ = ["ENVIRONMENTS", "GRID_TASKS", "Environment", "find_environment"]


def find_environment(
    name: str | None,
    parameters: Mapping[str, object] = FrozenMap(),
    wrappers: Sequence[object] = (),
) -> Environment:
    """Return a native environment, a variant of one, or a user's own.

    A user's own `Environment` is named by `module:NAME`.

    `parameters` are those of a variant (`variants.PARAMETERS`); a user's own has none, nor has a
    MiniGrid task. `wrappers` choose what of a MiniGrid task is observed (`minigrid.OBSERVATIONS`).

    Raises:
        InputError: there is no such environment, or a parameter or wrapper is wrong.
    """
    if name in GRID_TASKS:
        if parameters:
            raise InputError(f"{name} takes none in the engine", key="environment.kwargs")
        return observed(GRID_TASKS[name], wrappers)
    if wrappers:
        raise InputError(
            "the engine runs native environments as they are; use an sb3/* trainer for wrappers",
            key="environment.wrappers",
        )
    if name and name in ENVIRONMENTS:
        return varied(ENVIRONMENTS[name], parameters)
    if name and ":" in name:
        if parameters:
            raise InputError("an environment of your own takes none", key="environment.kwargs")
        return _imported(name)
    natives = (*ENVIRONMENTS, *GRID_TASKS)
    hint = did_you_mean(name or "", natives)
    raise InputError(
        f"{name!r} is not an environment of the population engine{hint} "
        f"(native: {', '.join(natives)}; your own: module:NAME; "
        "for any other use an sb3/* trainer)",
        key="environment.id",
    )


def varied(environment: Environment, parameters: Mapping[str, object]) -> Environment:
    """Return a variant of a native environment.

    It is the environment itself where nothing is changed.

    Raises:
        InputError: a parameter is unknown, or its value is not allowed.
    """
    changed = variant(environment.id, parameters).parameters
    assert environment.parametrised is not None
    if not changed:
        return environment
    defaults = {name: entry.default for name, entry in PARAMETERS[environment.id].items()}
    values = {**defaults, **changed}
    limited = replace(environment, time_limit=int(values["max_episode_steps"]), variant=changed)
    # Then the functions with constants do.
    if set(changed) == {"max_episode_steps"}:
        return limited
    native = NATIVE[environment.id]
    action_noise = "random_action_probability" if native.discrete else "action_noise"
    names = ("reward_scale", "observation_noise", action_noise, *native.physics)
    made = replace(
        environment.parametrised,
        time_limit=limited.time_limit,
        variant=changed,
        constants=tuple(values[name] for name in names),
    )
    if not native.bound:
        return made
    return replace(made, low=(-values[native.bound],), high=(values[native.bound],))


def _imported(name: str) -> Environment:
    module_name, _, attribute = name.partition(":")
    try:
        environment = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot load {name!r}: {error}", key="environment.id") from error
    if not isinstance(environment, Environment):
        import gymnasium as gym

        problem = (
            f"a {type(environment).__name__}, not an autorl.population.environments.Environment"
        )
        if isinstance(environment, type) and issubclass(environment, gym.Env):
            problem = (
                "a class of Gymnasium: register it, and name its id as in "
                f"{module_name}:Env-v0 (gymnasium.register)"
            )
        raise InputError(f"{name!r} is {problem}", key="environment.id")
    environment.check()
    return environment
