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
from autorl.population.members import LENGTH, Member, World, restart

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


def normaliser_part(environment: Environment, n_envs: int, gamma: float) -> dict[str, Normaliser]:
    """Make the statistics of a new state by their name, if any.

    They have seen nothing. `gamma` is the agent's, as `settings` takes it.
    """
    if environment.normalize is None:
        return {}
    size = environment.observation_size
    made = Normaliser(
        settings=settings(environment.normalize, gamma),
        of_observations=np.stack([np.zeros(size), np.ones(size)]),
        of_returns=np.array([[0.0], [1.0]]),
        counts=np.full(2, _FIRST_COUNT),
        returns=np.zeros((n_envs, 1)),
    )
    return {"normaliser": made}


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
def scaled(normaliser: Normaliser, reward: float) -> float:
    """Scale a reward if rewards are, and round it to single precision."""
    value = float(reward)
    if normaliser.settings[NORM_REWARD] != 0.0:
        bound = normaliser.settings[CLIP_REWARD]
        deviation = math.sqrt(normaliser.of_returns[1, 0] + normaliser.settings[EPSILON])
        value = min(max(value / deviation, -bound), bound)
    return float(np.float32(value))


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
    for e in range(len(rewards)):
        rewards[e] = scaled(normaliser, rewards[e])
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


# An agent without statistics has None in place of a normaliser: numba drops branches on an
# argument's type, so nothing is compiled.
@kernel
def see(normaliser: Normaliser | None, rows: Array) -> None:
    """Normalise observations (any, observation_size) in place, if that is asked."""
    if normaliser is not None:
        normalise(normaliser, rows)


@exact
def seen_reward(normaliser: Normaliser | None, reward: float) -> float:
    """Return a reward of the memory as it is learned from.

    The memory has what the task gave. Networks learn from it by the present statistics, as
    Stable-Baselines3's `ReplayBuffer.sample` gives it.
    """
    if normaliser is None:
        return float(reward)
    return scaled(normaliser, reward)


@kernel
def look(normaliser: Normaliser | None, member: Member, world: World, inputs: Array) -> None:
    """Fill the inputs of a network with what native environments show."""
    n_envs = len(member.states)
    for e in range(n_envs):
        world.observe(member.states[e], inputs[e])
    see(normaliser, inputs[:n_envs])


@kernel
def begin_observed(
    normaliser: Normaliser | None, member: Member, world: World, inputs: Array
) -> None:
    """Reset environments that were never reset, and learn from what they show."""
    fresh = member.episodes[0, LENGTH] < 0.0
    for index in range(len(member.states)):
        if member.episodes[index, LENGTH] < 0.0:
            restart(member, world, index)
    if normaliser is None:
        return
    if fresh:
        normaliser.returns.fill(0.0)
        look(None, member, world, inputs)
        absorb_observations(normaliser, inputs[: len(member.states)])


@kernel
def learn_step(
    normaliser: Normaliser | None,
    member: Member,
    world: World,
    inputs: Array,
    rewards: Array,
    ended: Array,
) -> None:
    """Learn from a step of all environments, and scale its rewards.

    In place, as `VecNormalize.step_wait` does. `inputs` are scratch memory.
    """
    if normaliser is not None:
        look(None, member, world, inputs)
        absorb_observations(normaliser, inputs[: len(member.states)])
        scale_rewards(normaliser, rewards, ended)


@program
def normalised_step(
    normaliser: Normaliser, rows: Array, rewards: Array, ended: Array, finals: Array
) -> None:
    """Learn from a step of environments outside, and normalise it.

    In place, as `VecNormalize.step_wait` does.

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


@program
def normalised_rows(normaliser: Normaliser, rows: Array, learning: bool) -> None:
    """Normalise observations in place, as `VecNormalize.reset` does if `learning`."""
    if learning:
        absorb_observations(normaliser, rows)
    normalise(normaliser, rows)
