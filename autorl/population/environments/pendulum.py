"""Pendulum-v1: swing a pendulum up and hold it there.

The torque is in [-2, 2].

State: angle (0 = upright), angular velocity. Observation: cosine and sine of the angle, angular
velocity. Reward: minus angle^2 + 0.1 velocity^2 + 0.001 torque^2. Never ends by itself; truncated
after 200 steps.

Reference:
    Constants and integrator as in Gymnasium's Pendulum-v1.
"""

from __future__ import annotations

import math

from autorl.population import rng
from autorl.population.environments.base import declare
from autorl.population.kernels import Array, inlined_kernel, kernel


@kernel
def reset(state: Array, key: int) -> None:
    """Draw the angle uniformly in +-pi, the velocity in +-1."""
    state[0] = math.pi * (2.0 * rng.uniform(key, 0) - 1.0)
    state[1] = 2.0 * rng.uniform(key, 1) - 1.0


@inlined_kernel
def dynamics(state: Array, action: Array, p: tuple[float, ...]) -> tuple[float, bool]:
    """Integrate over 50 ms by the semi-implicit Euler method."""
    g, m, length, max_torque, max_speed, dt = p
    angle = state[0]
    speed = state[1]
    torque = min(max(action[0], -max_torque), max_torque)
    # The cost is of the state before the step; the state itself goes on counting turns.
    lean = (angle + math.pi) % (2.0 * math.pi) - math.pi
    cost = lean * lean + 0.1 * speed * speed + 0.001 * torque * torque
    speed += (1.5 * g / length * math.sin(angle) + 3.0 / (m * length * length) * torque) * dt
    speed = min(max(speed, -max_speed), max_speed)
    # Semi-implicit: the angle moves by the new speed.
    state[0] = angle + speed * dt
    state[1] = speed
    return -cost, False


@kernel
def observe(state: Array, observation: Array) -> None:
    """Write cosine and sine of the angle, and the angular velocity."""
    observation[0] = math.cos(state[0])
    observation[1] = math.sin(state[0])
    observation[2] = state[1]


ENVIRONMENT = declare(__name__, (2, 3), reset, dynamics, observe)
