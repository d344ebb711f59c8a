"""The replay memory of one member: a ring of transitions.

They are drawn uniformly, or by priority from a sum tree, and learned from one step or several
[Sutton1988].

References:
    [Lin1992] L. Lin. Self-improving reactive agents based on reinforcement learning. Machine
        Learning 8, 1992.
    [Schaul2016] T. Schaul et al. Prioritized experience replay. ICLR 2016 (the proportional
        variant).
    [Sutton1988] R. Sutton. Learning to predict by the methods of temporal differences. Machine
        Learning 3, 1988.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import rng
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Record, Setting
from autorl.population.kernels import Array, kernel
from autorl.population.normalisation import Normaliser, see, seen_reward

WRITTEN = 0
CAPACITY = 1
SUMMED_STEPS = Setting(
    1,
    lower=1,
    change=None,  # a memory of single steps marks no ends
    sb3="later",
    sb3_note="needs Stable-Baselines3 2.7 or later",
)
"""The hyperparameter `n_steps` of every algorithm with a replay memory."""


class Replay(NamedTuple):
    """Transitions of one member.

    Attributes:
        rows: (capacity, width): observation, following observation, action, reward, terminated,
            side by side, so that a drawn transition costs one or two cache lines. If several
                steps are summed, a last column marks the ends of episodes, truncations included.
        counts: (2,) int64: transitions ever written, and the capacity.
        tree: (2 * leaves,) float64: priorities in its second half, each inner node the sum of its
            two children; node 1 is the total. Empty where transitions are drawn uniformly.
        top: (1,) float64, the largest priority ever given; new transitions get it.
    """

    rows: Array
    counts: Array
    tree: Array
    top: Array


def new_replay(environment: Environment, hp: Record, dtype: npt.DTypeLike) -> Replay:
    """Make an empty memory for a record with `buffer_size`, `n_envs` and `n_steps`.

    Pages of `rows` cost memory only once they are written.
    """
    n_envs = int(hp.n_envs)
    # As many as Stable-Baselines3 keeps: buffer_size // n_envs of each environment.
    capacity = max(int(hp.buffer_size) // n_envs, 1) * n_envs
    leaves = _leaves(capacity) if getattr(hp, "prioritized", False) else 0
    width = 2 * environment.observation_size + environment.action_size + 2 + int(hp.n_steps > 1)
    return Replay(
        rows=np.zeros((capacity, width), dtype),
        counts=np.array([0, capacity], np.int64),
        tree=np.zeros(2 * leaves),
        top=np.ones(1),  # until an error is known all priorities are equal
    )


def trimmed(replay: Replay) -> Replay:
    """Return the memory without what was never written, for an archive.

    `tree` is reduced to its leaves in use.
    """
    size = min(int(replay.counts[WRITTEN]), int(replay.counts[CAPACITY]))
    half = len(replay.tree) // 2
    return replay._replace(rows=replay.rows[:size], tree=replay.tree[half : half + size])


def restored(replay: Replay) -> Replay:
    """Return the whole memory: the inverse of `trimmed`."""
    capacity = int(replay.counts[CAPACITY])
    rows = np.zeros((capacity, replay.rows.shape[1]), replay.rows.dtype)
    rows[: len(replay.rows)] = replay.rows
    if len(replay.tree) == 0:
        return replay._replace(rows=rows)
    half = _leaves(capacity)
    tree = np.zeros(2 * half)
    tree[half : half + len(replay.tree)] = replay.tree
    # Level by level from the leaves, by the sums of `set_priority`: the same to the bit.
    while half > 1:
        half //= 2
        tree[half : 2 * half] = tree[2 * half : 4 * half : 2] + tree[2 * half + 1 : 4 * half : 2]
    return replay._replace(rows=rows, tree=tree)


def cut(replay: Replay, n_envs: int) -> None:
    """End the episodes in the memory: each environment's next transition begins another.

    The memory must mark the ends of episodes, as one of several summed steps does.
    """
    written = int(replay.counts[WRITTEN])
    newest = written - 1 - np.arange(min(n_envs, written))
    replay.rows[newest % replay.counts[CAPACITY], -1] = 1.0


def _leaves(capacity: int) -> int:
    return 1 << max(0, capacity - 1).bit_length()


@kernel
def size(replay: Replay) -> Any:
    """Return the number of transitions in memory."""
    return min(replay.counts[WRITTEN], replay.counts[CAPACITY])


@kernel
def claim(replay: Replay) -> Any:
    """Return the row the next transition goes to.

    The oldest is given up when the memory is full.
    """
    row = replay.counts[WRITTEN] % replay.counts[CAPACITY]
    replay.counts[WRITTEN] += 1
    # The largest priority yet, so that every transition is replayed at least once [Schaul2016].
    if len(replay.tree) > 0:
        set_priority(replay, row, replay.top[0])
    return row


@kernel
def sample_uniform(replay: Replay, seed: int, out: Array) -> None:
    """Fill `out` with rows drawn uniformly, with replacement."""
    n = size(replay)
    for i in range(len(out)):
        out[i] = rng.integer(seed, i, n)


@kernel
def sample_by_priority(replay: Replay, seed: int, beta: float, out: Array, weights: Array) -> None:
    """Fill `out` with rows drawn in proportion to their priorities.

    One is drawn from each of equal shares of the total.

    `weights` become the importance weights (n P(i))^-beta, divided by the largest among them
    [Schaul2016].
    """
    n = size(replay)
    leaves = len(replay.tree) // 2
    largest = 0.0
    for i in range(len(out)):
        # Stratified: one draw from each of k equal ranges of the sum [Schaul2016].
        remaining = replay.tree[1] * (i + rng.uniform(seed, i)) / len(out)
        node = 1
        while node < leaves:
            node *= 2
            # Whatever rounding leaves of `remaining`, an empty half is never entered.
            if remaining >= replay.tree[node] and replay.tree[node + 1] > 0.0:
                remaining -= replay.tree[node]
                node += 1
        out[i] = node - leaves
        weights[i] = (n * replay.tree[node] / replay.tree[1]) ** -beta
        largest = max(largest, weights[i])
    for i in range(len(out)):
        weights[i] /= largest


@kernel
def n_step_return(
    replay: Replay, normaliser: Normaliser | None, row: int, hp: Record
) -> tuple[float, float, int]:
    """Sum up to `n_steps` discounted rewards from a row on.

    The sum ends with the episode, and at the newest row of its environment, as in
    Stable-Baselines3's `NStepReplayBuffer`. Environments take turns: the row after is `n_envs` on.

    Returns:
        The sum, gamma to the power of the number of its rewards, and its last row.
    """
    capacity = replay.counts[CAPACITY]
    ended = replay.rows.shape[1] - 1
    total = 0.0
    discount = 1.0
    for k in range(hp.n_steps):
        total += discount * seen_reward(normaliser, replay.rows[row, ended - 2])
        discount *= hp.gamma
        newest = (replay.counts[WRITTEN] - 1 - row) % capacity < hp.n_envs
        if k == hp.n_steps - 1 or newest or replay.rows[row, ended] > 0.0:
            break
        row = (row + hp.n_envs) % capacity
    return total, discount, row


@kernel
def take_rows(agent: Any, rows: Array, first: int) -> None:
    """Fill an agent's `observations` with those of rows of the memory.

    They are as networks take them.

    `first` is their first column: 0 for s, the observation size for s'.
    """
    inputs = agent.observations
    for r in range(len(rows)):
        row = agent.replay.rows[rows[r]]
        for j in range(inputs.shape[1]):
            inputs[r, j] = row[first + j]
    see(agent.normaliser, inputs[: len(rows)])


@kernel
def begin_targets(agent: Any, hp: Record) -> None:
    """Fill `targets` of an agent with the rewards of its minibatch.

    They are sums r + gamma r' + ... of up to `n_steps`. `ends` are the rows of the last ones, whose
    following states are bootstrapped from and go into `observations`; `discounts` are the factors
    of those values, 0 where the episode terminated.
    """
    inputs = agent.observations.shape[1]
    column = 2 * inputs + len(agent.action)
    for r in range(len(agent.batch)):
        i = agent.batch[r]
        agent.targets[r] = seen_reward(agent.normaliser, agent.replay.rows[i, column])
        agent.discounts[r] = hp.gamma
        agent.ends[r] = i
        if hp.n_steps > 1:
            following = n_step_return(agent.replay, agent.normaliser, i, hp)
            agent.targets[r], agent.discounts[r], agent.ends[r] = following
        agent.discounts[r] *= 1.0 - agent.replay.rows[agent.ends[r], column + 1]
    take_rows(agent, agent.ends, inputs)


@kernel
def set_priority(replay: Replay, row: int, priority: float) -> None:
    """Give a row a priority.

    Sums are formed anew from the children, so that no rounding piles up.
    """
    replay.top[0] = max(replay.top[0], priority)
    node = len(replay.tree) // 2 + row
    replay.tree[node] = priority
    while node > 1:
        node //= 2
        replay.tree[node] = replay.tree[2 * node] + replay.tree[2 * node + 1]
