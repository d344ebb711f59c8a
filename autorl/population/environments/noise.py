"""Disturbances of the variants of an environment.

They are noise in what is observed and in what is done. A draw is a function of the key of its step
or reset alone. The noise of an observation is drawn with the state and kept in it: whoever observes
a state twice sees the same, and a checkpoint has it.
"""

from __future__ import annotations

from autorl.population import rng
from autorl.population.kernels import Array, kernel

# Places after the noise of the observation; the parameters of the physics follow.
REWARD_SCALE, OBSERVATION_NOISE, ACTION_NOISE = range(3)
PHYSICS = 3
# Streams of a step's key; the physics draws from the key itself.
_OF_ACTION, _OF_OBSERVATION = range(1, 3)


@kernel
def disturbed_choice(choice: float, probability: float, n_actions: int, key: int) -> float:
    """Return `choice`, or with this probability an action drawn uniformly."""
    seed = rng.stream(key, _OF_ACTION)
    if rng.uniform(seed, 0) < probability:
        return float(rng.integer(seed, 1, n_actions))
    return choice


@kernel
def disturbed(action: float, deviation: float, low: float, high: float, key: int) -> float:
    """Return `action` with normal noise, within its bounds."""
    if deviation > 0.0:
        action = action + deviation * rng.normal(rng.stream(key, _OF_ACTION), 0)
    return min(max(action, low), high)


@kernel
def draw_noise(state: Array, first: int, end: int, key: int) -> None:
    """Draw the next observation's noise into `state[first:end]`."""
    # The action applied stands between the noise and the parameters.
    deviation = state[end + 1 + OBSERVATION_NOISE]
    if deviation > 0.0:
        seed = rng.stream(key, _OF_OBSERVATION)
        for i in range(end - first):
            state[first + i] = deviation * rng.normal(seed, i)


@kernel
def add_noise(state: Array, first: int, observation: Array) -> None:
    """Add the noise from `first` of the state on to the observation."""
    for i in range(len(observation)):
        observation[i] += state[first + i]
