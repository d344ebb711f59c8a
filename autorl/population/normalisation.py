"""Running normalisation of observations and rewards, as Stable-Baselines3's `VecNormalize`.

Observations are centred and divided by their running deviation, rewards divided by the running
deviation of the discounted return; both are clipped. The statistics are one member's and part of
its state. Order, types and rounding are those of `VecNormalize`: statistics take a batch of one
step's observations before that step is normalised; moments of a batch are computed in the
observations' own type, everything else in double precision; results are single ones.

References:
    [Chan1979] T. Chan, G. Golub, R. LeVeque. Updating formulae and a pairwise algorithm for
        computing sample variances. Stanford STAN-CS-79-773, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Setting
from autorl.population.kernels import Array, exact, kernel, program
from autorl.population.members import LENGTH, Member, World, begin

SETTINGS = {
    "norm_obs": Setting(True),
    "norm_reward": Setting(True),
    "clip_obs": Setting(10.0, lower=0.0),
    "clip_reward": Setting(10.0, lower=0.0),
    "gamma": Setting(0.99, lower=0.0, upper=1.0),
    "epsilon": Setting(1e-8, lower=0.0),
}
"""Arguments of `VecNormalize`, in the order of `Normaliser.settings`."""
NORM_OBS, NORM_REWARD, CLIP_OBS, CLIP_REWARD, GAMMA, EPSILON = range(len(SETTINGS))
OBSERVATIONS, RETURNS = range(2)
_FIRST_COUNT = 1e-4  # Stable-Baselines3's, of statistics that have seen nothing


class Normaliser(NamedTuple):
    """The part of a member's state that normalises.

    Attributes:
        settings: (len(SETTINGS),) float64.
        of_observations: (2, observation_size) float64, running mean and variance.
        of_returns: (2, 1) float64, those of discounted returns.
        counts: (2,) float64, how many rows are behind each of the two.
        returns: (n_envs, 1) float64, the discounted return of each running episode.
    """

    settings: Array
    of_observations: Array
    of_returns: Array
    counts: Array
    returns: Array


def new_normaliser(environment: Environment, n_envs: int, gamma: float) -> Normaliser:
    """Make statistics that have seen nothing.

    `gamma` is the agent's, as `settings` takes it.
    """
    size = environment.observation_size
    return Normaliser(
        settings=settings(environment.normalize or {}, gamma),
        of_observations=np.stack([np.zeros(size), np.ones(size)]),
        of_returns=np.array([[0.0], [1.0]]),
        counts=np.full(2, _FIRST_COUNT),
        returns=np.zeros((n_envs, 1)),
    )


def normaliser_of(
    state: Mapping[str, Any], environment: Environment, gamma: float
) -> Normaliser | None:
    """Return a state's normaliser, if any, with its environment's settings.

    Rewards are discounted by the agent's `gamma` unless the environment says.
    """
    normaliser: Normaliser | None = state.get("normaliser")
    if normaliser is not None:
        normaliser.settings[:] = settings(environment.normalize or {}, gamma)
    return normaliser


def settings(options: Mapping[str, Any], gamma: float) -> Array:
    """Return the settings that arguments of `VecNormalize` stand for.

    `gamma` is theirs if they have one.

    Raises:
        InputError: a value is not allowed. Unknown names are not looked at.
    """
    values = {"gamma": gamma, **options}
    encoded = [
        setting.encode(f"environment.normalize.{name}", values.get(name, setting.default))
        for name, setting in SETTINGS.items()
    ]
    return np.array(encoded, np.float64)


def arguments(normaliser: Normaliser) -> dict[str, Any]:
    """Return the settings as arguments of `VecNormalize`."""
    pairs = zip(SETTINGS.items(), normaliser.settings, strict=True)
    return {name: setting.decode(float(number)) for (name, setting), number in pairs}


class Observer(NamedTuple):
    """How an agent sees its environments and its replay memory.

    The memory has observations and rewards of the task, networks see them normalised by the present
    statistics, as Stable-Baselines3's `ReplayBuffer.sample` gives them. An agent without statistics
    has None in place of it: numba drops branches on an argument's type, so nothing is compiled.

    Attributes:
        normaliser: the statistics.
        rewards, ended: (n_envs,) float64, of one step.
        rows: (n_envs, observation_size), scratch memory.
    """

    normaliser: Normaliser
    rewards: Array
    ended: Array
    rows: Array


def normaliser_part(environment: Environment, n_envs: int, gamma: float) -> dict[str, Normaliser]:
    """Return the normaliser of a new state by its name, if any."""
    if environment.normalize is None:
        return {}
    return {"normaliser": new_normaliser(environment, n_envs, gamma)}


def observer_of(state: Mapping[str, Any]) -> Observer | None:
    """Return how an agent sees its environments, None as they are."""
    normaliser: Normaliser | None = state.get("normaliser")
    if normaliser is None:
        return None
    rewards, ended = np.zeros((2, len(normaliser.returns)))
    size = normaliser.of_observations.shape[1]
    rows = np.zeros((len(rewards), size), state["member"].parameters.dtype)
    return Observer(normaliser, rewards, ended, rows)


# No fused multiply-adds: as NumPy rounds, so that statistics are Stable-Baselines3's to the bit.
@exact
def absorb(moments: Array, counts: Array, which: int, batch: Array) -> None:
    """Add the rows of a batch to a running mean and variance.

    `moments` are (2, columns), `batch` is (rows, columns), counts[which] the rows so far. It is the
    parallel algorithm of [Chan1979].
    """
    real = batch.dtype.type
    rows = len(batch)
    count = counts[which]
    total = count + rows
    for j in range(batch.shape[1]):
        mean = real(0.0)
        for r in range(rows):
            mean += batch[r, j]
        mean = real(mean / real(rows))
        variance = real(0.0)
        for r in range(rows):
            deviation = batch[r, j] - mean
            variance += deviation * deviation
        variance = real(variance / real(rows))
        delta = float(mean) - moments[0, j]
        squares = moments[1, j] * count + float(real(variance * real(rows)))
        moments[0, j] += delta * rows / total
        moments[1, j] = (squares + delta * delta * count * rows / total) / total
    counts[which] = total


@exact
def normalise(normaliser: Normaliser, rows: Array) -> None:
    """Normalise observations (any, observation_size) in place."""
    if normaliser.settings[NORM_OBS] == 0.0:
        return
    bound = normaliser.settings[CLIP_OBS]
    for j in range(rows.shape[1]):
        mean = normaliser.of_observations[0, j]
        deviation = math.sqrt(normaliser.of_observations[1, j] + normaliser.settings[EPSILON])
        for r in range(len(rows)):
            value = (float(rows[r, j]) - mean) / deviation
            rows[r, j] = np.float32(min(max(value, -bound), bound))


@exact
def scale_rewards(normaliser: Normaliser, rewards: Array, ended: Array) -> None:
    """Scale the rewards of one step in place, after learning from them.

    `ended` is above 0 where an episode did: its discounted return begins anew.
    """
    returns = normaliser.returns
    for e in range(len(rewards)):
        # `DummyVecEnv` hands rewards on in single precision.
        rewards[e] = np.float32(rewards[e])
        returns[e, 0] = returns[e, 0] * normaliser.settings[GAMMA] + rewards[e]
    absorb(normaliser.of_returns, normaliser.counts, RETURNS, returns)
    bound = normaliser.settings[CLIP_REWARD]
    deviation = math.sqrt(normaliser.of_returns[1, 0] + normaliser.settings[EPSILON])
    for e in range(len(rewards)):
        if normaliser.settings[NORM_REWARD] != 0.0:
            rewards[e] = np.float32(min(max(rewards[e] / deviation, -bound), bound))
        if ended[e] > 0.0:
            returns[e, 0] = 0.0


@kernel
def absorb_observations(normaliser: Normaliser, rows: Array) -> None:
    """Learn from a step's observations, where they are normalised."""
    if normaliser.settings[NORM_OBS] != 0.0:
        absorb(normaliser.of_observations, normaliser.counts, OBSERVATIONS, rows)


