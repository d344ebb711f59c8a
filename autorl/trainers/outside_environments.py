"""Environments outside the engine: made, checked, saved and restored.

An environment is made as `sb3/*` makes it, with the same errors; its spaces must be what the
compiled networks take.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding

from autorl.core.plain_text import did_you_mean
from autorl.core.plain_values import plain
from autorl.core.plugins import module_path
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError
from autorl.population.kernels import Array
from autorl.population.outside import (
    Env,
    EpisodeMonitor,
    OutsideEnvironment,
    Vector,
    VectorStep,
    Worlds,
    next_seed,
    of_spaces,
)
from autorl.trainers.environment_state import (
    NOT_RESTORABLE,
    NotRestoredError,
    pickle_environment,
    unpickle_environment,
)
from autorl.trainers.gymnasium_tasks import make_task, wrapped
from autorl.trainers.sb3.wrappers import components

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
        spaces = (env.observation_space, env.action_space)
        wrappers = tuple(plain(spec.wrappers))
        return described(spec.id, spaces, spec.kwargs, wrappers=wrappers, make=make)
    finally:
        env.close()


def _make(spec: EnvironmentSpec) -> gym.Env[Any, Any]:
    with module_path():
        return wrapped(EpisodeMonitor(make_task(spec)), spec.wrappers)


def described(
    name: str, spaces: Sequence[Any], variant: Mapping[str, Any], **fields: Any
) -> OutsideEnvironment:
    """Describe an environment by spaces that the compiled networks fit.

    An environment without the field `make` is never made: a vector steps it, or it is of a
    checkpoint, whose export needs no package of it, and which names nothing that is run.

    Args:
        name: its id.
        spaces: of observations and actions.
        variant: its arguments.
        fields: further ones of an `Environment`.

    Raises:
        InputError: the networks do not fit.
    """
    _check_observations(name, spaces[0])
    _check_actions(name, spaces[1])
    make = fields.pop("make", partial(_never_made, name))
    return of_spaces(name, make, *spaces, variant=FrozenMap(variant), **fields)


def _check_observations(name: str, space: gym.Space[Any]) -> None:
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


def _check_actions(name: str, space: gym.Space[Any]) -> None:
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


def _never_made(name: str) -> Env:
    raise AssertionError(f"{name} is described by a checkpoint or stepped in a vector")


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


_OURS = ("num_envs", "batch_size", "env_type", "gym_reset_return_info")
_LARGEST = 2**31 - 1  # EnvPool takes smaller ones
_SEEDS = ("seed", "env_seed")  # an agent's own


def vector_environment(spec: EnvironmentSpec) -> OutsideEnvironment:
    """Make a vector once, and describe its environments by their spaces.

    Raises:
        InputError: it cannot be made, has wrappers, does not begin an episode in the step that ends
            one, or the compiled networks do not fit it.
    """
    assert spec.id is not None
    if spec.wrappers:
        raise InputError(
            f"wrappers go around single environments, vec_env: {spec.vec_env} has none",
            key="environment.wrappers",
        )
    make: Callable[[Sequence[int]], StepsTogether] = partial(
        _pool if spec.vec_env == "envpool" else _registered, spec
    )
    vector = make([0])
    try:
        spaces = (vector.envs.single_observation_space, vector.envs.single_action_space)
        return described(spec.id, spaces, spec.kwargs, make_vector=make)
    finally:
        vector.close()


class StepsTogether(Vector):
    """A vector of Gymnasium's interface.

    Args:
        envs: the vector.
        begin: starts an episode in all environments, and returns the first observations.
        resets_itself: whether a step that ends an episode returns the first observation of the
            next. Otherwise `reset_mask` begins those.
    """

    def __init__(self, envs: Any, begin: Callable[[], Array], *, resets_itself: bool) -> None:
        self.envs = envs
        self._begin = begin
        self._resets_itself = resets_itself
        self._action_type = envs.single_action_space.dtype

    def reset(self) -> Array:
        """Begin an episode of each, and return the first observations (n, *shape)."""
        return self._begin()

    def step(self, actions: Array) -> VectorStep:
        """Make one step of each."""
        taken = actions.astype(self._action_type, copy=False)
        observations, rewards, terminated, truncated, infos = self.envs.step(taken)
        ended = np.flatnonzero(terminated | truncated)
        finals: dict[int, Array] = {}
        if len(ended):
            if self._resets_itself:
                finals = {int(index): infos["final_obs"][index] for index in ended}
            else:
                finals = {int(index): np.array(observations[index]) for index in ended}
                observations = self._with_next(observations, ended)
        return VectorStep(observations, rewards, terminated, truncated, finals)

    def _with_next(self, observations: Array, ended: Array) -> Array:
        mask = np.zeros(len(observations), np.bool_)
        mask[ended] = True
        first, _ = self.envs.reset(options={"reset_mask": mask})
        observations = np.array(observations)
        # EnvPool returns those it began, Gymnasium's vectors all.
        observations[ended] = first if len(first) == len(ended) else first[ended]
        return observations

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def _pool(spec: EnvironmentSpec, seeds: Sequence[int]) -> StepsTogether:
    """Make a pool of EnvPool, of one thread unless `kwargs` have `num_threads`."""
    try:
        envpool = importlib.import_module("envpool")
    except ModuleNotFoundError as error:
        raise InputError(
            'vec_env: envpool needs EnvPool: pip install "autorl[envpool]"',
            key="environment.vec_env",
        ) from error
    arguments = plain(spec.kwargs)
    for name in (*_OURS, *_SEEDS):
        if name in arguments:
            raise InputError(f"{name} is set by the trainer", key="environment.kwargs")
    ids = envpool.list_all_envs()
    if spec.id not in ids:
        hint = did_you_mean(spec.id or "", ids)
        raise InputError(f"EnvPool has no environment {spec.id!r}{hint}", key="environment.id")
    try:
        envs = envpool.make(
            spec.id,
            env_type="gymnasium",
            num_envs=len(seeds),
            seed=[int(seed) % _LARGEST for seed in seeds],
            **{"num_threads": 1, **arguments},
        )
    except TypeError as error:
        raise InputError(
            f"EnvPool does not make {spec.id!r} of these arguments: {error}",
            key="environment.kwargs",
        ) from error
    return StepsTogether(envs, partial(_first, envs), resets_itself=False)


def _registered(spec: EnvironmentSpec, seeds: Sequence[int]) -> StepsTogether:
    """Make what the id registers as its `vector_entry_point`."""
    assert spec.id is not None
    arguments = plain(spec.kwargs)
    try:
        with module_path():
            envs = gym.make_vec(
                spec.id, num_envs=len(seeds), vectorization_mode="vector_entry_point", **arguments
            )
    except ModuleNotFoundError as error:
        raise InputError(
            f"the module of {spec.id!r} cannot be imported: {error}", key="environment.id"
        ) from error
    except gym.error.Error as error:
        raise InputError(
            f"Gymnasium has no vector of {spec.id!r}: {error}", key="environment.id"
        ) from error
    # By name: Gymnasium 1.0 has none, and resets in the next step.
    mode = getattr(envs.metadata.get("autoreset_mode"), "name", "NEXT_STEP")
    if mode not in ("SAME_STEP", "DISABLED"):
        envs.close()
        raise InputError(
            f"the vector of {spec.id!r} begins an episode in the step after the one that ended; "
            "its metadata must say autoreset_mode SAME_STEP, or DISABLED with `reset_mask`",
            key="environment.vec_env",
        )
    begin = partial(_first, envs, seed=list(seeds))
    return StepsTogether(envs, begin, resets_itself=mode == "SAME_STEP")


def _first(envs: Any, **seed: Any) -> Array:
    observations: Array = envs.reset(**seed)[0]
    return observations
