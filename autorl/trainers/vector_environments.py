"""Environments that are stepped together: EnvPool's, and vectorised ones that Gymnasium registers.

EnvPool: Weng et al., EnvPool: A Highly Parallel Reinforcement Learning Environment Execution
Engine, NeurIPS 2022.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from autorl.core.plain_text import did_you_mean
from autorl.core.plain_values import plain
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError
from autorl.population.kernels import Array
from autorl.population.outside import Env, OutsideEnvironment, Vector, VectorStep, of_spaces
from autorl.trainers._shared import module_path
from autorl.trainers.outside_environments import check_actions, check_observations

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
    make: Callable[[Sequence[int]], StepsTogether]
    make = partial(_pool if spec.vec_env == "envpool" else _registered, spec)
    vector = make([0])
    try:
        observations = vector.envs.single_observation_space
        actions = vector.envs.single_action_space
        check_observations(spec.id, observations)
        check_actions(spec.id, actions)
        return of_spaces(
            spec.id,
            partial(_never_single, spec.id),
            observations,
            actions,
            variant=FrozenMap(spec.kwargs),
            make_vector=make,
        )
    finally:
        vector.close()


def _never_single(name: str) -> Env:
    raise AssertionError(f"{name} is stepped in a vector")


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
