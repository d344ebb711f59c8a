"""MountainCar-v0: drive an underpowered car out of a valley.

It is pushed left (0), not at all (1) or right (2).

State and observation: position, velocity. Reward -1 a step. Ends at position 0.5; truncated after
200 steps.

Reference:
    [Moore1990] A. Moore. Efficient memory-based learning for robot control. PhD thesis, Cambridge,
        1990; constants as in Gymnasium's MountainCar-v0.
"""

from __future__ import annotations

import math
from typing import Any

from autorl.population import rng
from autorl.population.environments.base import declare
from autorl.population.kernels import Array, inlined_kernel, kernel

LEFT = -1.2
RIGHT = 0.6
TOP_SPEED = 0.07
GOAL = 0.5


@kernel
def reset(state: Array, key: int) -> None:
    """Draw the position uniformly in [-0.6, -0.4], at rest."""
    state[0] = -0.6 + 0.2 * rng.uniform(key, 0)
    state[1] = 0.0


@inlined_kernel
def dynamics(state: Array, action: Array, p: tuple[float, ...]) -> tuple[float, Any]:
    """Move the car. The left wall stops it."""
    force, gravity = p
    speed = state[1] + (action[0] - 1.0) * force - gravity * math.cos(3.0 * state[0])
    speed = min(max(speed, -TOP_SPEED), TOP_SPEED)
    state[0] = min(max(state[0] + speed, LEFT), RIGHT)
    # Inelastic: at the left wall the car stops.
    state[1] = 0.0 if state[0] == LEFT and speed < 0.0 else speed
    return -1.0, state[0] >= GOAL and state[1] >= 0.0  # not rolling back


@kernel
def observe(state: Array, observation: Array) -> None:
    """Write the state itself."""
    observation[0] = state[0]
    observation[1] = state[1]


ENVIRONMENT = declare(__name__, (2, 2), reset, dynamics, observe, n_actions=3)
