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
from autorl.population import replay as memory
from autorl.population.actor_critic import descend, network_sizes, regress
from autorl.population.descent import polyak
from autorl.population.engine import State
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Fixed, Record, Setting, scheduled
from autorl.population.kernels import Array, aligned_copy, aligned_zeros, inlined_kernel, kernel
from autorl.population.members import STEPS, UPDATES, Member, draw
from autorl.population.minibatch import pair, pair_remembered, sum_rewards, take_rows
from autorl.population.networks import (
    ACTIVATIONS,
    TAPERED,
    Network,
    backward,
    backward_inputs,
    forward,
    prepare_backward,
)
from autorl.population.normalisation import Observer
from autorl.population.replay import SUMMED_STEPS, Replay

NORMAL, ORNSTEIN_UHLENBECK, NO_NOISE = range(3)
NOISES = {"normal": NORMAL, "ornstein-uhlenbeck": ORNSTEIN_UHLENBECK, "none": NO_NOISE}
# Rate of return to 0 and step of the process: the defaults of Stable-Baselines3's class.
THETA = 0.15
NOISE_DT = 1e-2

HYPERPARAMETERS = {
    "learning_rate": Setting(1e-3, lower=0.0, scheduled=True, sb3="function"),
    "buffer_size": Setting(1_000_000, lower=1, change=None),
    "learning_starts": Setting(100, lower=0),
    "batch_size": Setting(256, lower=1),
    "tau": Setting(0.005, lower=0.0, upper=1.0),
    "gamma": Setting(0.99, lower=0.0, upper=1.0),
    "train_freq": Setting(1, lower=1),
    "gradient_steps": Setting(1, lower=-1),
    "policy_delay": Setting(2, lower=1, case=Fixed(1)),  # in gradient steps
    "target_policy_noise": Setting(0.2, lower=0.0, case=Fixed(0.0)),
    "target_noise_clip": Setting(0.5, lower=0.0, case=Fixed(0.0)),
    "noise_type": Setting("normal", codes=NOISES, sb3="noise"),
    # In units of actions in [-1, 1]; 0 is Stable-Baselines3's default, no noise.
    "noise_std": Setting(0.0, lower=0.0, scheduled=True, sb3="noise"),
    "n_critics": Setting(2, lower=1, upper=2, change=None, sb3="policy", case=Fixed(1)),
    "n_envs": Setting(1, lower=1, change=None, sb3="model"),
    "n_steps": SUMMED_STEPS,
    "optimizer_eps": Setting(1e-8, lower=0.0, sb3="model"),
    "net_width": Setting(
        TAPERED[0], lower=1, integral=True, special=TAPERED, change=None, sb3="model"
    ),
    "net_depth": Setting(2, lower=1, change=None, sb3="model"),
    "activation": Setting("relu", codes=ACTIVATIONS, change=None, sb3="model"),
}


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


class Agent(NamedTuple):
    """Networks of a member, and scratch memory for a minibatch.

    The minibatch has n rows.

    Attributes:
        actor: its outputs are the action dimensions before tanh.
        first, second: critics; inputs are an observation and an action. If there is one, both
            are the same, else they share scratch memory, not outputs. `target_actor`, `target_1`,
            `target_2` are the targets and share that of their networks.
        replay, observer, observations, actions, action, batch, ends, discounts, targets: as
            `off_policy.scratch` makes them.
        gradient: (parameters,) flat, of actor and critics.
        pairs, action_slopes: inputs of the critics, and the first critic's gradient with respect to
            these.
    """

    actor: Network
    first: Network
    second: Network
    target_actor: Network
    target_1: Network
    target_2: Network
    target: Target
    exploration: Exploration
    replay: Replay
    observer: Observer | None
    gradient: Array
    observations: Array
    pairs: Array
    action_slopes: Array
    actions: Array
    action: Array
    batch: Array
    ends: Array
    discounts: Array
    targets: Array


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
    parameters = state["member"].parameters
    target = state["target"].parameters
    gradient = aligned_zeros(len(parameters), parameters.dtype)
    word = HYPERPARAMETERS["activation"].decode(hp.activation)
    shared = off_policy.scratch(state, environment, hp)
    rows = len(shared["actions"])
    actor, first, second = actor_critic.make_networks(
        parameters, gradient, network_sizes(environment, hp, 1), word, rows, int(hp.n_critics)
    )
    if hp.n_critics > 1:
        # One critic is done with before the other begins: of both only the outputs are kept.
        second = second._replace(hidden=first.hidden)
    pairs, slopes = actor_critic.critic_inputs(environment, rows, parameters.dtype)
    a = len(actor.parameters)
    c = len(first.parameters)
    return Agent(
        actor=actor,
        first=first,
        second=second,
        # Only the targets' outputs are read, before actor and critics run: they share scratch.
        target_actor=actor._replace(parameters=target[:a]),
        target_1=first._replace(parameters=target[a : a + c]),
        target_2=second._replace(parameters=target[len(target) - c :]),
        target=state["target"],
        exploration=state["exploration"],
        gradient=gradient,
        pairs=pairs,
        action_slopes=slopes,
        **shared,
    )


