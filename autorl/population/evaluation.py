"""Plays evaluation episodes of the greedy policy, side by side.

Each episode is a function of its own key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import rng
from autorl.population.elementary import tanh
from autorl.population.environments.base import Environment
from autorl.population.kernels import Array, kernel, program
from autorl.population.members import World
from autorl.population.networks import Network, forward, with_rows
from autorl.population.normalisation import Normaliser, normalise, normalised_rows
from autorl.population.outside import OutsideEnvironment, begin_episode, propagate
from autorl.statistics.episodes import add_info

# How an action follows from the outputs: best index, clipped mean, tanh of the mean.
ARGMAX, MEAN, SQUASHED = range(3)
SIDE_BY_SIDE = 16  # evaluation episodes at a time, where Python steps them one by one


class Episodes(NamedTuple):
    """Evaluation episodes in progress, one row each.

    `running` lists the rows still going, in its first entries.
    """

    keys: Array
    states: Array
    inputs: Array
    action: Array
    running: Array
    returns: Array
    lengths: Array


def make_episodes(keys: Sequence[int], environment: Environment, dtype: npt.DTypeLike) -> Episodes:
    """Make memory for one episode per key."""
    n = len(keys)
    return Episodes(
        keys=np.array(keys, np.uint64),
        states=environment.states(n),
        inputs=np.zeros((n, environment.observation_size), dtype),
        action=np.zeros(environment.action_size),
        running=np.arange(n),
        returns=np.zeros(n),
        lengths=np.zeros(n),
    )


@program
def evaluate(
    policy: Network,
    head: int,
    episodes: Episodes,
    limits: tuple[int, int, Array],
    reset: Callable[[Array, int], None],
    step: Callable[[Array, Array, int], tuple[float, bool]],
    observe: Callable[[Array, Array], None],
    normaliser: Normaliser | None,
) -> None:
    """Play every episode to its end with each state's best action.

    `returns` and `lengths` of the episodes are filled. Statistics of a normaliser are read only.
    """
    world = World(reset, step, observe, limits[0], limits[1], limits[2])
    remaining = len(episodes.keys)
    for i in range(remaining):
        world.reset(episodes.states[i], rng.stream(episodes.keys[i], rng.RESET))
    t = 0
    while remaining > 0:
        for row in range(remaining):
            world.observe(episodes.states[episodes.running[row]], episodes.inputs[row])
        # Compiled to nothing for None: numba drops branches on an argument's type.
        if normaliser is not None:
            normalise(normaliser, episodes.inputs[:remaining])
        forward(policy, episodes.inputs, remaining)
        # Episodes that go on move to the front: the network is run for them only.
        still_running = 0
        for row in range(remaining):
            i = episodes.running[row]
            best_action(policy.outputs[row], head, world, episodes.action)
            # The key depends on the episode and its step alone, not on other episodes.
            key = rng.bits(rng.stream(episodes.keys[i], rng.DYNAMICS), t)
            reward, terminated = world.step(episodes.states[i], episodes.action, key)
            episodes.returns[i] += reward
            episodes.lengths[i] += 1.0
            if not terminated and episodes.lengths[i] < world.time_limit:
                episodes.running[still_running] = i
                still_running += 1
        remaining = still_running
        t += 1


@kernel
def best_action(outputs: Array, head: int, world: World, action: Array) -> None:
    """Choose the deterministic action of a policy with these outputs.

    It lies within the environment's bounds.
    """
    if head == ARGMAX:
        best = 0
        for j in range(1, world.n_actions):
            if outputs[j] > outputs[best]:
                best = j
        action[0] = best
        return
    for i in range(len(action)):
        low = world.bounds[0, i]
        high = world.bounds[1, i]
        if head == SQUASHED:
            action[i] = low + 0.5 * (high - low) * (1.0 + tanh(outputs[i]))
        else:
            action[i] = min(max(outputs[i], low), high)


def _acting(
    policy: Network,
    head: int,
    environment: OutsideEnvironment,
    count: int,
    normaliser: Normaliser | None,
) -> tuple[Array, Callable[[int], Array]]:
    """Return rows for observations, and what acts on the first ones.

    `count` observations are filled in as they are; actions are what environments receive.
    """
    policy = with_rows(policy, count)
    shape = (count, environment.observation_size)
    inputs = np.zeros(shape, policy.parameters.dtype)
    rows: Array = inputs if normaliser is None else np.zeros(shape, environment.real)
    propagated = propagate.prepared(policy, inputs, 0)
    normalised = normaliser and normalised_rows.prepared(normaliser, rows, False)

    def actions(count: int) -> Array:
        if normalised:
            normalised(normaliser, rows, False)
            inputs[:] = rows
        propagated(policy, inputs, count)
        outputs = policy.outputs[:count]
        if head == ARGMAX:
            best = np.argmax(outputs[:, : environment.n_actions], axis=1)
            return environment.applied(best[:, None])
        means = outputs[:, : environment.action_size].astype(np.float64)
        squashed = head == SQUASHED
        return environment.applied(environment.stretched(np.tanh(means)) if squashed else means)

    return rows, actions


def evaluate_outside(
    policy: Network,
    head: int,
    environment: OutsideEnvironment,
    seeds: Sequence[int],
    normaliser: Normaliser | None = None,
    info: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Array, Array, list[dict[str, float]]]:
    """Play one greedy episode per seed, in fresh environments.

    An environment whose episode has ended takes the next seed. Environments that are stepped
    together play one episode each.

    Returns:
        Returns, lengths and what `info` asks for of each, in the order of the seeds.
    """
    if environment.make_vector is not None:
        return *_evaluate_vector(policy, head, environment, seeds, normaliser), []
    count = min(SIDE_BY_SIDE, len(seeds))
    observed, actions = _acting(policy, head, environment, count, normaliser)
    results = np.zeros((2, len(seeds)))
    infos: list[dict[str, float]] = [{} for _ in seeds]
    envs = [environment.make() for _ in range(count)]
    try:
        monitors = [env.get_wrapper_attr("episode_monitor") for env in envs]
        running = {slot: slot for slot in range(count)}  # environment -> episode
        observations = {slot: begin_episode(envs[slot], seeds[slot]) for slot in running}
        pending = iter(range(count, len(seeds)))
        while running:
            slots = sorted(running)
            for row, slot in enumerate(slots):
                observed[row] = np.ravel(observations[slot])
            for slot, action in zip(slots, actions(len(slots)), strict=True):
                observations[slot], _, terminated, truncated, said = envs[slot].step(action)
                add_info(infos[running[slot]], info, "sum", said)
                if not (terminated or truncated):
                    continue
                finished = monitors[slot].take()
                # A limit among the wrappers, below that of the task, ends every episode.
                if finished is None and truncated:
                    finished = monitors[slot].returned, monitors[slot].length
                if finished is None:  # a wrapper ended it (a life lost), the task goes on
                    observations[slot] = envs[slot].reset()[0]
                    continue
                add_info(infos[running[slot]], info, "last", said)
                results[:, running.pop(slot)] = finished
                following = next(pending, None)
                if following is not None:
                    running[slot] = following
                    observations[slot] = begin_episode(envs[slot], seeds[following])
    finally:
        for env in envs:
            env.close()
    return results[0], results[1], infos


def _evaluate_vector(
    policy: Network,
    head: int,
    environment: OutsideEnvironment,
    seeds: Sequence[int],
    normaliser: Normaliser | None,
) -> tuple[Array, Array]:
    """Play the first episode of an environment per seed, all stepped together."""
    make = environment.make_vector
    assert make is not None
    count = len(seeds)
    observed, actions = _acting(policy, head, environment, count, normaliser)
    results = np.zeros((2, count))
    running = np.ones(count, np.bool_)
    vector = make(seeds)
    try:
        observed[:] = vector.reset().reshape(count, -1)
        while running.any():
            step = vector.step(actions(count))
            results[0, running] += step.rewards[running]
            results[1, running] += 1.0
            running &= ~(step.terminated | step.truncated)
            observed[:] = step.observations.reshape(count, -1)
    finally:
        vector.close()
    return results[0], results[1]
