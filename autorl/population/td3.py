"""Twin delayed deterministic policy gradient of one member.

Semantics and defaults are Stable-Baselines3's: the actor's action, tanh of its outputs, gets
exploration noise and is cut to [-1, 1], uniformly random actions before `learning_starts` too;
`train_freq` steps of every environment, then `gradient_steps` updates (-1: one per step taken) of
the critics; every `policy_delay`-th update also moves the actor and, by Polyak averaging, all
targets; a truncated episode bootstraps. Actions are kept and judged in [-1, 1] and stretched to the
environment's bounds. No gradient clipping. `noise_type` and `noise_std` are the `action_noise` of
Stable-Baselines3 under the names of RL Baselines3 Zoo: one process per environment, begun anew with
every episode.

References:
    [Fujimoto2018] S. Fujimoto, H. van Hoof, D. Meger. Addressing function approximation error in
        actor-critic methods. ICML 2018.
    [Lillicrap2016] T. Lillicrap et al. Continuous control with deep reinforcement learning. ICLR
        2016 (DDPG, with Ornstein and Uhlenbeck's process as exploration noise).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import actor_critic, off_policy, rng
from autorl.population.actor_critic import (
    ACTOR_LOSS,
    MEASURES,
    Agent,
    add_values,
    begin_update,
    critic_gradient,
    network_sizes,
    pair,
)
from autorl.population.descent import average, descend, polyak
from autorl.population.engine import State
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Fixed, Record, Setting, scheduled
from autorl.population.kernels import Array, aligned_copy, inlined_kernel, kernel
from autorl.population.members import STEPS, UPDATES, Member, draw
from autorl.population.networks import TAPERED, backward, backward_inputs, forward, prepare_backward
from autorl.population.replay import begin_targets, take_rows

NORMAL, ORNSTEIN_UHLENBECK, NO_NOISE = range(3)
NOISES = {"normal": NORMAL, "ornstein-uhlenbeck": ORNSTEIN_UHLENBECK, "none": NO_NOISE}
# Rate of return to 0 and step of the process: the defaults of Stable-Baselines3's class.
THETA = 0.15
NOISE_DT = 1e-2

HYPERPARAMETERS = off_policy.settings(
    {
        "policy_delay": Setting(2, lower=1, case=Fixed(1)),  # in gradient steps
        "target_policy_noise": Setting(0.2, lower=0.0, case=Fixed(0.0)),
        "target_noise_clip": Setting(0.5, lower=0.0, case=Fixed(0.0)),
        "noise_type": Setting("normal", codes=NOISES, sb3="noise"),
        # In units of actions in [-1, 1]; 0 is Stable-Baselines3's default, no noise.
        "noise_std": Setting(0.0, lower=0.0, scheduled=True, sb3="noise"),
        "n_critics": Setting(2, lower=1, upper=2, change=None, sb3="policy", case=Fixed(1)),
    },
    rate=1e-3,
    batch_size=256,
    tau=0.005,
    train_freq=1,
    width=Setting(TAPERED[0], lower=1, integral=True, special=TAPERED, change=None, sb3="model"),
)


class Target(NamedTuple):
    """The targets of actor and critics, and the actor's updates.

    Attributes:
        parameters: of all targets, flat.
        updates: how many the actor has made, (1,) int64.
    """

    parameters: Array
    updates: Array


class Exploration(NamedTuple):
    """The present values of Ornstein and Uhlenbeck's processes, (n_envs, action_size) float64."""

    noise: Array


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0.

    Weights are PyTorch's default, and targets equal their networks.
    """
    actor, critic = network_sizes(environment, hp, 1)
    networks = (actor, *(critic for _ in range(int(hp.n_critics))))
    parameters = actor_critic.initial_parameters(networks, key, dtype)
    return off_policy.new_state(
        key,
        parameters,
        environment,
        hp,
        target=Target(aligned_copy(parameters), np.zeros(1, np.int64)),
        exploration=Exploration(np.zeros((int(hp.n_envs), environment.action_size))),
    )


def make_agent(state: State, environment: Environment, hp: Record) -> Agent:
    """Make networks over the state's parameters, and scratch memory."""
    agent = actor_critic.make_agent(state, environment, hp, 1, int(hp.n_critics))
    # One critic is done with before the other begins: of both only the outputs are kept.
    hidden = agent.first.hidden
    return agent._replace(
        second=agent.second._replace(hidden=hidden),
        target_2=agent.target_2._replace(hidden=hidden),
        noise=state["exploration"].noise,
    )


@kernel
def begin_noise(agent: Agent, index: int) -> None:
    """Begin an environment's noise anew."""
    agent.noise[index].fill(0.0)


@inlined_kernel
def choose_actions(member: Member, agent: Agent, hp: Record) -> None:
    """Choose an action in [-1, 1] for every environment.

    It is the actor's, uniformly drawn before `learning_starts`, with exploration noise. The first
    rows of `agent.observations` are theirs, the actions go into `agent.actions`.
    """
    n_envs = len(member.states)
    deviation = scheduled(
        hp.noise_std, hp.noise_std_end, hp.noise_std_shape, member.counts[STEPS] / hp.horizon
    )
    # Actions of all environments are random or none is, as in Stable-Baselines3.
    at_random = member.counts[STEPS] < hp.learning_starts
    forward(agent.actor, agent.observations, n_envs)
    seed = rng.stream(member.key[0], rng.ACTION)
    for e in range(n_envs):
        for i in range(len(agent.action)):
            # Both are drawn for every action: learning_starts moves no draw.
            uniform = draw(member, rng.ACTION)
            normal = draw(member, rng.ACTION)
            action = math.tanh(agent.actor.outputs[e, i])
            if at_random:
                action = 2.0 * rng.uniform(seed, 2 * uniform) - 1.0
            # Random actions get noise as well, as in Stable-Baselines3.
            action += exploration_noise(
                agent.noise[e], i, hp.noise_type, deviation, rng.normal(seed, normal)
            )
            agent.actions[e, i] = min(max(action, -1.0), 1.0)


