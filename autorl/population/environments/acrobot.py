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

from autorl.population import rng
from autorl.population.environments.base import declare
from autorl.population.kernels import Array, inlined_kernel, kernel
from autorl.population.variants import NATIVE

GRAVITY = 9.8  # no parameter: it is no attribute of Gymnasium's environment
TOP_SPEED_1 = 4 * math.pi
TOP_SPEED_2 = 9 * math.pi
SECONDS_PER_STEP = 0.2
START = 0.1
Parameters = tuple[float, ...]
DEFAULTS = tuple(entry.default for entry in NATIVE["Acrobot-v1"].physics.values())


@kernel
def reset(state: Array, key: int) -> None:
    """Draw all four values uniformly in +-0.1."""
    for i in range(4):
        state[i] = START * (2.0 * rng.uniform(key, i) - 1.0)


@inlined_kernel
def dynamics(state: Array, action: Array, p: Parameters | None) -> tuple[float, bool]:
    """Make one step of the classical fourth-order Runge-Kutta method.

    Then angles are wrapped and velocities bounded. `p` None: with the defaults as constants.
    """
    torque = scaled(action[0] - 1.0, p)
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
    # The free end is one link's length above the pivot.
    terminated = -math.cos(state[0]) - math.cos(state[1] + state[0]) > 1.0
    return 0.0 if terminated else -1.0, terminated


@kernel
def observe(state: Array, observation: Array) -> None:
    """Write cosine and sine of each angle, and both velocities."""
    observation[0] = math.cos(state[0])
    observation[1] = math.sin(state[0])
    observation[2] = math.cos(state[1])
    observation[3] = math.sin(state[1])
    observation[4] = state[2]
    observation[5] = state[3]


@kernel
def scaled(torque: float, p: Parameters | None) -> float:
    """Scale a torque."""
    return torque if p is None else torque * p[6]


@kernel
def accelerations(
    angle_1: float,
    angle_2: float,
    speed_1: float,
    speed_2: float,
    torque: float,
    p: Parameters | None,
) -> tuple[float, float]:
    """Return the angular accelerations of both joints."""
    # Known when it is compiled: a kernel's own arguments are no constants in it.
    if p is None:
        return equations(angle_1, angle_2, speed_1, speed_2, torque, DEFAULTS)
    return equations(angle_1, angle_2, speed_1, speed_2, torque, p)


@inlined_kernel
def equations(
    angle_1: float, angle_2: float, speed_1: float, speed_2: float, torque: float, p: Parameters
) -> tuple[float, float]:
    """Return the angular accelerations of both joints (the book's equations of motion)."""
    length_1, mass_1, mass_2, com_1, com_2, moi, _ = p
    # sin stands for the book's cos(angle - pi / 2). The term of speed_1 in `second` is the book's
    # too: the NIPS paper leaves it out (Gymnasium's `book_or_nips`).
    reach = length_1 * com_2 * math.cos(angle_2)
    swing = length_1 * com_2 * math.sin(angle_2)
    second_moment = mass_2 * (length_1**2 + com_2**2 + 2 * reach)
    d1 = mass_1 * com_1**2 + second_moment + 2 * moi
    d2 = mass_2 * (com_2**2 + reach) + moi
    phi2 = mass_2 * com_2 * GRAVITY * math.sin(angle_1 + angle_2)
    phi1 = -mass_2 * swing * speed_2 * (speed_2 + 2 * speed_1) + phi2
    moment = mass_1 * com_1 + mass_2 * length_1
    phi1 += moment * GRAVITY * math.sin(angle_1)
    second = torque + d2 / d1 * phi1 - mass_2 * swing * speed_1**2 - phi2
    second /= mass_2 * com_2**2 + moi - d2**2 / d1
    return -(d2 * second + phi1) / d1, second


@kernel
def wrapped(angle: float) -> float:
    """Wrap `angle` into [-pi, pi]."""
    while angle > math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle


ENVIRONMENT = declare(__name__, (4, 6), reset, dynamics, observe, n_actions=3, constants=False)
