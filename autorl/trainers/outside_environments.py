"""Environments outside the engine: made, checked, saved and restored.

An environment is made as `sb3/*` makes it, with the same errors; its spaces must be what the
compiled networks take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding

from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError
from autorl.population.outside import (
    EpisodeMonitor,
    OutsideEnvironment,
    Worlds,
    next_seed,
    of_spaces,
)
from autorl.trainers._shared import module_path
from autorl.trainers.environment_state import (
    NOT_RESTORABLE,
    NotRestoredError,
    pickle_environment,
    unpickle_environment,
)
from autorl.trainers.gymnasium_tasks import make_task, wrapped
from autorl.trainers.sb3.vector_rewards import components

_FLATTEN = "gymnasium.wrappers:FlattenObservation"


def outside_environment(spec: EnvironmentSpec) -> OutsideEnvironment:
    """Make an environment once, and describe it by its spaces.

    Raises:
        InputError: it cannot be made, or the compiled networks do not fit it.
    """
    assert spec.id is not None
    make = partial(_make, spec)
    env = make()
    try:
        if components(env):
            raise InputError(
                f"the reward of {spec.id} is a vector; use an sb3/* trainer", key="environment.id"
            )
        check_observations(spec.id, env.observation_space)
        check_actions(spec.id, env.action_space)
        return of_spaces(
            spec.id,
            make,
            env.observation_space,
            env.action_space,
            variant=FrozenMap(spec.kwargs),
            wrappers=tuple(plain(spec.wrappers)),
        )
    finally:
        env.close()


def _make(spec: EnvironmentSpec) -> gym.Env[Any, Any]:
    with module_path():
        return wrapped(EpisodeMonitor(make_task(spec)), spec.wrappers)


def check_observations(name: str, space: gym.Space[Any]) -> None:
    if not isinstance(space, gym.spaces.Box):
        raise InputError(
            f"the compiled networks take Box observations, {name} has "
            f"{type(space).__name__}; {_FLATTEN} in environment.wrappers may make a vector of "
            "them, or use an sb3/* trainer",
            key="environment",
        )
    if len(space.shape) == 3 and space.dtype == np.uint8:
        raise InputError(
            f"the compiled networks take vectors, {name} shows images "
            f"{'x'.join(map(str, space.shape))}; use an sb3/* trainer, or a wrapper in "
            "environment.wrappers",
            key="environment",
        )


def check_actions(name: str, space: gym.Space[Any]) -> None:
    if isinstance(space, gym.spaces.Discrete):
        if space.start:
            raise InputError(
                f"the actions of {name} begin with {space.start}, those of an agent with 0",
                key="environment",
            )
        return
    if not isinstance(space, gym.spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        kind = type(space).__name__
        raise InputError(
            "the compiled policies choose Discrete actions and Box actions of real numbers, "
            f"{name} has {kind}" + f" of {space.dtype}" * isinstance(space, gym.spaces.Box),
            key="environment",
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise InputError(
            f"the actions of {name} have no bounds; gymnasium.wrappers:RescaleAction or a wrapper "
            "of your own in environment.wrappers gives them some",
            key="environment",
        )


def described(environment: OutsideEnvironment) -> tuple[str, ...]:
    """Say what beside its id describes a model's environment."""
    arguments = "".join(f", {name}={plain(value)!r}" for name, value in environment.variant.items())
    chain = "".join(f" within {shown(entry)}" for entry in environment.wrappers)
    if not arguments and not chain:
        return ()
    return (f"it acts in gymnasium.make({environment.id!r}{arguments}){chain}",)


def environment_of_checkpoint(
    name: str, variant: Mapping[str, Any], wrappers: Sequence[Any], spaces: Sequence[Any]
) -> OutsideEnvironment:
    """Describe the environment of a checkpoint by its saved spaces.

    It is never made: an export needs no package of it, and a checkpoint names nothing that is run.
    """
    return of_spaces(
        *(name, partial(_never_made, name), *spaces),
        variant=FrozenMap(variant),
        wrappers=tuple(wrappers),
    )


def _never_made(name: str) -> gym.Env[Any, Any]:
    raise AssertionError(f"{name} is described by a checkpoint, and cannot be made")


def frozen(worlds: Worlds) -> list[bytes]:
    """Return all environments as signed pickles.

    There are none where one of the environments cannot be saved, as those of a vector.
    """
    states = [pickle_environment(env.env) for env in worlds.envs]
    return states if all(states) else []


def thawed(worlds: Worlds, states: Sequence[bytes], *, trust: bool) -> str:
    """Go on with the episodes of a checkpoint.

    Returns why that is not possible, empty if it is.
    """
    if not states or len(states) != len(worlds.envs):
        return NOT_RESTORABLE
    try:
        for env, state in zip(worlds.envs, states, strict=True):
            env.env = unpickle_environment(state, env.env, trust=trust)
            env.monitor = env.get_wrapper_attr("episode_monitor")
    except NotRestoredError as error:
        return str(error)
    return ""


def reseed(worlds: Worlds) -> None:
    """Start new random streams without starting new episodes."""
    for env in worlds.envs:
        seed = next_seed(worlds.member)
        env.unwrapped.np_random = seeding.np_random(seed)[0]