@kernel
def exploration_noise(
    processes: Array, index: int, kind: int, deviation: float, normal: float
) -> float:
    """Return the noise of action dimension `index` for a normal draw.

    Ornstein and Uhlenbeck's process, of which `processes` (action_size,) holds the present values,
    makes one step [Lillicrap2016]:

        x = x - theta * x * dt + deviation * sqrt(dt) * normal
    """
    if kind == NORMAL:
        return deviation * normal
    if kind == ORNSTEIN_UHLENBECK:
        value = processes[index]
        value = value - THETA * value * NOISE_DT + deviation * math.sqrt(NOISE_DT) * normal
        processes[index] = value
        return float(value)
    return 0.0


@kernel
def update_networks(member: Member, agent: Agent, hp: Record, rate: float, index: int) -> None:
    """Make one gradient step of the critics.

    The actor makes one where it is due. The minibatch is fresh, the order Stable-Baselines3's.
    """
    seed = begin_update(member, agent)
    updates = member.counts[UPDATES]
    actor_end = len(agent.actor.parameters)
    critics_end = len(member.parameters)
    critic_targets(agent, hp, seed)
    critic_gradient(agent, hp.n_critics, 2.0, updates)
    descend(member, agent.gradient, hp, (rate, updates), 1.0, (actor_end, critics_end))
    # Counted over the whole run, unlike SAC's target_update_interval.
    if updates % hp.policy_delay == 0:
        actor_gradient(agent)
        # Adam corrects its moments by the steps of its own network.
        agent.target.updates[0] += 1
        average(agent.measures, ACTOR_LOSS, actor_loss(agent), agent.target.updates[0])
        descend(member, agent.gradient, hp, (rate, agent.target.updates[0]), 1.0, (0, actor_end))
        polyak(agent.target.parameters, member.parameters, hp.tau)


@kernel
def critic_targets(agent: Agent, hp: Record, seed: int) -> None:
    """Fill the targets y of the critics [Fujimoto2018].

        y = R + gamma^k * (1 - terminated) * min Q'(s', a')
        a' = clip(pi'(s') + clip(noise, -c, c), -1, 1)

    with normal noise of deviation `target_policy_noise`, c = `target_noise_clip`, R the discounted
    sum of k rewards and s' the state after them.
    """
    n = len(agent.batch)
    size = len(agent.action)
    limit = hp.target_noise_clip
    begin_targets(agent, hp)
    forward(agent.target_actor, agent.observations, n)
    for r in range(n):
        for i in range(size):
            noise = hp.target_policy_noise * rng.normal(seed, r * size + i)
            noise = min(max(noise, -limit), limit)
            action = math.tanh(agent.target_actor.outputs[r, i]) + noise
            agent.actions[r, i] = min(max(action, -1.0), 1.0)
    add_values(agent, hp.n_critics, 0.0)


@kernel
def actor_loss(agent: Agent) -> float:
    """Return -mean Q1(s, tanh(u)) after `actor_gradient`."""
    total = 0.0
    for r in range(len(agent.batch)):
        total -= agent.first.outputs[r, 0]
    return total / len(agent.batch)


@kernel
def actor_gradient(agent: Agent) -> None:
    """Compute the gradient of -mean Q1(s, tanh(u)), the first critic fixed.

    It is d loss / d u = -(1 - a^2) * d Q1 / d a for the actor's outputs u.
    """
    n = len(agent.batch)
    size = len(agent.action)
    inputs = agent.observations.shape[1]
    take_rows(agent, agent.batch, 0)
    forward(agent.actor, agent.observations, n)
    for r in range(n):
        for i in range(size):
            agent.actions[r, i] = math.tanh(agent.actor.outputs[r, i])
    pair(agent)
    forward(agent.first, agent.pairs, n)
    for r in range(n):
        agent.first.slopes[r, 0] = -1.0 / n
    # The critic has made a step since its weights were transposed.
    prepare_backward(agent.first)
    backward_inputs(agent.first, agent.action_slopes[0], n)
    agent.actor.gradient.fill(0.0)
    prepare_backward(agent.actor)
    for r in range(n):
        for i in range(size):
            action = agent.actions[r, i]
            slope = (1.0 - action * action) * agent.action_slopes[0, r, inputs + i]
            agent.actor.slopes[r, i] = slope
    backward(agent.actor, agent.observations, n)


LOOP = off_policy.make_loop(__name__, choose_actions, update_networks, after_episode=begin_noise)
ALGORITHM = off_policy.make_algorithm(
    "td3",
    HYPERPARAMETERS,
    LOOP,
    create,
    make_agent,
    {"target": Target, "exploration": Exploration},
    discrete=False,
    measures=MEASURES[:2],
)
