"""Soft actor-critic of one member.

Semantics and defaults are Stable-Baselines3's: uniformly random actions before `learning_starts`;
`train_freq` steps of every environment, then `gradient_steps` updates (-1: one per step taken),
each of temperature, critics and actor in this order on one minibatch; target critics follow by
Polyak averaging; a truncated episode bootstraps. Actions are kept and judged in [-1, 1] and
stretched to the environment's bounds. No gradient clipping.

Reference:
    [Haarnoja2018] T. Haarnoja et al. Soft actor-critic algorithms and applications.
        arXiv:1812.05905.
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
    Network,
    backward,
    backward_inputs,
    forward,
    hidden_sizes,
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
from autorl.population.policies import HALF_LOG_2PI
from autorl.population.replay import Replay

HYPERPARAMETERS = {
    "learning_rate": Setting(3e-4, lower=0.0, scheduled=True),
    "buffer_size": Setting(1_000_000, lower=1, change=None),
    "learning_starts": Setting(100, lower=0),
    "batch_size": Setting(256, lower=1),
    "tau": Setting(0.005, lower=0.0, upper=1.0),
    "gamma": Setting(0.99, lower=0.0, upper=1.0),
    "train_freq": Setting(1, lower=1),
    "gradient_steps": Setting(1, lower=-1),
    "target_update_interval": Setting(1, lower=1),  # in gradient steps
    "ent_coef": Setting("auto", lower=0.0, special=("auto", -1.0), change=None),
    # auto: minus the number of action dimensions.
    "target_entropy": Setting("auto", special=("auto", math.inf)),
    "reward_scale": Setting(1.0),
    "n_envs": Setting(1, lower=1, change=None),
    "n_steps": Setting(1, lower=1, change=None),  # a memory of single steps marks no ends
    "optimizer_eps": Setting(1e-8, lower=0.0),
    "net_width": Setting(256, lower=1, change=None),
    "net_depth": Setting(2, lower=1, change=None),
    "activation": Setting("relu", codes=ACTIVATIONS, change=None),
}
LOG_STD_LOW = -20.0
LOG_STD_HIGH = 2.0
SQUASH_EPS = 1e-6


class Target(NamedTuple):
    """The parameters of both target critics, flat."""

    parameters: Array


class Agent(NamedTuple):
    """Networks of a member, and scratch memory for a minibatch.

    The minibatch has n rows.

    Attributes:
        actor: outputs mean and log-deviation of each action dimension.
        first, second: critics; inputs are an observation and an action. `target_1`, `target_2` are
            their targets and share their scratch memory.
        log_alpha: (1,) the logarithm of the temperature, the last parameter.
        gradient: (parameters,) flat, of actor, critics and temperature.
        observations, pairs, action_slopes: inputs of actor and critics, and the critics' gradients
            with respect to pairs.
        actions, noise: (n, action_size) drawn actions in [-1, 1] and the normal draws behind them.
        batch, ends, discounts: (n,) as `minibatch.sum_rewards` has them.
        targets, log_probs: (n,) what the critics move to, log-probabilities of `actions`.
    """

    actor: Network
    first: Network
    second: Network
    target_1: Network
    target_2: Network
    replay: Replay
    observer: Observer | None
    log_alpha: Array
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
    log_probs: Array


def network_sizes(environment: Environment, hp: Record) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the layer sizes of the actor and of a critic."""
    inputs = environment.observation_size
    actions = environment.action_size
    width = int(hp.net_width)
    depth = int(hp.net_depth)
    return hidden_sizes(inputs, width, depth, 2 * actions), hidden_sizes(
        inputs + actions, width, depth, 1
    )


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0.

    Weights are PyTorch's default, targets equal the critics, and the temperature is 1 or as given.
    """
    actor, critic = network_sizes(environment, hp)
    a = parameter_count(actor)
    c = parameter_count(critic)
    parameters = aligned_zeros(a + 2 * c + 1, dtype)
    for index, (first, sizes) in enumerate(((0, actor), (a, critic), (a + c, critic))):
        part = parameters[first : first + parameter_count(sizes)]
        uniform_fan_in(part, sizes, rng.derived(key, rng.INITIALISE, index))
    # A coefficient of 0 has no logarithm.
    if hp.ent_coef >= 0.0:
        parameters[-1] = math.log(max(float(hp.ent_coef), 1e-30))
    n_envs = int(hp.n_envs)
    return {
        "member": new_member(key, parameters, environment, n_envs),
        "target": Target(aligned_copy(parameters[a : a + 2 * c])),
        "replay": memory.member_replay(environment, hp, dtype),
        **normaliser_part(environment, n_envs, float(hp.gamma)),
    }


def make_agent(state: State, environment: Environment, hp: Record) -> Agent:
    """Make networks over the state's parameters, and scratch memory."""
    parameters = state["member"].parameters
    target = state["target"].parameters
    actor, critic = network_sizes(environment, hp)
    word = HYPERPARAMETERS["activation"].decode(hp.activation)
    a = parameter_count(actor)
    c = parameter_count(critic)
    n = int(hp.batch_size)
    dtype = parameters.dtype
    rows = max(n, int(hp.n_envs))
    inputs = environment.observation_size
    actions = environment.action_size
    gradient = aligned_zeros(len(parameters), dtype)
    first = network(parameters[a : a + c], gradient[a : a + c], critic, word, rows)
    second = network(parameters[a + c : -1], gradient[a + c : -1], critic, word, rows)
    second = with_delta_of(second, first)
    return Agent(
        actor=with_delta_of(network(parameters[:a], gradient[:a], actor, word, rows), first),
        first=first,
        second=second,
        # Only the targets' outputs are read, before the critics run: they share scratch memory.
        target_1=first._replace(parameters=target[:c]),
        target_2=second._replace(parameters=target[c:]),
        replay=state["replay"],
        observer=observer_of(state),
        log_alpha=parameters[-1:],
        gradient=gradient,
        observations=np.zeros((rows, inputs), dtype),
        pairs=np.zeros((rows, inputs + actions), dtype),
        action_slopes=np.zeros((2, rows, padded(inputs + actions)), dtype),
        actions=np.zeros((rows, actions)),
        noise=np.zeros((rows, actions)),
        action=np.zeros(actions),
        batch=np.zeros(n, np.int64),
        ends=np.zeros(n, np.int64),
        discounts=np.zeros(n),
        targets=np.zeros(n),
        log_probs=np.zeros(n),
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
        for index in range(updates):
            update_networks(member, agent, hp, rate)
            # Counted anew in every round, as in Stable-Baselines3.
            if index % hp.target_update_interval == 0:
                polyak(agent.target_1.parameters, agent.first.parameters, hp.tau)
                polyak(agent.target_2.parameters, agent.second.parameters, hp.tau)


@kernel
def step_environments(member: Member, agent: Agent, hp: Record, world: World) -> None:
    """Make one step of every environment, and remember it."""
    look(agent.observer, member, world, agent.observations)
    choose_actions(member, agent, hp)
    for e in range(len(member.states)):
        step_continuous(member, agent, hp, world, e, hp.reward_scale)
    learn_step(agent.observer, member, world, agent.observations)


@inlined_kernel
def choose_actions(member: Member, agent: Agent, hp: Record) -> None:
    """Draw an action in [-1, 1] for every environment, uniformly before `learning_starts`.

    The first rows of `agent.observations` are theirs, the actions go into `agent.actions`.
    """
    n_envs = len(member.states)
    # Of all environments or of none, as in Stable-Baselines3.
    at_random = member.counts[STEPS] < hp.learning_starts
    forward(agent.actor, agent.observations, n_envs)
    seed = rng.stream(member.key[0], rng.ACTION)
    for e in range(n_envs):
        squashed_sample(
            agent.actor.outputs[e],
            seed,
            member.counters[rng.ACTION],
            agent.noise[e],
            agent.actions[e],
        )
        for i in range(len(agent.action)):
            counter = draw(member, rng.ACTION)
            # In place of the normal draw of this counter.
            if at_random:
                agent.actions[e, i] = 2.0 * rng.uniform(seed, 2 * counter) - 1.0


@kernel
def squashed_sample(outputs: Array, seed: int, counter: int, noise: Array, action: Array) -> float:
    """Draw tanh(mean + std * noise) into `action`.

    Returns its log-probability.

    log p(a) = log N(u) - sum log(1 - a^2 + 1e-6) for a = tanh(u). Draws `counter`, `counter` + 1,
    ... of stream `seed`.
    """
    n = len(action)
    log_prob = 0.0
    for i in range(n):
        noise[i] = rng.normal(seed, counter + i)
        log_std = min(max(float(outputs[n + i]), LOG_STD_LOW), LOG_STD_HIGH)
        action[i] = math.tanh(outputs[i] + math.exp(log_std) * noise[i])
        # Change of variables by tanh; Stable-Baselines3 adds 1e-6 against the logarithm of 0.
        log_prob -= 0.5 * noise[i] * noise[i] + log_std + HALF_LOG_2PI
        log_prob -= math.log(1.0 - action[i] * action[i] + SQUASH_EPS)
    return log_prob


@kernel
def update_networks(member: Member, agent: Agent, hp: Record, rate: float) -> None:
    """Make one gradient step of temperature, critics and actor.

    The minibatch is fresh, the order Stable-Baselines3's.
    """
    update = draw(member, rng.UPDATE)
    n = len(agent.batch)
    memory.sample_uniform(
        agent.replay, rng.bits(rng.stream(member.key[0], rng.REPLAY), update), agent.batch
    )
    seed = rng.bits(rng.stream(member.key[0], rng.UPDATE), update)
    member.counts[UPDATES] += 1
    # Before its own step: Stable-Baselines3 has one value for targets and for the actor's loss.
    alpha = math.exp(agent.log_alpha[0]) if hp.ent_coef < 0.0 else float(hp.ent_coef)
    # 1. Targets, by the networks before any step of this update.
    critic_targets(agent, hp, alpha, rng.stream(seed, 1))
    # 2. New actions for the states of the minibatch.
    take_rows(agent.replay, agent.observer, agent.batch, 0, agent.observations)
    forward(agent.actor, agent.observations, n)
    for r in range(n):
        draws = r * len(agent.action)
        outputs = agent.actor.outputs[r]
        agent.log_probs[r] = squashed_sample(
            outputs, rng.stream(seed, 0), draws, agent.noise[r], agent.actions[r]
        )
    # 3. The temperature, which is the last parameter, where it is learned.
    actor_end = len(agent.actor.parameters)
    critics_end = len(member.parameters) - 1
    if hp.ent_coef < 0.0:
        temperature_gradient(agent, hp)
        descend(member, agent, hp, rate, critics_end, critics_end + 1)
    # 4. The critics, then the actor against the critics as they are now.
    critic_gradient(agent)
    descend(member, agent, hp, rate, actor_end, critics_end)
    actor_gradient(agent, alpha)
    descend(member, agent, hp, rate, 0, actor_end)


@kernel
def critic_targets(agent: Agent, hp: Record, alpha: float, seed: int) -> None:
    """Fill the targets y of the critics.

        y = R + gamma^k * (1 - terminated) * (min Q'(s', a') - alpha * log pi(a'|s'))

    with a' drawn from the policy, R the discounted sum of k rewards and s' the state after them.
    """
    n = len(agent.batch)
    inputs = agent.observations.shape[1]
    sum_rewards(agent, hp, 2 * inputs + len(agent.action))
    take_rows(agent.replay, agent.observer, agent.ends, inputs, agent.observations)
    forward(agent.actor, agent.observations, n)
    for r in range(n):
        draws = r * len(agent.action)
        agent.log_probs[r] = squashed_sample(
            agent.actor.outputs[r], seed, draws, agent.noise[r], agent.actions[r]
        )
    pair(agent)
    forward(agent.target_1, agent.pairs, n)
    forward(agent.target_2, agent.pairs, n)
    for r in range(n):
        alive = 1.0 - agent.replay.rows[agent.ends[r], 2 * inputs + len(agent.action) + 1]
        following = (
            min(agent.target_1.outputs[r, 0], agent.target_2.outputs[r, 0])
            - alpha * agent.log_probs[r]
        )
        agent.targets[r] += agent.discounts[r] * alive * following


@kernel
def temperature_gradient(agent: Agent, hp: Record) -> None:
    """Compute the gradient of -log_alpha * mean(log pi(a|s) + target entropy)."""
    # Minus the number of action dimensions is the paper's choice [Haarnoja2018].
    target = -float(len(agent.action)) if math.isinf(hp.target_entropy) else hp.target_entropy
    total = 0.0
    for r in range(len(agent.batch)):
        total += agent.log_probs[r] + target
    agent.gradient[-1] = -total / len(agent.batch)


@kernel
def critic_gradient(agent: Agent) -> None:
    """Compute the gradient of both critics' squared errors.

    It is that of 0.5 * (mean (Q1(s, a) - y)^2 + mean (Q2(s, a) - y)^2) for the actions in memory.
    """
    n = len(agent.batch)
    pair_remembered(agent)
    for critic in (agent.first, agent.second):
        critic.gradient.fill(0.0)
        forward(critic, agent.pairs, n)
        prepare_backward(critic)
        for r in range(n):
            # The factor 0.5 of the loss and the 2 of the square's derivative cancel.
            critic.slopes[r, 0] = (critic.outputs[r, 0] - agent.targets[r]) / n
        backward(critic, agent.pairs, n)


@kernel
def actor_gradient(agent: Agent, alpha: float) -> None:
    """Compute the gradient of the actor's loss, critics fixed.

    It is that of mean(alpha * log pi(a|s) - min(Q1, Q2)(s, a)) for a = tanh(u), u = mean + std *
    noise:

        d loss / d u = alpha * 2 a (1 - a^2) / (1 - a^2 + 1e-6) - (1 - a^2) * d min Q / d a
        d loss / d mean = d loss / d u
        d loss / d log std = std * noise * d loss / d u - alpha    (0 where it is clamped)
    """
    n = len(agent.batch)
    size = len(agent.action)
    action_gradients(agent)
    inputs = agent.observations.shape[1]
    agent.actor.gradient.fill(0.0)
    prepare_backward(agent.actor)
    for r in range(n):
        outputs = agent.actor.outputs[r]
        slopes = agent.actor.slopes[r]
        for i in range(size):
            action = agent.actions[r, i]
            log_std = float(outputs[size + i])
            slack = 1.0 - action * action
            by_action = (
                agent.action_slopes[0, r, inputs + i] + agent.action_slopes[1, r, inputs + i]
            )
            slope = alpha * 2.0 * action * slack / (slack + SQUASH_EPS) + slack * by_action
            slopes[i] = slope / n
            # `torch.clamp` passes the gradient at its bounds too.
            free = LOG_STD_LOW <= log_std <= LOG_STD_HIGH
            slopes[size + i] = (
                (math.exp(log_std) * agent.noise[r, i] * slope - alpha) / n if free else 0.0
            )
    backward(agent.actor, agent.observations, n)


@kernel
def action_gradients(agent: Agent) -> None:
    """Compute d(-min(Q1, Q2)(s, a)) / d(s, a) of every row.

    It is the sum of both entries of `action_slopes`.
    """
    n = len(agent.batch)
    pair(agent)
    forward(agent.first, agent.pairs, n)
    forward(agent.second, agent.pairs, n)
    for r in range(n):
        first_is_less = agent.first.outputs[r, 0] <= agent.second.outputs[r, 0]
        agent.first.slopes[r, 0] = -1.0 if first_is_less else 0.0
        agent.second.slopes[r, 0] = 0.0 if first_is_less else -1.0
    # The critics have made a step since their weights were transposed.
    prepare_backward(agent.first)
    prepare_backward(agent.second)
    backward_inputs(agent.first, agent.action_slopes[0], n)
    backward_inputs(agent.second, agent.action_slopes[1], n)


@kernel
def descend(
    member: Member, agent: Agent, hp: Record, rate: float, begin_at: int, end_at: int
) -> None:
    """Make one step of Adam for the parameters from `begin_at` to `end_at`."""
    # Adam moves each number by itself: three slices are Stable-Baselines3's three optimizers.
    values = member.parameters[begin_at:end_at]
    gradient = agent.gradient[begin_at:end_at]
    first = member.moments[0][begin_at:end_at]
    second = member.moments[1][begin_at:end_at]
    adam(values, gradient, first, second, member.counts[UPDATES], rate, hp.optimizer_eps, 1.0)


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
    off_policy.remember(agent.replay, agent.actions, step, hp.reward_scale)
    if round_ends:
        update(member, agent, hp)


def bind_outside(state: State, environment: Environment, hp: Record, worlds: Worlds) -> Bound:
    """Put networks and scratch memory around a member whose environments are outside."""
    member: Member = state["member"]
    normaliser_of(state, environment, float(hp.gamma))
    agent = make_agent(state, environment, hp)
    programs = off_policy.continuous_programs((choose, learn), member, agent, hp, worlds)

    def advance_by(iterations: int) -> None:
        off_policy.advance(member, agent.replay, hp, worlds, programs, iterations)

    return Bound(advance_by, agent.actor, SQUASHED)


ALGORITHM = Algorithm(
    name="sac",
    settings=HYPERPARAMETERS,
    discrete=False,
    continuous=True,
    stride=lambda hp: int(hp.train_freq) * int(hp.n_envs),
    create=create,
    bind=bind,
    parts={"member": Member, "target": Target, "replay": Replay},
    bind_outside=bind_outside,
)
