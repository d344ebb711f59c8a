"""MountainCarContinuous-v0: the valley with a continuous push.

The push is in [-1, 1] and costs its square.

State and observation: position, velocity. Reward 100 at the flag minus 0.1 times the squared action
each step. Ends at position 0.45; truncated after 999 steps.

Reference:
    [Moore1990] A. Moore. Efficient memory-based learning for robot control. PhD thesis, Cambridge,
        1990; constants as in Gymnasium's MountainCarContinuous-v0, which keeps its state in
        float32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from autorl.population import rng
from autorl.population.environments.base import declare
from autorl.population.environments.noise import (
    ACTION_NOISE,
    PHYSICS,
    REWARD_SCALE,
    add_noise,
    disturbed,
    draw_noise,
)
from autorl.population.kernels import Array, cached, inlined, kernel
from autorl.population.variants import physics_of

LEFT = -1.2
RIGHT = 0.6
TOP_SPEED = 0.07
GOAL = 0.45  # MountainCar-v0's is 0.5
GRAVITY = 0.0025


class Physics(NamedTuple):
    """Constants that a variant may change.

    Not gravity: it is no attribute of Gymnasium's environment.
    """

    power: float


DEFAULTS = Physics(**physics_of(__name__))
# Places in a variant's state: noise of the observation, action applied, parameters.
NOISE = 2
APPLIED = NOISE + 2
VALUES = APPLIED + 1


@cached
def reset(state: Array, key: int) -> None:
    """Draw the position uniformly in [-0.6, -0.4], at rest."""
    state[0] = -0.6 + 0.2 * rng.uniform(key, 0)
    state[1] = 0.0


@cached
def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step."""
    return dynamics(state, action, DEFAULTS)


@inlined
def dynamics(state: Array, action: Array, p: Physics) -> tuple[float, bool]:
    """Move the car.

    The left wall stops it. The new state is rounded to float32.
    """
    push = min(max(action[0], -1.0), 1.0)
    speed = state[1] + push * p.power - GRAVITY * math.cos(3.0 * state[0])
    speed = min(max(speed, -TOP_SPEED), TOP_SPEED)
    position = min(max(state[0] + speed, LEFT), RIGHT)
    if position == LEFT and speed < 0.0:
        speed = 0.0
    # Judged before it is rounded, as in Gymnasium.
    arrived = is_terminated(position, speed)
    state[0] = np.float32(position)
    state[1] = np.float32(speed)
    # The push is clipped, its cost is that of the action as it came.
    return (100.0 if arrived else 0.0) - 0.1 * action[0] * action[0], arrived


@cached
def observe(state: Array, observation: Array) -> None:
    """Write the state itself."""
    observation[0] = state[0]
    observation[1] = state[1]


@kernel
def is_terminated(position: float, speed: float) -> bool:
    """Tell whether the car is at the flag, not rolling back."""
    return position >= GOAL and speed >= 0.0


@cached
def reset_variant(state: Array, key: int) -> None:
    """Draw a first state, and the noise of its observation."""
    reset(state, key)
    draw_noise(state, NOISE, APPLIED, key)


@cached
def step_variant(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step with the parameters in the state."""
    physics = Physics(state[VALUES + PHYSICS])
    state[APPLIED] = disturbed(action[0], state[VALUES + ACTION_NOISE], -1.0, 1.0, key)
    reward, terminated = dynamics(state, state[APPLIED:VALUES], physics)
    draw_noise(state, NOISE, APPLIED, key)
    return reward * state[VALUES + REWARD_SCALE], terminated


@cached
def observe_variant(state: Array, observation: Array) -> None:
    """Write what `observe` does, with the noise drawn for it."""
    observe(state, observation)
    add_noise(state, NOISE, observation)


ENVIRONMENT = declare(
    __name__,
    (2, 2),
    (reset, step, observe),
    (reset_variant, step_variant, observe_variant),
    low=(-1.0,),
    high=(1.0,),
)
