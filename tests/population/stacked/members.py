"""A population as tensors with leading size P: members, their environments, networks and optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autorl.population import rng as native_rng
from autorl.population.descent import BETA_1, BETA_2, RMSPROP_ALPHA
from autorl.population.environments import Environment
from autorl.population.hyperparameters import CONSTANT, COSINE, LINEAR
from autorl.population.networks import TANH, layer_views
from stacked import rng
from stacked.environments import STACKED


@dataclass
class Members:
    """P members in training; see `autorl.population.members.Member` for the single one.

    Attributes:
        key: (P,) int64. counters: (rng.PURPOSES, P) int64.
        parameters, first, second: (P, n) trained numbers and the optimizer's moments.
        states: (P, n_envs, state_size) float64. lengths: (P, n_envs) steps of each running episode.
        steps, updates: the same for every member.
    """

    key: Tensor
    counters: Tensor
    parameters: Tensor
    first: Tensor
    second: Tensor
    states: Tensor
    lengths: Tensor
    steps: int = 0
    updates: int = 0


@dataclass(frozen=True)
class Hyper:
    """The records of P members as columns."""

    records: Sequence[Any]

    def column(self, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
        """(P,) values of a hyperparameter that may differ between members."""
        return torch.tensor([float(record[name]) for record in self.records], dtype=dtype)

    def static(self, name: str) -> Any:
        """The value of a hyperparameter that has to be the same for all."""
        values = {record[name].item() for record in self.records}
        if len(values) > 1:
            raise ValueError(
                f"{name} must be the same for all members of one stack, got {sorted(values)}"
            )
        return values.pop()

    def scheduled(self, name: str, progress: float) -> Tensor:
        """(P,) values of a scheduled hyperparameter at progress = step / horizon."""
        start, end, shape = (
            self.column(name),
            self.column(f"{name}_end"),
            self.column(f"{name}_shape"),
        )
        progress = min(max(progress, 0.0), 1.0)
        cosine = 0.5 * (1.0 - np.cos(np.pi * progress))
        done = torch.where(shape == LINEAR, progress, torch.where(shape == COSINE, cosine, 0.0))
        return torch.where(shape == CONSTANT, start, (1.0 - done) * start + done * end)


def stack_members(states: Sequence[Any], environment: Environment) -> Members:
    """New native members, not yet trained, as one stack in float64; their environments are reset."""
    members = [state["member"] for state in states]
    parameters = torch.tensor(
        np.stack([member.parameters for member in members]), dtype=torch.float64
    )
    n_envs = len(members[0].states)
    population = Members(
        key=torch.tensor(np.array([member.key[0] for member in members], np.uint64).view(np.int64)),
        counters=torch.zeros((native_rng.PURPOSES, len(members)), dtype=torch.int64),
        parameters=parameters,
        first=torch.zeros_like(parameters),
        second=torch.zeros_like(parameters),
        states=torch.zeros((len(members), n_envs, environment.state_size), dtype=torch.float64),
        lengths=torch.zeros((len(members), n_envs), dtype=torch.float64),
    )
    restart(population, environment, torch.ones((len(members), n_envs), dtype=torch.bool))
    return population


def draws(population: Members, purpose: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Seed and counters of the next draws for a purpose, (P, *shape) each, in the native engine's order."""
    count = int(np.prod(shape))
    counters = population.counters[purpose][:, None] + torch.arange(count)
    population.counters[purpose] += count
    seed = rng.stream(population.key, purpose)
    return seed.reshape(-1, *([1] * len(shape))), counters.reshape(-1, *shape)


def restart(population: Members, environment: Environment, ended: Tensor) -> None:
    """Begin new episodes where `ended` (P, n_envs); the k-th of a member takes the member's k-th next key."""
    number = population.counters[native_rng.RESET][:, None] + ended.cumsum(1) - 1
    population.counters[native_rng.RESET] += ended.sum(1)
    keys = rng.bits(rng.stream(population.key, native_rng.RESET)[:, None], number)
    fresh = STACKED[environment.id].reset(keys)
    population.states = torch.where(ended[..., None], fresh, population.states)
    population.lengths = torch.where(ended, 0.0, population.lengths)


def advance(
    population: Members, environment: Environment, actions: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One step of every environment: (final observations, rewards, terminated, truncated), then new episodes."""
    functions = STACKED[environment.id]
    population.states, rewards, terminated = functions.step(population.states, actions)
    population.lengths = population.lengths + 1.0
    population.steps += population.states.shape[1]
    truncated = ~terminated & (population.lengths >= environment.time_limit)
    final = functions.observe(population.states)
    restart(population, environment, terminated | truncated)
    return final, rewards, terminated, truncated


def forward(parameters: Tensor, layers: Any, activation: int, x: Tensor) -> Tensor:
    """Outputs (P, rows, fan_out) of P networks (P, n) for their inputs (P, rows, fan_in); layout as in `networks`."""
    for index in range(len(layers)):
        weights, biases = layer_views(parameters, layers, index)
        x = torch.baddbmm(biases[:, None], x, weights)
        if index < len(layers) - 1:
            x = torch.tanh(x) if activation == TANH else torch.relu(x)
    return x


def clipped(gradient: Tensor, max_norm: Tensor) -> Tensor:
    """Each member's gradient (P, n) scaled down to its norm limit (P,)."""
    norm = gradient.square().sum(1).sqrt()
    return gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0)[:, None]


def adam(population: Members, gradient: Tensor, rate: Tensor, epsilon: Tensor, part: slice) -> None:
    """Adam's update for the parameters in `part`, whose gradient is given; learning rate and epsilon are (P,)."""
    step = population.updates
    population.first[:, part] = BETA_1 * population.first[:, part] + (1.0 - BETA_1) * gradient
    population.second[:, part] = BETA_2 * population.second[:, part] + (1.0 - BETA_2) * gradient**2
    first = population.first[:, part] / (1.0 - BETA_1**step)
    second = population.second[:, part] / (1.0 - BETA_2**step)
    population.parameters[:, part] -= rate[:, None] * first / (second.sqrt() + epsilon[:, None])


def rmsprop(population: Members, gradient: Tensor, rate: Tensor, epsilon: Tensor) -> None:
    """One RMSprop update of all parameters; learning rate and epsilon are (P,)."""
    population.second = RMSPROP_ALPHA * population.second + (1.0 - RMSPROP_ALPHA) * gradient**2
    population.parameters -= (
        rate[:, None] * gradient / (population.second.sqrt() + epsilon[:, None])
    )
