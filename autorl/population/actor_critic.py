"""Shared parts of SAC and TD3: networks, regression, descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autorl.population import rng
from autorl.population.descent import adam
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array, aligned_zeros, kernel
from autorl.population.members import Member
from autorl.population.networks import (
    Network,
    backward,
    forward,
    hidden_sizes,
    network,
    padded,
    parameter_count,
    prepare_backward,
    uniform_fan_in,
    with_delta_of,
)

Sizes = tuple[int, ...]


def network_sizes(environment: Environment, hp: Record, outputs: int) -> tuple[Sizes, Sizes]:
    """Return the layer sizes of the actor and of a critic.

    The actor has `outputs` for each dimension of an action.
    """
    inputs = environment.observation_size
    actions = environment.action_size
    width = int(hp.net_width)
    depth = int(hp.net_depth)
    return (
        hidden_sizes(inputs, width, depth, outputs * actions),
        hidden_sizes(inputs + actions, width, depth, 1),
    )


def initial_parameters(
    networks: Sequence[Sizes], key: int, dtype: npt.DTypeLike, more: int = 0
) -> Array:
    """Draw PyTorch's default weights of networks, side by side.

    `more` numbers after them are 0.
    """
    ends = np.cumsum([parameter_count(sizes) for sizes in networks])
    parameters = aligned_zeros(int(ends[-1]) + more, dtype)
    for index, (end, sizes) in enumerate(zip(ends, networks, strict=True)):
        part = parameters[end - parameter_count(sizes) : end]
        uniform_fan_in(part, sizes, rng.derived(key, rng.INITIALISE, index))
    return parameters


def make_networks(
    parameters: Array,
    gradient: Array,
    sizes: tuple[Sizes, Sizes],
    activation: str,
    rows: int,
    n_critics: int = 2,
) -> tuple[Network, Network, Network]:
    """Make an actor and two critics over flat parameters and gradients.

    If there is one critic, both are the same.
    """
    a = parameter_count(sizes[0])
    c = parameter_count(sizes[1])
    first, second = (
        network(
            parameters[begin : begin + c], gradient[begin : begin + c], sizes[1], activation, rows
        )
        for begin in (a, a + c * (n_critics - 1))
    )
    actor = network(parameters[:a], gradient[:a], sizes[0], activation, rows)
    second = with_delta_of(second, first) if n_critics > 1 else first
    return with_delta_of(actor, first), first, second


def critic_inputs(environment: Environment, rows: int, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Make the inputs of critics, and their gradient with respect to these."""
    width = environment.observation_size + environment.action_size
    return np.zeros((rows, width), dtype), np.zeros((rows, padded(width)), dtype)


@kernel
def regress(agent: Any, critic: Network, factor: float) -> None:
    """Compute the gradient of a critic's squared errors over `pairs`.

    It is that of factor / 2 * mean (Q - y)^2.
    """
    n = len(agent.batch)
    critic.gradient.fill(0.0)
    forward(critic, agent.pairs, n)
    prepare_backward(critic)
    for r in range(n):
        critic.slopes[r, 0] = factor * (critic.outputs[r, 0] - agent.targets[r]) / n
    backward(critic, agent.pairs, n)


@kernel
def descend(
    member: Member, agent: Any, hp: Record, pace: tuple[float, int], part: tuple[int, int]
) -> None:
    """Make one step of Adam for a part of the parameters.

    `part` is its begin and end, `pace` the learning rate and the number of the step.
    """
    # Adam moves each number by itself: parts are Stable-Baselines3's optimizers.
    values = member.parameters[part[0] : part[1]]
    gradient = agent.gradient[part[0] : part[1]]
    first = member.moments[0][part[0] : part[1]]
    second = member.moments[1][part[0] : part[1]]
    adam(values, gradient, first, second, pace[1], pace[0], hp.optimizer_eps, 1.0)
