"""The state of one member, in plain arrays only.

A checkpoint holds it, a fork copies it, and the kernels advance it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from autorl.population import rng
from autorl.population.environments.base import Environment
from autorl.population.kernels import Array, aligned_zeros, kernel

RETURN = 0
LENGTH = 1
STEPS, UPDATES, EPISODES = range(3)
MEASURES = 8  # of the updates, at most
RECENT = 100  # training episodes behind `train_return`, as in Stable-Baselines3


class Member(NamedTuple):
    """One agent in training.

    Attributes:
        key: (1,) uint64, the root of every random stream of this member.
        counters: (rng.PURPOSES,) int64, draws made so far for each purpose.
        counts: (3,) int64: environment steps, gradient updates, finished episodes.
        parameters: (n,) every trained number, flat.
        moments: (2, n) of the optimizer.
        states: (n_envs, state_size) float64, the environments.
        episodes: (n_envs, 2) float64, return and length so far of each running episode.
        recent: (RECENT,) float64, the returns of the last finished episodes, in a ring.
        measures: (MEASURES,) float64, of updates, named by `Algorithm.measures`; NaN before one.
    """

    key: Array
    counters: Array
    counts: Array
    parameters: Array
    moments: Array
    states: Array
    episodes: Array
    recent: Array
    measures: Array


class World(NamedTuple):
    """An environment inside a program.

    Its functions are pointers; with them come its time limit and its actions.
    """

    reset: Callable[[Array, int], None]
    step: Callable[[Array, Array, int], tuple[float, bool]]
    observe: Callable[[Array, Array], None]
    time_limit: int
    n_actions: int
    bounds: Array


def new_member(key: int, parameters: Array, environment: Environment, n_envs: int) -> Member:
    """Make a member at step 0.

    Its environments still have to be reset (by `begin_observed`).
    """
    return Member(
        key=np.array([key], np.uint64),
        counters=np.zeros(rng.PURPOSES, np.int64),
        counts=np.zeros(3, np.int64),
        parameters=parameters,
        moments=aligned_zeros((2, len(parameters)), parameters.dtype),
        states=environment.states(n_envs),
        episodes=np.full((n_envs, 2), -1.0),  # a length below 0: never reset
        recent=np.zeros(RECENT),
        measures=np.full(MEASURES, np.nan),
    )


def is_finite(member: Member) -> bool:
    """Tell whether every parameter is finite: training has not diverged."""
    return bool(np.isfinite(member.parameters).all())


@kernel
def draw(member: Member, purpose: int) -> Any:
    """Return the counter of the member's next draw for `purpose`."""
    counter = member.counters[purpose]
    member.counters[purpose] += 1
    return counter


@kernel
def restart(member: Member, world: World, index: int) -> None:
    """Begin a new episode in environment `index`.

    The episode has a key of its own.
    """
    episode = rng.bits(rng.stream(member.key[0], rng.RESET), draw(member, rng.RESET))
    world.reset(member.states[index], episode)
    member.episodes[index, RETURN] = 0.0
    member.episodes[index, LENGTH] = 0.0


@kernel
def advance(member: Member, world: World, index: int, action: Array) -> tuple[float, bool, bool]:
    """Make one step of environment `index`.

    Returns (reward, terminated, truncated). The final state stays until `restart`.
    """
    key = rng.bits(rng.stream(member.key[0], rng.DYNAMICS), draw(member, rng.DYNAMICS))
    reward, terminated = world.step(member.states[index], action, key)
    member.counts[STEPS] += 1
    member.episodes[index, RETURN] += reward
    member.episodes[index, LENGTH] += 1.0
    # Never both: at the limit a terminal state is terminal, and does not bootstrap.
    truncated = not terminated and member.episodes[index, LENGTH] >= world.time_limit
    if terminated or truncated:
        member.recent[member.counts[EPISODES] % RECENT] = member.episodes[index, RETURN]
        member.counts[EPISODES] += 1
    return reward, terminated, truncated
