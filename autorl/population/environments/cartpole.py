"""CartPole-v1: balance a pole on a cart.

The cart is pushed left (0) or right (1).

State and observation: position, velocity, angle, angular velocity. Reward 1 a step. Ends when the
cart leaves the track or the pole leans more than 12 degrees; truncated after 500 steps.

Reference:
    [Barto1983] A. Barto, R. Sutton, C. Anderson. Neuronlike adaptive elements that can solve
        difficult learning control problems. IEEE SMC 13(5), 1983; constants and integrator as in
        Gymnasium's CartPole-v1.
"""

from __future__ import annotations

import math
from typing import Any

from autorl.population import rng
from autorl.population.environments.base import Environment
from autorl.population.kernels import Array, cached, kernel

GRAVITY = 9.8
MASS_POLE = 0.1
MASS = 1.0 + MASS_POLE
HALF_LENGTH = 0.5
FORCE = 10.0
SECONDS_PER_STEP = 0.02
TRACK = 2.4
ANGLE = 12 * 2 * math.pi / 360  # in this order: Gymnasium's number to the bit
START = 0.05


@cached
def reset(state: Array, key: int) -> None:
    """Draw all four values uniformly in +-0.05."""
    for i in range(4):
        state[i] = START * (2.0 * rng.uniform(key, i) - 1.0)


@cached
def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Integrate over 20 ms by the explicit Euler method."""
    x = state[0]
    speed = state[1]
    angle = state[2]
    turn = state[3]
    force = FORCE if action[0] == 1.0 else -FORCE
    cosine = math.cos(angle)
    sine = math.sin(angle)
    pull = (force + MASS_POLE * HALF_LENGTH * turn * turn * sine) / MASS
    turning = (GRAVITY * sine - cosine * pull) / (
        HALF_LENGTH * (4.0 / 3.0 - MASS_POLE * cosine * cosine / MASS)
    )
    speeding = pull - MASS_POLE * HALF_LENGTH * turning * cosine / MASS
    # Explicit: positions move by the speeds before the step.
    state[0] = x + SECONDS_PER_STEP * speed
    state[1] = speed + SECONDS_PER_STEP * speeding
    state[2] = angle + SECONDS_PER_STEP * turn
    state[3] = turn + SECONDS_PER_STEP * turning
    return 1.0, is_terminated(state)


@cached
def observe(state: Array, observation: Array) -> None:
    """Write the state itself."""
    for i in range(4):
        observation[i] = state[i]


@kernel
def is_terminated(state: Array) -> Any:
    """Tell whether the cart left the track or the pole fell."""
    return abs(state[0]) > TRACK or abs(state[2]) > ANGLE


CARTPOLE = Environment("CartPole-v1", 4, 4, 500, reset, step, observe, n_actions=2)