# Not `target[:] = source`: numba would allocate where both may overlap.
@kernel
def copy_rows(target: Array, source: Array) -> None:
    """Copy an array (rows, columns) into another."""
    for r in range(len(source)):
        for j in range(source.shape[1]):
            target[r, j] = source[r, j]


@kernel
def take_in(
    normaliser: Normaliser, rows: Array, rewards: Array, ended: Array, finals: Array
) -> None:
    """Learn from one step of all environments, and normalise it in place.

    It is `VecNormalize.step_wait`.

    Args:
        normaliser: learns.
        rows: (n_envs, observation_size) observations, of new episodes where one ended.
        rewards: (n_envs,).
        ended: (n_envs,) above 0 where an episode did.
        finals: (any, observation_size) last observations of episodes.
    """
    absorb_observations(normaliser, rows)
    normalise(normaliser, rows)
    normalise(normaliser, finals)
    scale_rewards(normaliser, rewards, ended)


@kernel
def see(observer: Observer | None, rows: Array) -> None:
    """Normalise observations (any, observation_size) in place, if there is an observer."""
    if observer is not None:
        normalise(observer.normaliser, rows)


@exact
def seen_reward(observer: Observer | None, reward: float) -> float:
    """Return a reward of the memory as it is learned from."""
    if observer is None:
        return float(reward)
    normaliser = observer.normaliser
    scaled = float(reward)
    if normaliser.settings[NORM_REWARD] != 0.0:
        bound = normaliser.settings[CLIP_REWARD]
        deviation = math.sqrt(normaliser.of_returns[1, 0] + normaliser.settings[EPSILON])
        scaled = min(max(scaled / deviation, -bound), bound)
    return float(np.float32(scaled))


