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

LEFT = -1.2
RIGHT = 0.6
TOP_SPEED = 0.07
GOAL = 0.5


class Physics(NamedTuple):
    """Constants that a variant may change."""

    force: float
    gravity: float


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

    The left wall stops it.
    """
    speed = state[1] + (action[0] - 1.0) * p.force - p.gravity * math.cos(3.0 * state[0])
    speed = min(max(speed, -TOP_SPEED), TOP_SPEED)
    state[0] = min(max(state[0] + speed, LEFT), RIGHT)
    # Inelastic: at the left wall the car stops.
    state[1] = 0.0 if state[0] == LEFT and speed < 0.0 else speed
    return -1.0, is_terminated(state)


@cached
def observe(state: Array, observation: Array) -> None:
    """Write the state itself."""
    observation[0] = state[0]
    observation[1] = state[1]


@kernel
def is_terminated(state: Array) -> Any:
    """Tell whether the car is at the flag, not rolling back."""
    return state[0] >= GOAL and state[1] >= 0.0


@cached
def reset_variant(state: Array, key: int) -> None:
    """Draw a first state, and the noise of its observation."""
    reset(state, key)
    draw_noise(state, NOISE, APPLIED, key)


@cached
def step_variant(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step with the parameters in the state."""
    physics = Physics(state[VALUES + PHYSICS], state[VALUES + PHYSICS + 1])
    state[APPLIED] = disturbed_choice(action[0], state[VALUES + ACTION_NOISE], 3, key)
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
    n_actions=3,
)
