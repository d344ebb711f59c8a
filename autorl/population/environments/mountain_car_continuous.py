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

import numpy as np

from autorl.population import rng
from autorl.population.environments.base import Environment
from autorl.population.kernels import Array, cached, kernel

LEFT = -1.2
RIGHT = 0.6
TOP_SPEED = 0.07
GOAL = 0.45  # MountainCar-v0's is 0.5
POWER = 0.0015
GRAVITY = 0.0025


@cached
def reset(state: Array, key: int) -> None:
    """Draw the position uniformly in [-0.6, -0.4], at rest."""
    state[0] = -0.6 + 0.2 * rng.uniform(key, 0)
    state[1] = 0.0


@cached
def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step.

    The left wall stops the car. The new state is rounded to float32.
    """
    push = min(max(action[0], -1.0), 1.0)
    speed = state[1] + push * POWER - GRAVITY * math.cos(3.0 * state[0])
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


MOUNTAIN_CAR_CONTINUOUS = Environment(
    "MountainCarContinuous-v0", 2, 2, 999, reset, step, observe, low=(-1.0,), high=(1.0,)
)
