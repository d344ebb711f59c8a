"""Steps of environments, and what they leave in a replay memory.

DQN, SAC, TD3 and DDPG share it. Semantics are those of Stable-Baselines3's
`OffPolicyAlgorithm.collect_rollouts` and `ReplayBuffer`: the observation that follows a step is the
last of its episode where that ended, never the first of the next, an episode that a limit ended has
not terminated, and observations and rewards are the task's, whatever is normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autorl.population.hyperparameters import Record
from autorl.population.kernels import Array, Program, kernel
from autorl.population.members import Member, World, is_finite, restart
from autorl.population.members import advance as advance_one
from autorl.population.normalisation import Observer, note_step, see
from autorl.population.outside import Step, Worlds, no_step
from autorl.population.replay import Replay, claim, cut

Programs = tuple[Callable[[], Array], Callable[[Step, bool], None]]
"""Chooses actions for the present observations, and learns from the step they led to.

Actions are (n_envs, action_size), as the environments take them. The second is told whether the
step is the last of a round, after which updates are due.
"""


@kernel
def look(observer: Observer | None, member: Member, world: World, inputs: Array) -> None:
    """Fill the inputs of a network with what native environments show."""
    n_envs = len(member.states)
    for e in range(n_envs):
        world.observe(member.states[e], inputs[e])
    see(observer, inputs[:n_envs])


@kernel
def step_continuous(
    member: Member, agent: Any, hp: Record, world: World, index: int, reward_scale: float
) -> bool:
    """Make the chosen step of native environment `index`, and remember it.

    Returns whether its episode ended. The next one has begun then.
    """
    inputs = agent.observations.shape[1]
    size = len(agent.action)
    end = 2 * inputs + size
    row = agent.replay.rows[claim(agent.replay)]
    world.observe(member.states[index], row[:inputs])
    for i in range(size):
        row[2 * inputs + i] = agent.actions[index, i]
        # Memory keeps actions in [-1, 1], the environment has them within its bounds.
        low = world.bounds[0, i]
        high = world.bounds[1, i]
        agent.action[i] = low + 0.5 * (high - low) * (1.0 + agent.actions[index, i])
    reward, terminated, truncated = advance_one(member, world, index, agent.action)
    world.observe(member.states[index], row[inputs : 2 * inputs])
    over = terminated or truncated
    row[end] = reward * reward_scale
    row[end + 1] = 1.0 if terminated else 0.0  # a truncated episode bootstraps
    if hp.n_steps > 1:
        row[end + 2] = 1.0 if over else 0.0
    note_step(agent.observer, index, reward, over)
    if over:
        restart(member, world, index)
    return over


@kernel
def remember(replay: Replay, actions: Array, step: Step, reward_scale: float) -> None:
    """Write a step of every environment outside into the memory.

    The first rows of `actions` are what was chosen.
    """
    inputs = step.observed.shape[1]
    end = 2 * inputs + actions.shape[1]
    for e in range(len(step.rewards)):
        row = replay.rows[claim(replay)]
        for j in range(inputs):
            row[j] = step.observed[e, j]
            row[inputs + j] = step.following[e, j]
        for i in range(actions.shape[1]):
            row[2 * inputs + i] = actions[e, i]
        row[end] = step.original_rewards[e] * reward_scale
        row[end + 1] = 1.0 if step.terminated[e] else 0.0  # a truncated episode bootstraps
        if len(row) > end + 2:
            row[end + 2] = 1.0 if step.ended[e] else 0.0


def continuous_programs(
    programs: tuple[Program, Program], member: Member, agent: Any, hp: Record, worlds: Worlds
) -> Programs:
    """Prepare `choose` and `learn` of an algorithm with continuous actions.

    They are `programs`: one of (member, agent, hp) and observations, one of the three, a step and
    whether a round ends. The first leaves actions in [-1, 1] in `agent.actions`.
    """
    choose, learn = programs
    environment = worlds.environment
    n_envs = len(member.states)
    chosen = choose.prepared(member, agent, hp, worlds.observations)
    learned = learn.prepared(member, agent, hp, no_step(environment, n_envs), True)

    def act() -> Array:
        chosen(member, agent, hp, worlds.observations)
        # Memory has them in [-1, 1], the environment within its bounds.
        return environment.stretched(agent.actions[:n_envs])

    def absorb(step: Step, round_ends: bool) -> None:
        learned(member, agent, hp, step, round_ends)

    return act, absorb


def advance(
    member: Member,
    replay: Replay,
    hp: Record,
    worlds: Worlds,
    programs: Programs,
    iterations: int,
) -> None:
    """Advance a member by rounds of steps and their updates.

    A round has `train_freq` steps of every environment. A member that has diverged takes no further
    ones.
    """
    act, absorb = programs
    final = int(hp.train_freq) - 1
    # No sum of rewards goes on in episodes that begin anew.
    if hp.n_steps > 1 and not worlds.started():
        cut(replay, len(member.states))
    worlds.begin()
    for _ in range(iterations):
        for index in range(final + 1):
            absorb(worlds.step(act()), index == final)
        # No simulator takes actions that are not finite.
        if not is_finite(member):
            break
    worlds.note_episodes()
