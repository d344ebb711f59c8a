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

from autorl.population.environments.base import declare
from autorl.population.environments.mountain_car import LEFT, RIGHT, TOP_SPEED, observe, reset
from autorl.population.kernels import Array, inlined_kernel

GOAL = 0.45  # MountainCar-v0's is 0.5
GRAVITY = 0.0025  # no parameter: it is no attribute of Gymnasium's environment


@inlined_kernel
def dynamics(state: Array, action: Array, p: tuple[float, ...]) -> tuple[float, bool]:
    """Move the car.

    The left wall stops it. The new state is rounded to float32.
    """
    (power,) = p
    push = min(max(action[0], -1.0), 1.0)
    speed = state[1] + push * power - GRAVITY * math.cos(3.0 * state[0])
    speed = min(max(speed, -TOP_SPEED), TOP_SPEED)
    position = min(max(state[0] + speed, LEFT), RIGHT)
    if position == LEFT and speed < 0.0:
        speed = 0.0
    # Judged before it is rounded, as in Gymnasium.
    arrived = position >= GOAL and speed >= 0.0
    state[0] = np.float32(position)
    state[1] = np.float32(speed)
    # The push is clipped, its cost is that of the action as it came.
    return (100.0 if arrived else 0.0) - 0.1 * action[0] * action[0], arrived


ENVIRONMENT = declare(__name__, (2, 2), reset, dynamics, observe, bound=1.0)