@kernel
def begin_noise(agent: Agent, index: int) -> None:
    """Begin an environment's noise anew."""
    agent.exploration.noise[index].fill(0.0)


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
                agent.exploration.noise[e], i, hp.noise_type, deviation, rng.normal(seed, normal)
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
    update = draw(member, rng.UPDATE)
    memory.sample_uniform(
        agent.replay, rng.bits(rng.stream(member.key[0], rng.REPLAY), update), agent.batch
    )
    seed = rng.bits(rng.stream(member.key[0], rng.UPDATE), update)
    member.counts[UPDATES] += 1
    updates = member.counts[UPDATES]
    actor_end = len(agent.actor.parameters)
    critics_end = len(member.parameters)
    critic_targets(agent, hp, seed)
    critic_gradient(agent, hp)
    descend(member, agent, hp, (rate, updates), (actor_end, critics_end))
    # Counted over the whole run, unlike SAC's target_update_interval.
    if updates % hp.policy_delay == 0:
        actor_gradient(agent)
        # Adam corrects its moments by the steps of its own network.
        agent.target.updates[0] += 1
        descend(member, agent, hp, (rate, agent.target.updates[0]), (0, actor_end))
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
    inputs = agent.observations.shape[1]
    sum_rewards(agent, hp, 2 * inputs + len(agent.action))
    take_rows(agent.replay, agent.observer, agent.ends, inputs, agent.observations)
    forward(agent.target_actor, agent.observations, n)
    for r in range(n):
        for i in range(size):
            noise = hp.target_policy_noise * rng.normal(seed, r * size + i)
            noise = min(max(noise, -limit), limit)
            action = math.tanh(agent.target_actor.outputs[r, i]) + noise
            agent.actions[r, i] = min(max(action, -1.0), 1.0)
    pair(agent)
    forward(agent.target_1, agent.pairs, n)
    if hp.n_critics > 1:
        forward(agent.target_2, agent.pairs, n)
    for r in range(n):
        alive = 1.0 - agent.replay.rows[agent.ends[r], 2 * inputs + size + 1]
        # One critic is both, and so are its outputs.
        following = min(agent.target_1.outputs[r, 0], agent.target_2.outputs[r, 0])
        agent.targets[r] += agent.discounts[r] * alive * following


@kernel
def critic_gradient(agent: Agent, hp: Record) -> None:
    """Compute the gradient of the critics' squared errors.

    It is that of mean (Q1(s, a) - y)^2 + mean (Q2(s, a) - y)^2. Actions are those in memory.
    """
    pair_remembered(agent)
    regress(agent, agent.first, 2.0)
    if hp.n_critics > 1:
        regress(agent, agent.second, 2.0)


@kernel
def actor_gradient(agent: Agent) -> None:
    """Compute the gradient of -mean Q1(s, tanh(u)), the first critic fixed.

    It is d loss / d u = -(1 - a^2) * d Q1 / d a for the actor's outputs u.
    """
    n = len(agent.batch)
    size = len(agent.action)
    inputs = agent.observations.shape[1]
    take_rows(agent.replay, agent.observer, agent.batch, 0, agent.observations)
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
    backward_inputs(agent.first, agent.action_slopes, n)
    agent.actor.gradient.fill(0.0)
    prepare_backward(agent.actor)
    for r in range(n):
        for i in range(size):
            action = agent.actions[r, i]
            slope = (1.0 - action * action) * agent.action_slopes[r, inputs + i]
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
)
