"""The loop of DQN, SAC, TD3 and DDPG: steps, replay memory, updates.

A page of an algorithm has its actions and its update (`make_loop`). Semantics are those of
Stable-Baselines3's `OffPolicyAlgorithm.collect_rollouts` and `ReplayBuffer`: `train_freq` steps of
every environment, then `gradient_steps` updates (-1: one per step taken), none before
`learning_starts`; the observation that follows a step is the last of its episode where that ended,
never the first of the next, an episode that a limit ended has not terminated, and observations and
rewards are the task's, whatever is normalised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from autorl.population.engine import Algorithm, State
from autorl.population.environments.base import Environment
from autorl.population.evaluation import SQUASHED
from autorl.population.hyperparameters import Record, Setting, Settings, scheduled
from autorl.population.kernels import Array, Program, inlined_kernel, kernel, program
from autorl.population.members import STEPS, Member, World, advance, is_finite, new_member, restart
from autorl.population.networks import ACTIVATIONS
from autorl.population.normalisation import (
    begin_observed,
    copy_rows,
    learn_step,
    look,
    normaliser_part,
)
from autorl.population.outside import Step, Worlds, no_step
from autorl.population.replay import SUMMED_STEPS, Replay, claim, cut, new_replay


def settings(
    own: Settings, *, rate: float, batch_size: int, tau: float, train_freq: int, width: Setting
) -> Settings:
    """Return the hyperparameters of an algorithm.

    `own` are those that others do not have; the rest are defaults of shared ones.
    """
    return {
        "learning_rate": Setting(rate, lower=0.0, scheduled=True, sb3="function"),
        "buffer_size": Setting(1_000_000, lower=1, change=None),
        "learning_starts": Setting(100, lower=0),
        "batch_size": Setting(batch_size, lower=1),
        "tau": Setting(tau, lower=0.0, upper=1.0),
        "gamma": Setting(0.99, lower=0.0, upper=1.0),
        "train_freq": Setting(train_freq, lower=1),
        "gradient_steps": Setting(1, lower=-1),
        **own,
        "n_envs": Setting(1, lower=1, change=None, sb3="model"),
        "n_steps": SUMMED_STEPS,
        "optimizer_eps": Setting(1e-8, lower=0.0, sb3="model"),
        "net_width": width,
        "net_depth": Setting(2, lower=1, change=None, sb3="model"),
        "activation": Setting("relu", codes=ACTIVATIONS, change=None, sb3="model"),
    }


class Target(NamedTuple):
    """The parameters of target networks, flat."""

    parameters: Array


class Loop(NamedTuple):
    """The programs of an algorithm.

    Attributes:
        train: advances a member by rounds of steps of native environments and their updates.
        step_environments: the kernel that makes one step of each of them, and remembers it.
        choose, learn: act on observations of environments outside, (n_envs, observation_size), and
            take in the step they led to: `learn` is told whether updates are due after it.
        after_episode: as given to `make_loop`.
    """

    train: Program
    step_environments: Callable[..., None]
    choose: Program
    learn: Program
    after_episode: Callable[..., None]


@kernel
def unscaled(hp: Record) -> float:
    """Leave rewards as they are."""
    return 1.0


@kernel
def ignore_step(member: Member, agent: Any, hp: Record) -> None:
    """Do nothing after a step."""


@kernel
def ignore_episode(agent: Any, index: int) -> None:
    """Do nothing after an episode."""


def _updates(update_networks: Callable[..., None]) -> Callable[..., None]:
    """Make the kernel of the updates after the steps of one round."""

    @inlined_kernel
    def update(member: Member, agent: Any, hp: Record) -> None:
        if member.counts[STEPS] > hp.learning_starts:
            progress = member.counts[STEPS] / hp.horizon
            rate = scheduled(
                hp.learning_rate, hp.learning_rate_end, hp.learning_rate_shape, progress
            )
            updates = hp.gradient_steps
            if updates < 0:  # one per step taken
                updates = hp.train_freq * len(member.states)
            for index in range(updates):
                update_networks(member, agent, hp, rate, index)

    return update


def _steps(
    choose_actions: Callable[..., None],
    reward_scale: Callable[..., float],
    after_episode: Callable[..., None],
) -> Callable[..., None]:
    """Make the kernel of one step of every environment, which remembers it."""

    @kernel
    def step_environments(member: Member, agent: Any, hp: Record, world: World) -> None:
        look(agent.normaliser, member, world, agent.observations)
        choose_actions(member, agent, hp)
        for e in range(len(member.states)):
            if step_one(member, agent, hp, world, e, reward_scale(hp)):
                after_episode(agent, e)
        learn_step(agent.normaliser, member, world, agent.observations, agent.rewards, agent.ended)

    return step_environments


def make_loop(
    page: str,
    choose_actions: Callable[[Member, Any, Record], None],
    update_networks: Callable[[Member, Any, Record, float, int], None],
    *,
    reward_scale: Callable[[Record], float] = unscaled,
    after_step: Callable[[Member, Any, Record], None] = ignore_step,
    after_episode: Callable[[Any, int], None] = ignore_episode,
) -> Loop:
    """Make the programs of an algorithm of its own kernels.

    Args:
        page: module of the algorithm, which is named where its programs are compiled.
        choose_actions: for the observations in the first rows of `agent.observations`, into those
            of `agent.actions`; continuous ones in [-1, 1].
        update_networks: makes one update with a learning rate. It is told its number in the round.
        reward_scale: factor of rewards in the memory.
        after_step: called after each step of all environments.
        after_episode: called for each environment whose episode ended.
    """
    update = _updates(update_networks)
    step_environments = _steps(choose_actions, reward_scale, after_episode)

    def train(
        member: Member,
        agent: Any,
        hp: Record,
        limits: tuple[int, int, Array],
        reset: Callable[[Array, int], None],
        step: Callable[[Array, Array, int], tuple[float, bool]],
        observe: Callable[[Array, Array], None],
        iterations: int,
    ) -> None:
        # The time limit, the number of actions and the action bounds.
        world = World(reset, step, observe, limits[0], limits[1], limits[2])
        begin_observed(agent.normaliser, member, world, agent.observations)
        for _ in range(iterations):
            for _ in range(hp.train_freq):
                step_environments(member, agent, hp, world)
                after_step(member, agent, hp)
            update(member, agent, hp)

    def choose(member: Member, agent: Any, hp: Record, observations: Array) -> None:
        copy_rows(agent.observations, observations)
        choose_actions(member, agent, hp)

    def learn(member: Member, agent: Any, hp: Record, step: Step, round_ends: bool) -> None:
        remember(agent.replay, agent.actions, step, reward_scale(hp))
        for e in range(len(member.states)):
            if step.ended[e]:
                after_episode(agent, e)
        after_step(member, agent, hp)
        if round_ends:
            update(member, agent, hp)

    for function in (train, choose, learn):
        function.__module__ = page
    return Loop(program(train), step_environments, program(choose), program(learn), after_episode)


def make_algorithm(
    name: str,
    settings: Settings,
    loop: Loop,
    create: Callable[..., State],
    make_agent: Callable[[State, Environment, Record], Any],
    parts: Mapping[str, type],
    *,
    discrete: bool,
    measures: tuple[str, ...],
) -> Algorithm:
    """Make an algorithm of its loop.

    `parts` are those of a state besides member and memory, `measures` names of what updates say.
    """
    return Algorithm(
        name=name,
        settings=settings,
        discrete=discrete,
        continuous=not discrete,
        stride=lambda hp: int(hp.train_freq) * int(hp.n_envs),
        create=create,
        agent_of=make_agent,
        train=loop.train,
        outside=partial(_outside, loop),
        parts={"member": Member, "replay": Replay, **parts},
        continuous_head=SQUASHED,
        measures=measures,
    )


def new_state(
    key: int, parameters: Array, environment: Environment, hp: Record, **parts: NamedTuple
) -> State:
    """Make a state at step 0, with an empty memory."""
    n_envs = int(hp.n_envs)
    return {
        "member": new_member(key, parameters, environment, n_envs),
        "replay": new_replay(environment, hp, parameters.dtype),
        **parts,
        **normaliser_part(environment, n_envs, float(hp.gamma)),
    }


def scratch(state: State, environment: Environment, hp: Record) -> dict[str, Any]:
    """Make the fields that the agents of all algorithms have.

    `observations` are inputs of networks, `actions` (rows, action_size) what is chosen for each of
    them, and `action` is one within the environment's bounds. `batch` are the rows drawn from the
    memory, `ends` those whose following state they bootstrap from (`batch` itself for n_steps = 1),
    `discounts` the factors of those bootstrapped values, `targets` what values move to. `rewards`
    and `ended` (n_envs,) are of one step, `measures` the member's.
    """
    n = int(hp.batch_size)
    rows = max(n, int(hp.n_envs))  # acting and learning take turns with the same memory
    dtype = state["member"].parameters.dtype
    return {
        "replay": state["replay"],
        "normaliser": state.get("normaliser"),
        "observations": np.zeros((rows, environment.observation_size), dtype),
        "actions": np.zeros((rows, environment.action_size)),
        "action": np.zeros(environment.action_size),
        "batch": np.zeros(n, np.int64),
        "ends": np.zeros(n, np.int64),
        "discounts": np.zeros(n),
        "targets": np.zeros(n),
        "rewards": np.zeros(int(hp.n_envs)),
        "ended": np.zeros(int(hp.n_envs)),
        "measures": state["member"].measures,
    }


@kernel
def step_one(
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
    action = agent.actions[index]
    for i in range(size):
        row[2 * inputs + i] = action[i]
    if world.n_actions == 0:
        # Memory keeps actions in [-1, 1], the environment has them within its bounds.
        for i in range(size):
            low = world.bounds[0, i]
            high = world.bounds[1, i]
            agent.action[i] = low + 0.5 * (high - low) * (1.0 + action[i])
        action = agent.action
    reward, terminated, truncated = advance(member, world, index, action)
    world.observe(member.states[index], row[inputs : 2 * inputs])
    over = terminated or truncated
    row[end] = reward * reward_scale
    row[end + 1] = 1.0 if terminated else 0.0  # a truncated episode bootstraps
    if hp.n_steps > 1:
        row[end + 2] = 1.0 if over else 0.0
    agent.rewards[index] = reward
    agent.ended[index] = 1.0 if over else 0.0
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


def _outside(
    loop: Loop, member: Member, agent: Any, hp: Record, worlds: Worlds
) -> Callable[[int], None]:
    """Make what advances a member by rounds of steps outside and updates.

    A member that has diverged takes no further rounds.
    """
    environment = worlds.environment
    n_envs = len(worlds.observations)
    choose = loop.choose.prepared(member, agent, hp, worlds.observations)
    learn = loop.learn.prepared(member, agent, hp, no_step(environment, n_envs), True)
    final = int(hp.train_freq) - 1

    def advance_by(iterations: int) -> None:
        if not worlds.started():
            for index in range(n_envs):
                loop.after_episode(agent, index)
            # No sum of rewards goes on in episodes that begin anew.
            if hp.n_steps > 1:
                cut(agent.replay, n_envs)
        worlds.begin()
        for _ in range(iterations):
            for index in range(final + 1):
                choose(member, agent, hp, worlds.observations)
                actions = agent.actions[:n_envs]
                # Memory has continuous ones in [-1, 1], the environment within its bounds.
                if not environment.n_actions:
                    actions = environment.stretched(actions)
                learn(member, agent, hp, worlds.step(actions), index == final)
            # No simulator takes actions that are not finite.
            if not is_finite(member):
                break
        worlds.note_episodes()

    return advance_by
