"""Shared parts of SAC and TD3: agent, targets, gradients of critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import off_policy, rng
from autorl.population.descent import average
from autorl.population.engine import State
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array, aligned_zeros, kernel
from autorl.population.members import UPDATES, Member, draw
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
from autorl.population.normalisation import Normaliser, see
from autorl.population.replay import Replay, sample_uniform

Sizes = tuple[int, ...]
MEASURES = ("critic_loss", "actor_loss", "ent_coef", "ent_coef_loss")
CRITIC_LOSS, ACTOR_LOSS, ENT_COEF, ENT_COEF_LOSS = range(len(MEASURES))


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


class Agent(NamedTuple):
    """Networks of a member, and scratch memory for n rows.

    Attributes:
        actor: outputs mean and log-deviation of each action dimension (SAC), or the dimensions
            before tanh (TD3).
        first, second: critics; inputs are an observation and an action. If there is one, both
            are the same. `target_actor` (of TD3 alone), `target_1`, `target_2` are the targets and
            share scratch memory with their networks.
        target: the part of the state.
        log_alpha: (1,) the last parameter; SAC's logarithm of the temperature.
        rewards, ended, and the other names of `off_policy.scratch`: as it makes them.
        gradient: (parameters,) flat.
        pairs, action_slopes: inputs of the critics, and their gradients with respect to these.
        noise: SAC's normal draws behind drawn actions (n, action_size), TD3's
            present exploration noise (n_envs, action_size).
        log_probs: (n,) log-probabilities of `actions` (SAC).
    """

    actor: Network
    first: Network
    second: Network
    target_actor: Network
    target_1: Network
    target_2: Network
    target: Any
    log_alpha: Array
    replay: Replay
    normaliser: Normaliser | None
    gradient: Array
    observations: Array
    pairs: Array
    action_slopes: Array
    actions: Array
    noise: Array
    action: Array
    batch: Array
    ends: Array
    discounts: Array
    targets: Array
    rewards: Array
    ended: Array
    log_probs: Array
    measures: Array


def make_agent(
    state: State, environment: Environment, hp: Record, outputs: int, n_critics: int = 2
) -> Agent:
    """Make networks over the state's parameters, and scratch memory.

    The actor has `outputs` for each dimension of an action.
    """
    parameters = state["member"].parameters
    target = state["target"].parameters
    gradient = aligned_zeros(len(parameters), parameters.dtype)
    shared = off_policy.scratch(state, environment, hp)
    rows = len(shared["actions"])
    of_actor, of_critic = network_sizes(environment, hp, outputs)

    def part(begin: int, sizes: Sizes) -> Network:
        place = slice(begin, begin + parameter_count(sizes))
        return network(parameters[place], gradient[place], sizes, int(hp.activation), rows)

    a = parameter_count(of_actor)
    c = parameter_count(of_critic)
    first = part(a, of_critic)
    second = first if n_critics == 1 else with_delta_of(part(a + c, of_critic), first)
    actor = with_delta_of(part(0, of_actor), first)
    critics = len(target) - n_critics * c  # 0: the actor has no target
    return Agent(
        actor=actor,
        first=first,
        second=second,
        # Only the targets' outputs are read, before actor and critics run: they share scratch.
        target_actor=actor._replace(parameters=target[:critics]),
        target_1=first._replace(parameters=target[critics : critics + c]),
        target_2=second._replace(parameters=target[len(target) - c :]),
        target=state["target"],
        log_alpha=parameters[-1:],
        gradient=gradient,
        pairs=np.zeros((rows, of_critic[0]), parameters.dtype),
        action_slopes=np.zeros((2, rows, padded(of_critic[0])), parameters.dtype),
        noise=np.zeros_like(shared["actions"]),
        log_probs=np.zeros(len(shared["batch"])),
        **shared,
    )


@kernel
def begin_update(member: Member, agent: Agent) -> Any:
    """Draw a minibatch, and return the seed of the update's draws."""
    update = draw(member, rng.UPDATE)
    seed = rng.bits(rng.stream(member.key[0], rng.REPLAY), update)
    sample_uniform(agent.replay, seed, agent.batch)
    member.counts[UPDATES] += 1
    return rng.bits(rng.stream(member.key[0], rng.UPDATE), update)


@kernel
def pair(agent: Agent) -> None:
    """Fill the critics' inputs with the actor's inputs and `actions`."""
    inputs = agent.observations.shape[1]
    for r in range(len(agent.batch)):
        for j in range(inputs):
            agent.pairs[r, j] = agent.observations[r, j]
        for i in range(len(agent.action)):
            agent.pairs[r, inputs + i] = agent.actions[r, i]


@kernel
def add_values(agent: Agent, n_critics: int, alpha: float) -> None:
    """Add min Q'(s', a') - alpha * log pi(a'|s') to `targets`, discounted.

    `observations` and `actions` are s' and a'.
    """
    n = len(agent.batch)
    pair(agent)
    forward(agent.target_1, agent.pairs, n)
    if n_critics > 1:  # one critic is both, and so are its outputs
        forward(agent.target_2, agent.pairs, n)
    for r in range(n):
        value = min(agent.target_1.outputs[r, 0], agent.target_2.outputs[r, 0])
        agent.targets[r] += agent.discounts[r] * (value - alpha * agent.log_probs[r])


@kernel
def critic_gradient(agent: Agent, n_critics: int, factor: float, number: int) -> None:
    """Compute the gradient of the critics' squared errors, and average these.

    The loss is factor / 2 * (mean (Q1(s, a) - y)^2 + mean (Q2(s, a) - y)^2) for the actions in
    memory. `number` is that of the update.
    """
    inputs = agent.observations.shape[1]
    for r in range(len(agent.batch)):
        row = agent.replay.rows[agent.batch[r]]
        for j in range(inputs):
            agent.pairs[r, j] = row[j]
        for i in range(len(agent.action)):
            agent.pairs[r, inputs + i] = row[2 * inputs + i]
    see(agent.normaliser, agent.pairs[: len(agent.batch), :inputs])
    square = regress(agent, agent.first, factor)
    if n_critics > 1:
        square += regress(agent, agent.second, factor)
    average(agent.measures, CRITIC_LOSS, 0.5 * factor * square, number)


@kernel
def regress(agent: Agent, critic: Network, factor: float) -> float:
    """Compute the gradient of a critic's squared errors over `pairs`.

    Returns their mean.
    """
    n = len(agent.batch)
    critic.gradient.fill(0.0)
    forward(critic, agent.pairs, n)
    prepare_backward(critic)
    for r in range(n):
        critic.slopes[r, 0] = factor * (critic.outputs[r, 0] - agent.targets[r]) / n
    square = 0.0
    for r in range(n):
        square += (critic.outputs[r, 0] - agent.targets[r]) ** 2
    backward(critic, agent.pairs, n)
    return square / n
