"""Evaluation episodes of the greedy policy, all of them side by side, each a function of its own key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from autorl.population import rng
from autorl.population.elementary import tanh
from autorl.population.environments.base import Environment
from autorl.population.kernels import Array, kernel, program
from autorl.population.members import World
from autorl.population.networks import Network, forward

ARGMAX, MEAN, SQUASHED = range(
    3
)  # how an action follows from the outputs: best index, clipped mean, tanh of the mean


class Episodes(NamedTuple):
    """Evaluation episodes in progress: one row each. `running` lists the rows still going, in its first entries."""

    keys: Array
    states: Array
    inputs: Array
    action: Array
    running: Array
    returns: Array
    lengths: Array


def make_episodes(keys: Sequence[int], environment: Environment, dtype: Any) -> Episodes:
    """Memory for one episode per key."""
    n = len(keys)
    return Episodes(
        keys=np.array(keys, np.uint64),
        states=np.zeros((n, environment.state_size)),
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
    reset: Any,
    step: Any,
    observe: Any,
) -> None:
    """Play every episode to its end with the best action of each state; fills `returns` and `lengths`."""
    world = World(reset, step, observe, limits[0], limits[1], limits[2])
    remaining = len(episodes.keys)
    for i in range(remaining):
        world.reset(episodes.states[i], rng.stream(episodes.keys[i], rng.RESET))
    t = 0
    while remaining > 0:
        for row in range(remaining):
            world.observe(episodes.states[episodes.running[row]], episodes.inputs[row])
        forward(policy, episodes.inputs, remaining)
        kept = 0
        for row in range(remaining):
            i = episodes.running[row]
            best_action(policy.outputs[row], head, world, episodes.action)
            key = rng.bits(rng.stream(episodes.keys[i], rng.DYNAMICS), t)
            reward, terminated = world.step(episodes.states[i], episodes.action, key)
            episodes.returns[i] += reward
            episodes.lengths[i] += 1.0
            if not terminated and episodes.lengths[i] < world.time_limit:
                episodes.running[kept] = i
                kept += 1
        remaining = kept
        t += 1


@kernel
def best_action(outputs: Array, head: int, world: World, action: Array) -> None:
    """The deterministic action of a policy with these outputs, within the environment's bounds."""
    if head == ARGMAX:
        best = 0
        for j in range(1, world.n_actions):
            if outputs[j] > outputs[best]:
                best = j
        action[0] = best
        return
    for i in range(len(action)):
        low, high = world.bounds[0, i], world.bounds[1, i]
        if head == SQUASHED:
            action[i] = low + 0.5 * (high - low) * (1.0 + tanh(outputs[i]))
        else:
            action[i] = min(max(outputs[i], low), high)
