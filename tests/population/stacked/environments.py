"""The native environments as functions of stacked states, (P, n_envs, state_size) float64.

Each has the three functions of a native one, over tensors: `reset(keys)`, `step(states, actions)` returning
(states, rewards, terminated), `observe(states)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from autorl.population.environments import (
    acrobot,
    cartpole,
    mountain_car,
    mountain_car_continuous,
    pendulum,
)
from stacked import rng

Stepped = tuple[Tensor, Tensor, Tensor]
_CART_AND_POLE = cartpole.DEFAULTS.masscart + cartpole.DEFAULTS.masspole


class StackedEnvironment(NamedTuple):
    """The functions of one environment over tensors."""

    reset: Callable[[Tensor], Tensor]
    step: Callable[[Tensor, Tensor], Stepped]
    observe: Callable[[Tensor], Tensor]


def _around(keys: Tensor, widths: tuple[float, ...]) -> Tensor:
    """Values uniform in +-width, one per width."""
    return torch.stack([w * (2.0 * rng.uniform(keys, i) - 1.0) for i, w in enumerate(widths)], -1)


def _itself(states: Tensor) -> Tensor:
    return states


def _step_cartpole(states: Tensor, actions: Tensor) -> Stepped:
    x, speed, angle, turn = states.unbind(-1)
    force = torch.where(
        actions[..., 0] == 1.0, cartpole.DEFAULTS.force_mag, -cartpole.DEFAULTS.force_mag
    )
    cosine, sine, moment = (
        torch.cos(angle),
        torch.sin(angle),
        cartpole.DEFAULTS.masspole * cartpole.DEFAULTS.length,
    )
    pull = (force + moment * turn**2 * sine) / _CART_AND_POLE
    inertia = cartpole.DEFAULTS.length * (
        4.0 / 3.0 - cartpole.DEFAULTS.masspole * cosine**2 / _CART_AND_POLE
    )
    turning = (cartpole.DEFAULTS.gravity * sine - cosine * pull) / inertia
    speeding = pull - moment * turning * cosine / _CART_AND_POLE
    dt = cartpole.DEFAULTS.tau
    states = torch.stack(
        [x + dt * speed, speed + dt * speeding, angle + dt * turn, turn + dt * turning], -1
    )
    terminated = (states[..., 0].abs() > cartpole.TRACK) | (states[..., 2].abs() > cartpole.ANGLE)
    return states, torch.ones_like(x), terminated


def _reset_car(keys: Tensor) -> Tensor:
    position = -0.6 + 0.2 * rng.uniform(keys, 0)
    return torch.stack([position, torch.zeros_like(position)], -1)


def _step_mountain_car(states: Tensor, actions: Tensor) -> Stepped:
    position, speed = states.unbind(-1)
    speed = (
        speed
        + (actions[..., 0] - 1.0) * mountain_car.DEFAULTS.force
        - mountain_car.DEFAULTS.gravity * torch.cos(3.0 * position)
    )
    speed = speed.clamp(-mountain_car.TOP_SPEED, mountain_car.TOP_SPEED)
    position = (position + speed).clamp(mountain_car.LEFT, mountain_car.RIGHT)
    speed = torch.where((position == mountain_car.LEFT) & (speed < 0.0), 0.0, speed)
    arrived = (position >= mountain_car.GOAL) & (speed >= 0.0)
    return torch.stack([position, speed], -1), -torch.ones_like(speed), arrived


def _step_mountain_car_continuous(states: Tensor, actions: Tensor) -> Stepped:
    position, speed = states.unbind(-1)
    action = actions[..., 0]
    push = action.clamp(-1.0, 1.0) * mountain_car_continuous.DEFAULTS.power
    speed = speed + push - mountain_car_continuous.GRAVITY * torch.cos(3.0 * position)
    speed = speed.clamp(-mountain_car_continuous.TOP_SPEED, mountain_car_continuous.TOP_SPEED)
    position = (position + speed).clamp(mountain_car_continuous.LEFT, mountain_car_continuous.RIGHT)
    speed = torch.where((position == mountain_car_continuous.LEFT) & (speed < 0.0), 0.0, speed)
    arrived = (position >= mountain_car_continuous.GOAL) & (speed >= 0.0)
    rounded = torch.stack([position, speed], -1).to(torch.float32).to(torch.float64)
    return rounded, 100.0 * arrived - 0.1 * action**2, arrived


def _step_pendulum(states: Tensor, actions: Tensor) -> Stepped:
    angle, speed = states.unbind(-1)
    torque = actions[..., 0].clamp(-pendulum.DEFAULTS.max_torque, pendulum.DEFAULTS.max_torque)
    lean = (angle + math.pi) % (2.0 * math.pi) - math.pi
    cost = lean**2 + 0.1 * speed**2 + 0.001 * torque**2
    dt = pendulum.DEFAULTS.dt
    speed = speed + (1.5 * pendulum.DEFAULTS.g * torch.sin(angle) + 3.0 * torque) * dt
    speed = speed.clamp(-pendulum.DEFAULTS.max_speed, pendulum.DEFAULTS.max_speed)
    return (
        torch.stack([angle + dt * speed, speed], -1),
        -cost,
        torch.zeros_like(cost, dtype=torch.bool),
    )


def _observe_pendulum(states: Tensor) -> Tensor:
    angle, speed = states.unbind(-1)
    return torch.stack([torch.cos(angle), torch.sin(angle), speed], -1)


def _flow(states: Tensor, torque: Tensor) -> Tensor:
    """Time derivative of the acrobot's state."""
    angle_1, angle_2, speed_1, speed_2 = states.unbind(-1)
    mass, centre, length = (
        acrobot.DEFAULTS.link_mass_1,
        acrobot.DEFAULTS.link_com_1,
        acrobot.DEFAULTS.link_length_1,
    )
    reach, swing = length * centre * torch.cos(angle_2), length * centre * torch.sin(angle_2)
    d1 = (
        mass * centre**2
        + mass * (length**2 + centre**2 + 2 * reach)
        + 2 * acrobot.DEFAULTS.link_moi
    )
    d2 = mass * (centre**2 + reach) + acrobot.DEFAULTS.link_moi
    phi2 = mass * centre * acrobot.GRAVITY * torch.sin(angle_1 + angle_2)
    phi1 = -mass * swing * speed_2 * (speed_2 + 2 * speed_1) + phi2
    phi1 = phi1 + mass * (centre + length) * acrobot.GRAVITY * torch.sin(angle_1)
    second = torque + d2 / d1 * phi1 - mass * swing * speed_1**2 - phi2
    second = second / (mass * centre**2 + acrobot.DEFAULTS.link_moi - d2**2 / d1)
    return torch.stack([speed_1, speed_2, -(d2 * second + phi1) / d1, second], -1)


