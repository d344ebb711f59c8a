"""A minibatch of the replay memory, as networks take it.

Observations and rewards are normalised where the agent has an `Observer`, and rewards of several
steps are summed. DQN, SAC and TD3 share it.
"""

from __future__ import annotations

from typing import Any

from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array, kernel
from autorl.population.normalisation import Observer, see, seen_reward
from autorl.population.replay import Replay, n_step_return


@kernel
def take_rows(
    replay: Replay, observer: Observer | None, rows: Array, first: int, inputs: Array
) -> None:
    """Fill a network's inputs with observations of the memory.

    `rows` are theirs, `first` is their first column: 0 for s, the observation size for s'.
    """
    for r in range(len(rows)):
        row = replay.rows[rows[r]]
        for j in range(inputs.shape[1]):
            inputs[r, j] = row[first + j]
    see(observer, inputs[: len(rows)])


@kernel
def sum_rewards(agent: Any, hp: Record, column: int) -> None:
    """Fill `targets` of an agent with the rewards of its minibatch.

    They are sums r + gamma r' + ... of up to `n_steps`. `ends` are the rows of the last ones, whose
    following states are bootstrapped from, `discounts` the factors of those values. `column` is
    that of rewards.
    """
    for r in range(len(agent.batch)):
        i = agent.batch[r]
        agent.targets[r] = seen_reward(agent.observer, agent.replay.rows[i, column])
        agent.discounts[r] = hp.gamma
        agent.ends[r] = i
        if hp.n_steps > 1:
            following = n_step_return(agent.replay, agent.observer, i, hp)
            agent.targets[r], agent.discounts[r], agent.ends[r] = following


@kernel
def pair(agent: Any) -> None:
    """Fill the critics' inputs with the actor's inputs and `actions`."""
    inputs = agent.observations.shape[1]
    for r in range(len(agent.batch)):
        for j in range(inputs):
            agent.pairs[r, j] = agent.observations[r, j]
        for i in range(len(agent.action)):
            agent.pairs[r, inputs + i] = agent.actions[r, i]


@kernel
def pair_remembered(agent: Any) -> None:
    """Fill the critics' inputs with observations and actions of the memory."""
    inputs = agent.observations.shape[1]
    for r in range(len(agent.batch)):
        row = agent.replay.rows[agent.batch[r]]
        for j in range(inputs):
            agent.pairs[r, j] = row[j]
        for i in range(len(agent.action)):
            agent.pairs[r, inputs + i] = row[2 * inputs + i]
    see(agent.observer, agent.pairs[: len(agent.batch), :inputs])