@kernel
def begin_observed(observer: Observer | None, member: Member, world: World) -> None:
    """Reset environments that were never reset, and learn from what they show."""
    fresh = member.episodes[0, LENGTH] < 0.0
    begin(member, world)
    if observer is None:
        return
    if fresh:
        observer.normaliser.returns.fill(0.0)
        learn_observations(observer, member, world)


@kernel
def look(observer: Observer | None, member: Member, world: World, inputs: Array) -> None:
    """Fill the inputs of a network with what native environments show."""
    n_envs = len(member.states)
    for e in range(n_envs):
        world.observe(member.states[e], inputs[e])
    see(observer, inputs[:n_envs])


@kernel
def note_step(observer: Observer | None, index: int, reward: float, over: bool) -> None:
    """Note reward and end of a step of environment `index`, for `learn_step`."""
    if observer is not None:
        observer.rewards[index] = reward
        observer.ended[index] = 1.0 if over else 0.0


@kernel
def learn_step(observer: Observer | None, member: Member, world: World) -> None:
    """Learn from one step of all environments, as `VecNormalize.step_wait` does."""
    if observer is not None:
        learn_observations(observer, member, world)
        scale_rewards(observer.normaliser, observer.rewards, observer.ended)


@kernel
def take_rewards(observer: Observer | None, rewards: Array) -> None:
    """Put the latest step's scaled rewards in place of the task's."""
    if observer is not None:
        for e in range(len(rewards)):
            rewards[e] = observer.rewards[e]


@kernel
def learn_observations(observer: Observer, member: Member, world: World) -> None:
    """Learn from the present observations."""
    for e in range(len(member.states)):
        world.observe(member.states[e], observer.rows[e])
    absorb_observations(observer.normaliser, observer.rows)


@program
def normalised_step(
    normaliser: Normaliser, rows: Array, rewards: Array, ended: Array, finals: Array
) -> None:
    """Do `take_in` for environments outside the compiled program."""
    take_in(normaliser, rows, rewards, ended, finals)


@program
def normalised_rows(normaliser: Normaliser, rows: Array, learning: bool) -> None:
    """Normalise observations in place, as `VecNormalize.reset` does if `learning`."""
    if learning:
        absorb_observations(normaliser, rows)
    normalise(normaliser, rows)
