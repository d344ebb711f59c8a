"""Environments outside, for the algorithms with a replay memory.

DQN, SAC, TD3 and DDPG share the loop of steps and what a step leaves in memory. Semantics are those
of Stable-Baselines3's `OffPolicyAlgorithm.collect_rollouts` and `ReplayBuffer`: the observation
that follows a step is the last of its episode where that ended, never the first of the next, and an
episode that a limit ended has not terminated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array, Program, kernel
from autorl.population.members import Member, is_finite
from autorl.population.outside import Step, Worlds, no_step
from autorl.population.replay import Replay, claim

Programs = tuple[Callable[[], Array], Callable[[Step, bool], None]]
"""Chooses actions for the present observations, and learns from the step they led to.

Actions are (n_envs, action_size), as the environments take them. The second is told whether the
step is the last of a round, after which updates are due.
"""


@kernel
def take_states(member: Member, inputs: Array) -> None:
    """Copy the member's present observations into the inputs of a network."""
    for e in range(len(member.states)):
        for j in range(member.states.shape[1]):
            inputs[e, j] = member.states[e, j]


@kernel
def remember(replay: Replay, observations: Array, actions: Array, step: Step) -> None:
    """Write a step of every environment into the memory.

    The first rows of `observations` and `actions` are what was observed and chosen.
    """
    inputs = observations.shape[1]
    end = 2 * inputs + actions.shape[1]
    for e in range(len(step.rewards)):
        row = replay.rows[claim(replay)]
        for j in range(inputs):
            row[j] = observations[e, j]
            row[inputs + j] = step.following[e, j]
        for i in range(actions.shape[1]):
            row[2 * inputs + i] = actions[e, i]
        row[end] = step.rewards[e]
        row[end + 1] = 1.0 if step.terminated[e] else 0.0  # a truncated episode bootstraps
        if len(row) > end + 2:
            row[end + 2] = 1.0 if step.ended[e] else 0.0


def continuous_programs(
    programs: tuple[Program, Program], member: Member, agent: Any, hp: Record, worlds: Worlds
) -> Programs:
    """Prepare `choose` and `learn` of an algorithm with continuous actions.

    They are `programs`: one of (member, agent, hp), one of these, a step and whether a round ends.
    The first leaves actions in [-1, 1] in `agent.actions`.
    """
    choose, learn = programs
    environment = worlds.environment
    n_envs = len(member.states)
    chosen = choose.prepared(member, agent, hp)
    learned = learn.prepared(member, agent, hp, no_step(environment, n_envs), True)

    def act() -> Array:
        chosen(member, agent, hp)
        # Memory has them in [-1, 1], the environment within its bounds.
        return environment.stretched(agent.actions[:n_envs])

    def absorb(step: Step, round_ends: bool) -> None:
        learned(member, agent, hp, step, round_ends)

    return act, absorb


def advance(
    member: Member, hp: Record, worlds: Worlds, programs: Programs, iterations: int
) -> None:
    """Advance a member by rounds of steps and their updates.

    A round has `train_freq` steps of every environment. A member that has diverged takes no further
    ones.
    """
    act, absorb = programs
    final = int(hp.train_freq) - 1
    worlds.begin()
    for _ in range(iterations):
        for index in range(final + 1):
            absorb(worlds.step(act()), index == final)
        # No simulator takes actions that are not finite.
        if not is_finite(member):
            break
    worlds.note_episodes()
