"""Acrobot-v1: swing the free end of a two-link arm above a line.

The torque on the elbow is -1 (action 0), 0 (1) or 1 (2).

State: both angles (0 = hanging down, the second relative to the first) and their velocities.
Observation: cosine and sine of each angle, both velocities. Reward -1 a step, 0 on arrival.
Truncated after 500 steps.

Reference:
    [Sutton2018] R. Sutton, A. Barto. Reinforcement Learning: An Introduction, 2nd edition: the
        book's dynamics, integrated as in Gymnasium's Acrobot-v1 (one Runge-Kutta step of 0.2 s).
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
    disturbed_choice,
    draw_noise,
)
from autorl.population.kernels import Array, cached, inlined, kernel
from autorl.population.variants import physics_of

GRAVITY = 9.8
TOP_SPEED_1 = 4 * math.pi
TOP_SPEED_2 = 9 * math.pi
SECONDS_PER_STEP = 0.2
START = 0.1


class Physics(NamedTuple):
    """Constants that a variant may change.

    Not the second link's length: it is in no equation. Not gravity: it is no attribute of
    Gymnasium's environment.
    """

    link_length_1: float
    link_mass_1: float
    link_mass_2: float
    link_com_1: float
    link_com_2: float
    link_moi: float
    torque: float


DEFAULTS = Physics(**physics_of(__name__))
# Places in a variant's state: noise of the observation, action applied, parameters.
NOISE = 4
APPLIED = NOISE + 6
VALUES = APPLIED + 1


@cached
def reset(state: Array, key: int) -> None:
    """Draw all four values uniformly in +-0.1."""
    for i in range(4):
        state[i] = START * (2.0 * rng.uniform(key, i) - 1.0)


@cached
def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Make one step."""
    return dynamics(state, action[0] - 1.0, None)


@inlined
def dynamics(state: Array, torque: float, p: Physics | None) -> tuple[float, bool]:
    """Make one step of the classical fourth-order Runge-Kutta method.

    Then angles are wrapped and velocities bounded. `p` None: with the defaults as constants.
    """
    h = SECONDS_PER_STEP
    a = state[0]
    b = state[1]
    u = state[2]
    v = state[3]
    u1, v1 = accelerations(a, b, u, v, torque, p)
    u2, v2 = accelerations(a + h / 2 * u, b + h / 2 * v, u + h / 2 * u1, v + h / 2 * v1, torque, p)
    ua = u + h / 2 * u1
    va = v + h / 2 * v1
    ub = u + h / 2 * u2
    vb = v + h / 2 * v2
    u3, v3 = accelerations(a + h / 2 * ua, b + h / 2 * va, ub, vb, torque, p)
    uc = u + h * u3
    vc = v + h * v3
    u4, v4 = accelerations(a + h * ub, b + h * vb, uc, vc, torque, p)
    state[0] = wrapped(a + h / 6 * (u + 2 * ua + 2 * ub + uc))
    state[1] = wrapped(b + h / 6 * (v + 2 * va + 2 * vb + vc))
    state[2] = min(max(u + h / 6 * (u1 + 2 * u2 + 2 * u3 + u4), -TOP_SPEED_1), TOP_SPEED_1)
    state[3] = min(max(v + h / 6 * (v1 + 2 * v2 + 2 * v3 + v4), -TOP_SPEED_2), TOP_SPEED_2)
    terminated = is_terminated(state)
    return 0.0 if terminated else -1.0, terminated


@cached
def observe(state: Array, observation: Array) -> None:
    """Write cosine and sine of each angle, and both velocities."""
    observation[0] = math.cos(state[0])
    observation[1] = math.sin(state[0])
    observation[2] = math.cos(state[1])
    observation[3] = math.sin(state[1])
    observation[4] = state[2]
    observation[5] = state[3]


@kernel
def is_terminated(state: Array) -> bool:
    """Tell whether the free end is one link's length above the pivot."""
    return -math.cos(state[0]) - math.cos(state[1] + state[0]) > 1.0


@kernel
def accelerations(
    angle_1: float, angle_2: float, speed_1: float, speed_2: float, torque: float, p: Physics | None
) -> tuple[float, float]:
    """Return the angular accelerations of both joints."""
    # Known when it is compiled: a kernel's own arguments are no constants in it.
    if p is None:
        return equations(angle_1, angle_2, speed_1, speed_2, torque, DEFAULTS)
    return equations(angle_1, angle_2, speed_1, speed_2, torque, p)


@inlined
def equations(
    angle_1: float, angle_2: float, speed_1: float, speed_2: float, torque: float, p: Physics
) -> tuple[float, float]:
    """Return the angular accelerations of both joints (the book's equations of motion)."""
    # sin stands for the book's cos(angle - pi / 2). The term of speed_1 in `second` is the book's
    # too: the NIPS paper leaves it out (Gymnasium's `book_or_nips`).
    reach = p.link_length_1 * p.link_com_2 * math.cos(angle_2)
    swing = p.link_length_1 * p.link_com_2 * math.sin(angle_2)
    second_moment = p.link_mass_2 * (p.link_length_1**2 + p.link_com_2**2 + 2 * reach)
    d1 = p.link_mass_1 * p.link_com_1**2 + second_moment + 2 * p.link_moi
    d2 = p.link_mass_2 * (p.link_com_2**2 + reach) + p.link_moi
    phi2 = p.link_mass_2 * p.link_com_2 * GRAVITY * math.sin(angle_1 + angle_2)
    phi1 = -p.link_mass_2 * swing * speed_2 * (speed_2 + 2 * speed_1) + phi2
    moment = p.link_mass_1 * p.link_com_1 + p.link_mass_2 * p.link_length_1
    phi1 += moment * GRAVITY * math.sin(angle_1)
    second = torque + d2 / d1 * phi1 - p.link_mass_2 * swing * speed_1**2 - phi2
    second /= p.link_mass_2 * p.link_com_2**2 + p.link_moi - d2**2 / d1
    return -(d2 * second + phi1) / d1, second


@kernel
def wrapped(angle: float) -> float:
    """Wrap `angle` into [-pi, pi]."""
    while angle > math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle


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
        state[VALUES + PHYSICS + 6],
    )
    state[APPLIED] = disturbed_choice(action[0], state[VALUES + ACTION_NOISE], 3, key)
    reward, terminated = dynamics(state, (state[APPLIED] - 1.0) * physics.torque, physics)
    draw_noise(state, NOISE, APPLIED, key)
    return reward * state[VALUES + REWARD_SCALE], terminated


@cached
def observe_variant(state: Array, observation: Array) -> None:
    """Write what `observe` does, with the noise drawn for it."""
    observe(state, observation)
    add_noise(state, NOISE, observation)


ENVIRONMENT = declare(
    __name__,
    (4, 6),
    (reset, step, observe),
    (reset_variant, step_variant, observe_variant),
    n_actions=3,
)
