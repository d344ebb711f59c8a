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
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import off_policy, rng
from autorl.population import replay as memory
from autorl.population.descent import adam, polyak
from autorl.population.engine import Algorithm, Bound, State, limits
from autorl.population.environments.base import Environment
from autorl.population.evaluation import SQUASHED
from autorl.population.hyperparameters import Record, Setting, scheduled
from autorl.population.kernels import (
    Array,
    aligned_copy,
    aligned_zeros,
    inlined_kernel,
    kernel,
    program,
)
from autorl.population.members import STEPS, UPDATES, Member, World, draw, new_member
from autorl.population.minibatch import pair, pair_remembered, sum_rewards, take_rows
from autorl.population.networks import (
    ACTIVATIONS,
    TAPERED,
    Network,
    backward,
    backward_inputs,
    forward,
    hidden_widths,
    network,
    padded,
    parameter_count,
    prepare_backward,
    uniform_fan_in,
    with_delta_of,
)
from autorl.population.normalisation import (
    Observer,
    begin_observed,
    copy_rows,
    learn_step,
    normaliser_of,
    normaliser_part,
    observer_of,
)
from autorl.population.off_policy import look, step_continuous
from autorl.population.outside import Step, Worlds
from autorl.population.replay import Replay

NORMAL, ORNSTEIN_UHLENBECK, NO_NOISE = range(3)
NOISES = {"normal": NORMAL, "ornstein-uhlenbeck": ORNSTEIN_UHLENBECK, "none": NO_NOISE}
# Rate of return to 0 and step of the process: the defaults of Stable-Baselines3's class.
THETA = 0.15
NOISE_DT = 1e-2

