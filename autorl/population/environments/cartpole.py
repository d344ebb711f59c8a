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
from autorl.population.environments.base import declare
from autorl.population.kernels import Array, inlined_kernel, kernel

TRACK = 2.4
ANGLE = 12 * 2 * math.pi / 360  # in this order: Gymnasium's number to the bit
START = 0.05


@kernel
def reset(state: Array, key: int) -> None:
    """Draw all four values uniformly in +-0.05."""
    for i in range(4):
        state[i] = START * (2.0 * rng.uniform(key, i) - 1.0)


@inlined_kernel
def dynamics(state: Array, action: Array, p: tuple[float, ...]) -> tuple[float, Any]:
    """Integrate over 20 ms by the explicit Euler method."""
    gravity, masscart, masspole, length, force_mag, tau = p
    x = state[0]
    speed = state[1]
    angle = state[2]
    turn = state[3]
    force = force_mag if action[0] == 1.0 else -force_mag
    mass = masscart + masspole
    cosine = math.cos(angle)
    sine = math.sin(angle)
    pull = (force + masspole * length * turn * turn * sine) / mass
    turning = (gravity * sine - cosine * pull) / (
        length * (4.0 / 3.0 - masspole * cosine * cosine / mass)
    )
    speeding = pull - masspole * length * turning * cosine / mass
    # Explicit: positions move by the speeds before the step.
    state[0] = x + tau * speed
    state[1] = speed + tau * speeding
    state[2] = angle + tau * turn
    state[3] = turn + tau * turning
    return 1.0, abs(state[0]) > TRACK or abs(state[2]) > ANGLE


@kernel
def observe(state: Array, observation: Array) -> None:
    """Write the state itself."""
    for i in range(4):
        observation[i] = state[i]


ENVIRONMENT = declare(__name__, (4, 4), reset, dynamics, observe, n_actions=2)