def _step_acrobot(states: Tensor, actions: Tensor) -> Stepped:
    torque, h = actions[..., 0] - 1.0, acrobot.SECONDS_PER_STEP
    k1 = _flow(states, torque)
    k2 = _flow(states + h / 2 * k1, torque)
    k3 = _flow(states + h / 2 * k2, torque)
    k4 = _flow(states + h * k3, torque)
    states = states + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles = (states[..., :2] + math.pi) % (2 * math.pi) - math.pi
    speed_1 = states[..., 2].clamp(-acrobot.TOP_SPEED_1, acrobot.TOP_SPEED_1)
    speed_2 = states[..., 3].clamp(-acrobot.TOP_SPEED_2, acrobot.TOP_SPEED_2)
    terminated = -torch.cos(angles[..., 0]) - torch.cos(angles[..., 1] + angles[..., 0]) > 1.0
    states = torch.cat([angles, speed_1[..., None], speed_2[..., None]], -1)
    return states, torch.where(terminated, 0.0, -1.0).to(states.dtype), terminated


def _observe_acrobot(states: Tensor) -> Tensor:
    a, b, speed_1, speed_2 = states.unbind(-1)
    return torch.stack(
        [torch.cos(a), torch.sin(a), torch.cos(b), torch.sin(b), speed_1, speed_2], -1
    )


STACKED = {
    "CartPole-v1": StackedEnvironment(
        lambda keys: _around(keys, (cartpole.START,) * 4), _step_cartpole, _itself
    ),
    "MountainCar-v0": StackedEnvironment(_reset_car, _step_mountain_car, _itself),
    "MountainCarContinuous-v0": StackedEnvironment(
        _reset_car, _step_mountain_car_continuous, _itself
    ),
    "Pendulum-v1": StackedEnvironment(
        lambda keys: _around(keys, (math.pi, 1.0)), _step_pendulum, _observe_pendulum
    ),
    "Acrobot-v1": StackedEnvironment(
        lambda keys: _around(keys, (acrobot.START,) * 4), _step_acrobot, _observe_acrobot
    ),
}