HYPERPARAMETERS = {
    "learning_rate": Setting(1e-3, lower=0.0, scheduled=True),
    "buffer_size": Setting(1_000_000, lower=1, change=None),
    "learning_starts": Setting(100, lower=0),
    "batch_size": Setting(256, lower=1),
    "tau": Setting(0.005, lower=0.0, upper=1.0),
    "gamma": Setting(0.99, lower=0.0, upper=1.0),
    "train_freq": Setting(1, lower=1),
    "gradient_steps": Setting(1, lower=-1),
    "policy_delay": Setting(2, lower=1),  # in gradient steps
    "target_policy_noise": Setting(0.2, lower=0.0),
    "target_noise_clip": Setting(0.5, lower=0.0),
    "noise_type": Setting("normal", codes=NOISES),
    # Of actions in [-1, 1]; 0 is Stable-Baselines3's default, no noise.
    "noise_std": Setting(0.0, lower=0.0, scheduled=True),
    "n_critics": Setting(2, lower=1, upper=2, change=None),
    "n_envs": Setting(1, lower=1, change=None),
    "n_steps": Setting(1, lower=1, change=None),  # a memory of single steps marks no ends
    "optimizer_eps": Setting(1e-8, lower=0.0),
    "net_width": Setting(TAPERED[0], lower=1, integral=True, special=TAPERED, change=None),
    "net_depth": Setting(2, lower=1, change=None),
    "activation": Setting("relu", codes=ACTIVATIONS, change=None),
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
        first, second: critics; inputs are an observation and an action. Where there is one, both
            are the same, else they share scratch memory, not outputs. `target_actor`, `target_1`,
            `target_2` are the targets and share that of their networks.
        gradient: (parameters,) flat, of actor and critics.
        observations, pairs, action_slopes: inputs of actor and critics, and the first critic's
            gradient with respect to pairs.
        actions: (n, action_size) chosen actions in [-1, 1].
        batch, ends, discounts: (n,) as `minibatch.sum_rewards` has them.
        targets: (n,) what the critics move to.
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


def network_sizes(environment: Environment, hp: Record) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the layer sizes of the actor and of a critic."""
    inputs = environment.observation_size
    actions = environment.action_size
    hidden = hidden_widths(int(hp.net_width), int(hp.net_depth))
    return (inputs, *hidden, actions), (inputs + actions, *hidden, 1)


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0.

    Weights are PyTorch's default, and targets equal their networks.
    """
    actor, critic = network_sizes(environment, hp)
    parts = [actor, *(critic for _ in range(int(hp.n_critics)))]
    ends = np.cumsum([parameter_count(sizes) for sizes in parts])
    parameters = aligned_zeros(int(ends[-1]), dtype)
    for index, (end, sizes) in enumerate(zip(ends, parts, strict=True)):
        part = parameters[end - parameter_count(sizes) : end]
        uniform_fan_in(part, sizes, rng.derived(key, rng.INITIALISE, index))
    n_envs = int(hp.n_envs)
    return {
        "member": new_member(key, parameters, environment, n_envs),
        "target": Target(aligned_copy(parameters), np.zeros(1, np.int64)),
        "exploration": Exploration(np.zeros((n_envs, environment.action_size))),
        "replay": memory.member_replay(environment, hp, dtype),
        **normaliser_part(environment, n_envs, float(hp.gamma)),
    }


def make_agent(state: State, environment: Environment, hp: Record) -> Agent:
    """Make networks over the state's parameters, and scratch memory."""
    parameters = state["member"].parameters
    target = state["target"].parameters
    actor_sizes, critic_sizes = network_sizes(environment, hp)
    word = HYPERPARAMETERS["activation"].decode(hp.activation)
    a = parameter_count(actor_sizes)
    c = parameter_count(critic_sizes)
    n = int(hp.batch_size)
    dtype = parameters.dtype
    rows = max(n, int(hp.n_envs))
    inputs = environment.observation_size
    actions = environment.action_size
    gradient = aligned_zeros(len(parameters), dtype)
    actor = network(parameters[:a], gradient[:a], actor_sizes, word, rows)
    first = network(parameters[a : a + c], gradient[a : a + c], critic_sizes, word, rows)
    second = first
    if hp.n_critics > 1:
        second = network(parameters[a + c :], gradient[a + c :], critic_sizes, word, rows)
        # One critic is done with before the other begins: of both only the outputs are kept.
        second = with_delta_of(second, first)._replace(hidden=first.hidden)
    return Agent(
        actor=with_delta_of(actor, first),
        first=first,
        second=second,
        # Only the targets' outputs are read, before actor and critics run: they share scratch.
        target_actor=actor._replace(parameters=target[:a]),
        target_1=first._replace(parameters=target[a : a + c]),
        target_2=second._replace(parameters=target[len(target) - c :]),
        target=state["target"],
        exploration=state["exploration"],
        replay=state["replay"],
        observer=observer_of(state),
        gradient=gradient,
        observations=np.zeros((rows, inputs), dtype),
        pairs=np.zeros((rows, inputs + actions), dtype),
        action_slopes=np.zeros((rows, padded(inputs + actions)), dtype),
        actions=np.zeros((rows, actions)),
        action=np.zeros(actions),
        batch=np.zeros(n, np.int64),
        ends=np.zeros(n, np.int64),
        discounts=np.zeros(n),
        targets=np.zeros(n),
    )


@program
def train(
    member: Member,
    agent: Agent,
    hp: Record,
    limits: tuple[int, int, Array],
    reset: Callable[[Array, int], None],
    step: Callable[[Array, Array, int], tuple[float, bool]],
    observe: Callable[[Array, Array], None],
    iterations: int,
) -> None:
    """Advance `member` by `iterations` rounds of steps and updates.

    `limits` are the time limit, the number of actions and the action bounds.
    """
    world = World(reset, step, observe, limits[0], limits[1], limits[2])
    begin_observed(agent.observer, member, world, agent.observations)
    for _ in range(iterations):
        # Steps of every environment, into the replay memory.
        for _ in range(hp.train_freq):
            step_environments(member, agent, hp, world)
        update(member, agent, hp)


@inlined_kernel
def update(member: Member, agent: Agent, hp: Record) -> None:
    """Make the updates that follow the steps of one round."""
    if member.counts[STEPS] > hp.learning_starts:
        progress = member.counts[STEPS] / hp.horizon
        rate = scheduled(hp.learning_rate, hp.learning_rate_end, hp.learning_rate_shape, progress)
        updates = hp.gradient_steps
        if updates < 0:  # one per step taken
            updates = hp.train_freq * len(member.states)
        for _ in range(updates):
            update_networks(member, agent, hp, rate)


@kernel
def step_environments(member: Member, agent: Agent, hp: Record, world: World) -> None:
    """Make one step of every environment, and remember it."""
    look(agent.observer, member, world, agent.observations)
    choose_actions(member, agent, hp)
    for e in range(len(member.states)):
        if step_continuous(member, agent, hp, world, e, 1.0):
            agent.exploration.noise[e].fill(0.0)
    learn_step(agent.observer, member, world, agent.observations)


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
    # Of all environments or of none, as in Stable-Baselines3.
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
def update_networks(member: Member, agent: Agent, hp: Record, rate: float) -> None:
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
        # Of one critic both are the same, and so are their outputs.
        following = min(agent.target_1.outputs[r, 0], agent.target_2.outputs[r, 0])
        agent.targets[r] += agent.discounts[r] * alive * following


@kernel
def critic_gradient(agent: Agent, hp: Record) -> None:
    """Compute the gradient of the critics' squared errors.

    It is that of mean (Q1(s, a) - y)^2 + mean (Q2(s, a) - y)^2. Actions are those in memory.
    """
    pair_remembered(agent)
    regress(agent, agent.first)
    if hp.n_critics > 1:
        regress(agent, agent.second)


@kernel
def regress(agent: Agent, critic: Network) -> None:
    """Compute the gradient of a critic's mean squared error over `pairs`."""
    n = len(agent.batch)
    critic.gradient.fill(0.0)
    forward(critic, agent.pairs, n)
    prepare_backward(critic)
    for r in range(n):
        critic.slopes[r, 0] = 2.0 * (critic.outputs[r, 0] - agent.targets[r]) / n
    backward(critic, agent.pairs, n)


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


@kernel
def descend(
    member: Member, agent: Agent, hp: Record, pace: tuple[float, int], part: tuple[int, int]
) -> None:
    """Make one step of Adam for a part of the parameters.

    `part` is where it begins and ends, `pace` are the learning rate and the number of the step.
    """
    values = member.parameters[part[0] : part[1]]
    gradient = agent.gradient[part[0] : part[1]]
    first = member.moments[0][part[0] : part[1]]
    second = member.moments[1][part[0] : part[1]]
    adam(values, gradient, first, second, pace[1], pace[0], hp.optimizer_eps, 1.0)


def bind(state: State, environment: Environment, hp: Record) -> Bound:
    """Put networks and scratch memory around the state."""
    member = state["member"]
    normaliser_of(state, environment, float(hp.gamma))
    agent = make_agent(state, environment, hp)
    functions = environment.functions(member.parameters.dtype)

    def advance_by(iterations: int) -> None:
        train(member, agent, hp, limits(environment), *functions, iterations)

    return Bound(advance_by, agent.actor, SQUASHED)


@program
def choose(member: Member, agent: Agent, hp: Record, observations: Array) -> None:
    """Act on observations (n_envs, observation_size) of environments outside."""
    copy_rows(agent.observations, observations)
    choose_actions(member, agent, hp)


@program
def learn(member: Member, agent: Agent, hp: Record, step: Step, round_ends: bool) -> None:
    """Remember a step of environments outside, and update after a round."""
    off_policy.remember(agent.replay, agent.actions, step, 1.0)
    for e in range(len(member.states)):
        if step.ended[e]:
            agent.exploration.noise[e].fill(0.0)
    if round_ends:
        update(member, agent, hp)


def bind_outside(state: State, environment: Environment, hp: Record, worlds: Worlds) -> Bound:
    """Put networks and scratch memory around a member whose environments are outside."""
    member: Member = state["member"]
    normaliser_of(state, environment, float(hp.gamma))
    agent = make_agent(state, environment, hp)
    programs = off_policy.continuous_programs((choose, learn), member, agent, hp, worlds)

    def advance_by(iterations: int) -> None:
        if not worlds.started():
            agent.exploration.noise.fill(0.0)
        off_policy.advance(member, agent.replay, hp, worlds, programs, iterations)

    return Bound(advance_by, agent.actor, SQUASHED)


ALGORITHM = Algorithm(
    name="td3",
    settings=HYPERPARAMETERS,
    discrete=False,
    continuous=True,
    stride=lambda hp: int(hp.train_freq) * int(hp.n_envs),
    create=create,
    bind=bind,
    parts={"member": Member, "target": Target, "exploration": Exploration, "replay": Replay},
    bind_outside=bind_outside,
)
