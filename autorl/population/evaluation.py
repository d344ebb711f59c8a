"""Plays evaluation episodes of the greedy policy, side by side.

Each episode is a function of its own key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import rng
from autorl.population.elementary import tanh
from autorl.population.environments.base import Environment
from autorl.population.kernels import Array, kernel, program
from autorl.population.members import World
from autorl.population.networks import Network, forward
from autorl.population.normalisation import Normaliser, normalise

# How an action follows from the outputs: best index, clipped mean, tanh of the mean.
ARGMAX, MEAN, SQUASHED = range(3)


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
