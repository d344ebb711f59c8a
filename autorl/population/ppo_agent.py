"""The networks of a PPO or A2C member, and its rollouts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import rng
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array, aligned_zeros
from autorl.population.networks import (
    ACTIVATIONS,
    CHUNK,
    Network,
    hidden_sizes,
    network,
    orthogonal,
    parameter_count,
)
from autorl.population.normalisation import Observer
from autorl.population.policies import Policy, make_policy


class Rollout(NamedTuple):
    """Transitions of one rollout, n_steps * n_envs rows, time first.

    Row t * n_envs + e is step t of environment e. `dones` marks the end of an episode after the
    row.

    `order` is the current epoch's permutation of the rows.
    """

    observations: Array
    actions: Array
    log_probs: Array
    values: Array
    rewards: Array
    dones: Array
    advantages: Array
    returns: Array
    order: Array


class Agent(NamedTuple):
    """Actor and critic over one flat array.

    For continuous actions the logarithms of the policy's deviations lie in it too.

    A chunk of rows is gathered into `inputs` (rows, observation_size), `actions` (rows,
    action_size) and `columns` (3, rows); `action` (action_size,) is a clipped one. `cut` (rows,)
    are the rows of the rollout in which a limit ended an episode.
    """

    actor: Network
    critic: Network
    policy: Policy
    gradient: Array
    rollout: Rollout
    inputs: Array
    actions: Array
    columns: Array
    action: Array
    cut: Array
    observer: Observer | None


def network_sizes(environment: Environment, hp: Record) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the layer sizes of actor and critic."""
    outputs = environment.n_actions or environment.action_size
    inputs = environment.observation_size
    width = int(hp.net_width)
    depth = int(hp.net_depth)
    return hidden_sizes(inputs, width, depth, outputs), hidden_sizes(inputs, width, depth, 1)


def initial_parameters(
    environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike
) -> Array:
    """Draw orthogonal weights.

    The gain is sqrt(2) in hidden layers, 0.01 for the policy, 1 for the value. Deviations are 1.
    """
    actor, critic = network_sizes(environment, hp)
    split = parameter_count(actor)
    end = parameter_count(actor) + parameter_count(critic)
    deviations = 0 if environment.n_actions else environment.action_size
    parameters = aligned_zeros(end + deviations, dtype)
    gains = [math.sqrt(2.0)] * int(hp.net_depth)
    orthogonal(parameters[:split], actor, [*gains, 0.01], rng.derived(key, rng.INITIALISE, 0))
    orthogonal(parameters[split:end], critic, [*gains, 1.0], rng.derived(key, rng.INITIALISE, 1))
    return parameters


def make_agent(
    parameters: Array, environment: Environment, hp: Record, observer: Observer | None = None
) -> Agent:
    """Make networks over the flat parameters, with scratch memory.

    Their gradients lie in one array too.
    """
    actor, critic = network_sizes(environment, hp)
    split = parameter_count(actor)
    end = parameter_count(actor) + parameter_count(critic)
    gradient = aligned_zeros(len(parameters), parameters.dtype)
    # Whole chunks: a policy works on all rows of one, whatever those beyond n_envs hold.
    rows = -(-int(hp.n_envs) // CHUNK) * CHUNK
    word = next(word for word, code in ACTIVATIONS.items() if code == hp.activation)
    return Agent(
        actor=network(parameters[:split], gradient[:split], actor, word, rows),
        critic=network(parameters[split:end], gradient[split:end], critic, word, rows),
        policy=make_policy(parameters[end:], gradient[end:], environment.n_actions),
        gradient=gradient,
        rollout=make_rollout(environment, hp, parameters.dtype),
        inputs=np.zeros((rows, environment.observation_size), parameters.dtype),
        actions=np.zeros((rows, environment.action_size)),
        columns=np.zeros((3, rows)),
        action=np.zeros(environment.action_size),
        cut=np.zeros(rows, np.int64),
        observer=observer,
    )


def make_rollout(environment: Environment, hp: Record, dtype: npt.DTypeLike) -> Rollout:
    """Make memory for one rollout."""
    n = int(hp.n_steps) * int(hp.n_envs)
    observations = np.zeros((n, environment.observation_size), dtype)
    actions = np.zeros((n, environment.action_size))
    return Rollout._make(
        [observations, actions, *(np.zeros(n) for _ in range(6)), np.zeros(n, np.int64)]
    )
