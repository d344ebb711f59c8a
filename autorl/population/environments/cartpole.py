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
from typing import Any, NamedTuple

from autorl.population import rng
from autorl.population.environments.base import declare
from autorl.population.environments.noise import (
    ACTION_NOISE,
    PHYSICS,
    REWARD_SCALE,
    add_noise,
    disturbed_choice,
    draw_noise,
)
from autorl.population.kernels import Array, cached, inlined, kernel
from autorl.population.variants import physics_of

TRACK = 2.4
ANGLE = 12 * 2 * math.pi / 360  # in this order: Gymnasium's number to the bit
START = 0.05


class Physics(NamedTuple):
    """Constants that a variant may change."""

    gravity: float
    masscart: float
    masspole: float
    length: float
    force_mag: float
    tau: float


DEFAULTS = Physics(**physics_of(__name__))
# Places in a variant's state: noise of the observation, action applied, parameters.
NOISE = 4
APPLIED = NOISE + 4
VALUES = APPLIED + 1


@cached
def reset(state: Array, key: int) -> None:
    """Draw all four values uniformly in +-0.05."""
    for i in range(4):
        state[i] = START * (2.0 * rng.uniform(key, i) - 1.0)


@cached
def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step."""
    return dynamics(state, action, DEFAULTS)


@inlined
def dynamics(state: Array, action: Array, p: Physics) -> tuple[float, bool]:
    """Integrate over 20 ms by the explicit Euler method."""
    x = state[0]
    speed = state[1]
    angle = state[2]
    turn = state[3]
    force = p.force_mag if action[0] == 1.0 else -p.force_mag
    mass = p.masscart + p.masspole
    cosine = math.cos(angle)
    sine = math.sin(angle)
    pull = (force + p.masspole * p.length * turn * turn * sine) / mass
    turning = (p.gravity * sine - cosine * pull) / (
        p.length * (4.0 / 3.0 - p.masspole * cosine * cosine / mass)
    )
    speeding = pull - p.masspole * p.length * turning * cosine / mass
    # Explicit: positions move by the speeds before the step.
    state[0] = x + p.tau * speed
    state[1] = speed + p.tau * speeding
    state[2] = angle + p.tau * turn
    state[3] = turn + p.tau * turning
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


@cached
def reset_variant(state: Array, key: int) -> None:
    """Draw a first state, and the noise of its observation."""
    reset(state, key)
    draw_noise(state, NOISE, APPLIED, key)


@cached
def step_variant(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step with the parameters in the state."""
    physics = Physics(
        state[VALUES + PHYSICS],
        state[VALUES + PHYSICS + 1],
        state[VALUES + PHYSICS + 2],
        state[VALUES + PHYSICS + 3],
        state[VALUES + PHYSICS + 4],
        state[VALUES + PHYSICS + 5],
    )
    state[APPLIED] = disturbed_choice(action[0], state[VALUES + ACTION_NOISE], 2, key)
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
    (4, 4),
    (reset, step, observe),
    (reset_variant, step_variant, observe_variant),
    n_actions=2,
)
