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
from typing import NamedTuple

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


class Physics(NamedTuple):
    """Constants that a variant may change."""

    g: float
    m: float
    l: float  # noqa: E741 - Gymnasium's name
    max_torque: float
    max_speed: float
    dt: float


DEFAULTS = Physics(**physics_of(__name__))
# Places in a variant's state: noise of the observation, action applied, parameters.
NOISE = 2
APPLIED = NOISE + 3
VALUES = APPLIED + 1


@cached
def reset(state: Array, key: int) -> None:
    """Draw the angle uniformly in +-pi, the velocity in +-1."""
    state[0] = math.pi * (2.0 * rng.uniform(key, 0) - 1.0)
    state[1] = 2.0 * rng.uniform(key, 1) - 1.0


@cached
def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step."""
    return dynamics(state, action, DEFAULTS)


@inlined
def dynamics(state: Array, action: Array, p: Physics) -> tuple[float, bool]:
    """Integrate over 50 ms by the semi-implicit Euler method."""
    angle = state[0]
    speed = state[1]
    torque = min(max(action[0], -p.max_torque), p.max_torque)
    # The cost is of the state before the step; the state itself goes on counting turns.
    lean = (angle + math.pi) % (2.0 * math.pi) - math.pi
    cost = lean * lean + 0.1 * speed * speed + 0.001 * torque * torque
    speed += (1.5 * p.g / p.l * math.sin(angle) + 3.0 / (p.m * p.l * p.l) * torque) * p.dt
    speed = min(max(speed, -p.max_speed), p.max_speed)
    # Semi-implicit: the angle moves by the new speed.
    state[0] = angle + speed * p.dt
    state[1] = speed
    return -cost, is_terminated(state)


@cached
def observe(state: Array, observation: Array) -> None:
    """Write cosine and sine of the angle, and the angular velocity."""
    observation[0] = math.cos(state[0])
    observation[1] = math.sin(state[0])
    observation[2] = state[1]


@kernel
def is_terminated(state: Array) -> bool:
    """Tell that it never ends."""
    return False


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
    state[APPLIED] = disturbed(
        action[0], state[VALUES + ACTION_NOISE], -physics.max_torque, physics.max_torque, key
    )
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
    (2, 3),
    (reset, step, observe),
    (reset_variant, step_variant, observe_variant),
    action_bound="max_torque",
    low=(-DEFAULTS.max_torque,),
    high=(DEFAULTS.max_torque,),
)
