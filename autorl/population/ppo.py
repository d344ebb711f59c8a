"""Proximal policy optimisation of one member, A2C as a special case.

A rollout, its advantages, and epochs of minibatch updates. Semantics and defaults are
Stable-Baselines3's: a truncated episode bootstraps from the value of its final observation;
advantages are normalised per minibatch; the gradient of all parameters is clipped together by its
norm; learning rate, clip range and entropy coefficient follow the horizon. A2C is n_epochs 1,
batch_size n_steps * n_envs, normalize_advantage off and the RMSprop optimizer.

References:
    [Schulman2017] J. Schulman et al. Proximal policy optimization algorithms. arXiv:1707.06347.
    [Schulman2016] J. Schulman et al. High-dimensional continuous control using generalized
        advantage estimation. ICLR 2016.
    [Mnih2016] V. Mnih et al. Asynchronous methods for deep reinforcement learning. ICML 2016 (A2C).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import rng
from autorl.population.descent import ADAM, OPTIMIZERS, clip_scale, descend, norm_of, rmsprop
from autorl.population.elementary import exp
from autorl.population.engine import Algorithm, State
from autorl.population.environments.base import Environment
from autorl.population.evaluation import MEAN
from autorl.population.hyperparameters import Fixed, Record, Setting, scheduled
from autorl.population.kernels import Array, aligned_zeros, inlined_kernel, kernel, program
from autorl.population.members import (
    STEPS,
    UPDATES,
    Member,
    World,
    advance,
    draw,
    is_finite,
    new_member,
    restart,
)
from autorl.population.networks import (
    ACTIVATIONS,
    CHUNK,
    Network,
    backward,
    forward,
    gather,
    hidden_sizes,
    network,
    orthogonal,
    parameter_count,
    pick,
    prepare_backward,
)
from autorl.population.normalisation import (
    Normaliser,
    begin_observed,
    learn_step,
    look,
    normaliser_part,
    see,
)
from autorl.population.outside import Worlds, propagate
from autorl.population.policies import (
    Policy,
    log_probs_and_entropies,
    make_policy,
    policy_gradient,
    sample,
)

MEASURES = (
    *("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction"),
    *("grad_norm", "loss", "explained_variance"),
)
POLICY_LOSS, VALUE_LOSS, ENTROPY_LOSS, APPROX_KL, CLIP_FRACTION, GRAD_NORM, LOSS, EXPLAINED = range(
    len(MEASURES)
)
WHOLE_ROLLOUT = 2**31  # rows of a minibatch that has all of them
HYPERPARAMETERS = {
    "learning_rate": Setting(3e-4, lower=0.0, scheduled=True, sb3="function", case=7e-4),
    "n_steps": Setting(2048, lower=1, case=5),  # steps of each environment per rollout
    "n_envs": Setting(1, lower=1, change="rebuild", sb3="model"),
    "batch_size": Setting(64, lower=1, case=Fixed(WHOLE_ROLLOUT)),
    "n_epochs": Setting(10, lower=1, case=Fixed(1)),
    "gamma": Setting(0.99, lower=0.0, upper=1.0),
    "gae_lambda": Setting(0.95, lower=0.0, upper=1.0, case=1.0),
    "clip_range": Setting(0.2, lower=0.0, scheduled=True, sb3="function", case=Fixed(math.inf)),
    "clip_range_vf": Setting("none", lower=0.0, special=("none", math.inf), case=Fixed(math.inf)),
    "normalize_advantage": Setting(True, case=False),
    "ent_coef": Setting(0.0, scheduled=True),
    "vf_coef": Setting(0.5),
    "max_grad_norm": Setting(0.5, lower=0.0),
    # A number stops the epochs early.
    "target_kl": Setting("none", lower=0.0, special=("none", math.inf), case=Fixed(math.inf)),
    # A2C has names of its own for both (`a2c.OWN`).
    "optimizer": Setting("adam", codes=OPTIMIZERS, change=None, sb3="model", case=Fixed(ADAM)),
    # Stable-Baselines3's for PPO; PyTorch has 1e-8.
    "optimizer_eps": Setting(1e-5, lower=0.0, sb3="model", case=Fixed(1e-5)),
    "net_width": Setting(64, lower=1, change=None, sb3="model"),
    "net_depth": Setting(2, lower=1, change=None, sb3="model"),
    "activation": Setting("tanh", codes=ACTIVATIONS, change=None, sb3="model"),
}


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
    are the rows of the rollout in which a limit ended an episode, `finals` its last observations.
    `measures` are the member's.
    """

    actor: Network
    critic: Network
    policy: Policy
    gradient: Array
    rollout: Rollout
    inputs: Array
    finals: Array
    actions: Array
    columns: Array
    action: Array
    cut: Array
    normaliser: Normaliser | None
    measures: Array


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


def make_agent(state: State, environment: Environment, hp: Record) -> Agent:
    """Make networks over the state's parameters, and scratch memory.

    Their gradients lie in one array too.
    """
    parameters = state["member"].parameters
    actor, critic = network_sizes(environment, hp)
    split = parameter_count(actor)
    end = parameter_count(actor) + parameter_count(critic)
    gradient = aligned_zeros(len(parameters), parameters.dtype)
    # Whole chunks: a policy works on all rows of one, whatever those beyond n_envs hold.
    rows = -(-int(hp.n_envs) // CHUNK) * CHUNK
    code = int(hp.activation)
    inputs = np.zeros((rows, environment.observation_size), parameters.dtype)
    return Agent(
        actor=network(parameters[:split], gradient[:split], actor, code, rows),
        critic=network(parameters[split:end], gradient[split:end], critic, code, rows),
        policy=make_policy(parameters[end:], gradient[end:], environment.n_actions),
        gradient=gradient,
        rollout=make_rollout(environment, hp, parameters.dtype),
        inputs=inputs,
        finals=np.zeros_like(inputs),
        actions=np.zeros((rows, environment.action_size)),
        columns=np.zeros((3, rows)),
        action=np.zeros(environment.action_size),
        cut=np.zeros(rows, np.int64),
        normaliser=state.get("normaliser"),
        measures=state["member"].measures,
    )


def make_rollout(environment: Environment, hp: Record, dtype: npt.DTypeLike) -> Rollout:
    """Make memory for one rollout."""
    n = int(hp.n_steps) * int(hp.n_envs)
    observations = np.zeros((n, environment.observation_size), dtype)
    actions = np.zeros((n, environment.action_size))
    return Rollout._make(
        [observations, actions, *(np.zeros(n) for _ in range(6)), np.zeros(n, np.int64)]
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
    """Advance `member` by `iterations` rollouts and their updates.

    `limits` are the time limit, the number of actions and the action bounds.
    """
    world = World(reset, step, observe, limits[0], limits[1], limits[2])
    begin_observed(agent.normaliser, member, world, agent.inputs)
    for _ in range(iterations):
        collect_rollout(member, agent, hp, world)
        update(member, agent, hp)


# Part of `train` as if it stood there: as a kernel of its own, training took 8 % more CPU.
@inlined_kernel
def update(member: Member, agent: Agent, hp: Record) -> None:
    """Go over the rollout in epochs of shuffled minibatches."""
    order = agent.rollout.order
    # Schedules are functions of step / horizon: cutting a run changes nothing.
    progress = member.counts[STEPS] / hp.horizon
    learning_rate = scheduled(
        hp.learning_rate, hp.learning_rate_end, hp.learning_rate_shape, progress
    )
    clip_range = scheduled(hp.clip_range, hp.clip_range_end, hp.clip_range_shape, progress)
    ent_coef = scheduled(hp.ent_coef, hp.ent_coef_end, hp.ent_coef_shape, progress)
    stop = False
    measures = agent.measures
    measures.fill(0.0)
    explain(agent.rollout, measures)
    batches = 0
    updates = member.counts[UPDATES]
    for _ in range(hp.n_epochs):
        rng.permute(
            order, rng.bits(rng.stream(member.key[0], rng.SHUFFLE), draw(member, rng.SHUFFLE))
        )
        # The last may be smaller, as in Stable-Baselines3.
        for first in range(0, len(order), hp.batch_size):
            batch = order[first : first + hp.batch_size]
            divergence = loss_gradient(agent, hp, batch, (clip_range, ent_coef))
            batches += 1
            measures[APPROX_KL] += divergence
            # As in Stable-Baselines3: the whole update ends, without this minibatch's step.
            stop = divergence > 1.5 * hp.target_kl
            if stop:
                break
            member.counts[UPDATES] += 1
            gradient = agent.gradient
            norm = norm_of(gradient)
            measures[GRAD_NORM] += norm
            scale = clip_scale(norm, hp.max_grad_norm)
            if hp.optimizer == ADAM:
                pace = (learning_rate, member.counts[UPDATES])
                descend(member, gradient, hp, pace, scale, (0, len(gradient)))
            else:  # mean squares where Adam has its second moments
                square = member.moments[1]
                rmsprop(member.parameters, gradient, square, learning_rate, hp.optimizer_eps, scale)
        if stop:
            break
    for k in range(GRAD_NORM):
        measures[k] /= batches
    measures[GRAD_NORM] /= member.counts[UPDATES] - updates
    bonus = ent_coef * measures[ENTROPY_LOSS]
    measures[LOSS] = measures[POLICY_LOSS] + bonus + hp.vf_coef * measures[VALUE_LOSS]


@kernel
def explain(rollout: Rollout, measures: Array) -> None:
    """Measure the share of the variance of returns that values explain."""
    n = len(rollout.returns)
    mean = 0.0
    bias = 0.0
    for i in range(n):
        mean += rollout.returns[i]
        bias += rollout.returns[i] - rollout.values[i]
    mean /= n
    bias /= n
    total = 0.0
    unexplained = 0.0
    for i in range(n):
        total += (rollout.returns[i] - mean) ** 2
        unexplained += (rollout.returns[i] - rollout.values[i] - bias) ** 2
    measures[EXPLAINED] = 1.0 - unexplained / total


@kernel
def collect_rollout(member: Member, agent: Agent, hp: Record, world: World) -> None:
    """Act with the current policy for n_steps steps of every environment.

    Then the advantages are estimated.
    """
    n_envs = len(member.states)
    rollout = agent.rollout
    for t in range(hp.n_steps):
        first = t * n_envs
        # The rollout's rows are the networks' inputs: nothing is copied.
        look(agent.normaliser, member, world, rollout.observations[first : first + n_envs])
        act(member, agent, t)
        count = 0
        for e in range(n_envs):
            i = first + e
            action = rollout.actions[i]
            if world.n_actions == 0:
                # The environment receives the clipped action, the policy keeps the drawn one.
                for k in range(len(action)):
                    low = world.bounds[0, k]
                    high = world.bounds[1, k]
                    agent.action[k] = min(max(action[k], low), high)
                action = agent.action
            reward, terminated, truncated = advance(member, world, e, action)
            rollout.rewards[i] = reward
            rollout.dones[i] = 1.0 if terminated or truncated else 0.0
            if truncated:
                world.observe(member.states[e], agent.finals[count])
                agent.cut[count] = i
                count += 1
            if terminated or truncated:
                restart(member, world, e)
        rewards = rollout.rewards[first : first + n_envs]
        ended = rollout.dones[first : first + n_envs]
        learn_step(agent.normaliser, member, world, agent.inputs, rewards, ended)
        if count > 0:
            # A truncated episode bootstraps from the value of its final observation.
            see(agent.normaliser, agent.finals[:count])
            forward(agent.critic, agent.finals, count)
            for row in range(count):
                rollout.rewards[agent.cut[row]] += hp.gamma * agent.critic.outputs[row, 0]
    look(agent.normaliser, member, world, agent.inputs)
    weigh_errors(agent, hp, n_envs)


@inlined_kernel
def act(member: Member, agent: Agent, t: int) -> None:
    """Choose an action for each observation of step `t`.

    Actions, their log-probabilities and the values of the observations go into the rollout.
    """
    n_envs = len(member.states)
    rollout = agent.rollout
    observations = rollout.observations[t * n_envs : (t + 1) * n_envs]
    forward(agent.actor, observations, n_envs)
    forward(agent.critic, observations, n_envs)
    sample(
        member,
        agent.policy,
        agent.actor.outputs,
        rollout.actions[t * n_envs : (t + 1) * n_envs],
        rollout.log_probs[t * n_envs : (t + 1) * n_envs],
    )
    for e in range(n_envs):
        rollout.values[t * n_envs + e] = agent.critic.outputs[e, 0]


@inlined_kernel
def weigh_errors(agent: Agent, hp: Record, n_envs: int) -> None:
    """Generalised advantage estimation [Schulman2016], backwards in time.

    delta_t = r_t + gamma * (1 - done_t) * V_{t+1} - V_t
    A_t = delta_t + gamma * lambda * (1 - done_t) * A_{t+1}

    The first `n_envs` rows of `agent.inputs` are the observations after the rollout.
    """
    rollout = agent.rollout
    forward(agent.critic, agent.inputs, n_envs)
    for e in range(n_envs):
        # V of the state after the rollout; where an episode ended there it counts 0 times.
        following = float(agent.critic.outputs[e, 0])
        advantage = 0.0
        for t in range(hp.n_steps - 1, -1, -1):
            i = t * n_envs + e
            alive = 1.0 - rollout.dones[i]
            delta = rollout.rewards[i] + hp.gamma * alive * following - rollout.values[i]
            advantage = delta + hp.gamma * hp.gae_lambda * alive * advantage
            rollout.advantages[i] = advantage
            rollout.returns[i] = advantage + rollout.values[i]
            following = rollout.values[i]


@kernel
def loss_gradient(
    agent: Agent, hp: Record, batch: Array, coefficients: tuple[float, float]
) -> float:
    """Compute the gradient of the loss over rows of the rollout.

        loss = mean(-min(A r, A clip(r, 1 - c, 1 + c)) - ent_coef * entropy
                    + vf_coef * (V - return)^2),    r = pi / pi_old

    The rows are `batch`, `coefficients` the clip range c and the entropy coefficient. The gradient
    goes into `agent.gradient`. Returns the approximate KL divergence.
    """
    rollout = agent.rollout
    agent.gradient.fill(0.0)
    prepare_backward(agent.actor)
    prepare_backward(agent.critic)
    moments = advantage_moments(hp, rollout, batch)
    divergence = 0.0
    share = 1.0 / len(batch)
    clip_range, ent_coef = coefficients
    # Forward and backward chunk by chunk: the activations of 32 rows stay in the fastest cache.
    for first in range(0, len(batch), CHUNK):
        chunk = batch[first : first + CHUNK]
        rows = len(chunk)
        gather(agent.inputs, rollout.observations, chunk)
        forward(agent.actor, agent.inputs, rows)
        forward(agent.critic, agent.inputs, rows)
        divergence += policy_loss(agent, chunk, moments, (clip_range, ent_coef, share))
        measure_policy(agent, rows, moments, clip_range, share)
        value_loss(agent, hp, chunk, share)
        measure_value(agent, rows, hp.clip_range_vf, share)
        backward(agent.actor, agent.inputs, rows)
        backward(agent.critic, agent.inputs, rows)
    return divergence * share


@kernel
def advantage_moments(hp: Record, rollout: Rollout, batch: Array) -> tuple[float, float]:
    """Return the mean and the scale of the minibatch's advantages.

    The scale is 1 / (standard deviation + 1e-8). (0, 1) where they are not normalised.
    """
    n = len(batch)
    # One row has no deviation: Stable-Baselines3 leaves it as it is.
    if not hp.normalize_advantage or n < 2:
        return 0.0, 1.0
    total = 0.0
    for i in batch:
        total += rollout.advantages[i]
    # Mean first: of advantages far from 0 the mean square less the squared mean would cancel.
    mean = total / n
    square = 0.0
    for i in batch:
        square += (rollout.advantages[i] - mean) ** 2
    # n - 1, as `torch.std` divides.
    return mean, 1.0 / (math.sqrt(square / (n - 1)) + 1e-8)


@kernel
def policy_loss(
    agent: Agent,
    chunk: Array,
    moments: tuple[float, float],
    coefficients: tuple[float, float, float],
) -> float:
    """Compute the gradient of the clipped surrogate and the entropy bonus.

    It is of the rows `chunk` and goes into the actor's slopes.

    `coefficients`: clip range, entropy coefficient, 1 / minibatch size. Returns the sum over rows
    of (r - 1) - log r: its mean estimates the KL divergence.
    """
    centre, scale = moments
    clip_range, ent_coef, share = coefficients
    rollout = agent.rollout
    policy = agent.policy
    rows = len(chunk)
    divergence = 0.0
    outputs = agent.actor.outputs
    actions = agent.actions[:rows]
    advantages = agent.columns[0]
    old = agent.columns[1]
    weights = agent.columns[2]
    gather(actions, rollout.actions, chunk)
    pick(advantages, rollout.advantages, chunk)
    pick(old, rollout.log_probs, chunk)
    log_probs_and_entropies(policy, outputs, actions)
    for r in range(rows):
        advantage = (advantages[r] - centre) * scale
        log_ratio = policy.log_probs[r] - old[r]
        ratio = exp(log_ratio)
        # A clipped term that is the smaller one does not depend on the policy.
        clipped_out = ratio > 1.0 + clip_range if advantage > 0.0 else ratio < 1.0 - clip_range
        weights[r] = 0.0 if clipped_out else -share * advantage * ratio
        # Never negative in any row, unlike -log r: Schulman's estimator, as in Stable-Baselines3.
        divergence += ratio - 1.0 - log_ratio
    policy_gradient(policy, outputs, actions, weights, -share * ent_coef, agent.actor.slopes)
    return divergence


# Loops of their own: within those of the gradients sums might be taken in another order.
@kernel
def measure_policy(
    agent: Agent, rows: int, moments: tuple[float, float], clip_range: float, share: float
) -> None:
    """Add surrogate, entropy and clipped share of a chunk to the measures.

    `agent.columns` are as `policy_loss` leaves them.
    """
    centre, scale = moments
    surrogate = 0.0
    clipped = 0.0
    entropy = 0.0
    for r in range(rows):
        advantage = (agent.columns[0, r] - centre) * scale
        ratio = exp(agent.policy.log_probs[r] - agent.columns[1, r])
        held = min(max(ratio, 1.0 - clip_range), 1.0 + clip_range)
        surrogate += min(advantage * ratio, advantage * held)
        clipped += 1.0 if abs(ratio - 1.0) > clip_range else 0.0
        entropy += agent.policy.entropies[r]
    agent.measures[POLICY_LOSS] -= share * surrogate
    agent.measures[CLIP_FRACTION] += share * clipped
    agent.measures[ENTROPY_LOSS] -= share * entropy


@kernel
def measure_value(agent: Agent, rows: int, clip_range: float, share: float) -> None:
    """Add the squared errors of a chunk's values to the measures.

    `agent.columns` are as `value_loss` leaves them.
    """
    square = 0.0
    for r in range(rows):
        old = agent.columns[0, r]
        change = min(max(float(agent.critic.outputs[r, 0]) - old, -clip_range), clip_range)
        square += (old + change - agent.columns[1, r]) ** 2
    agent.measures[VALUE_LOSS] += share * square


@kernel
def value_loss(agent: Agent, hp: Record, chunk: Array, share: float) -> None:
    """Compute the gradient of the weighted squared errors of the value.

    It is of the rows `chunk` and goes into the critic's slopes.

    It is zero where clip_range_vf holds the prediction back.
    """
    old = agent.columns[0]
    returns = agent.columns[1]
    pick(old, agent.rollout.values, chunk)
    pick(returns, agent.rollout.returns, chunk)
    for r in range(len(chunk)):
        value = float(agent.critic.outputs[r, 0])
        # Stable-Baselines3's clipping, not the larger of both losses as in OpenAI's and CleanRL's.
        held = abs(value - old[r]) > hp.clip_range_vf
        agent.critic.slopes[r, 0] = 0.0 if held else share * hp.vf_coef * 2.0 * (value - returns[r])


@program
def choose(member: Member, agent: Agent, t: int) -> None:
    """Act at step `t` of a rollout whose observations come from outside."""
    act(member, agent, t)


@program
def learn(member: Member, agent: Agent, hp: Record) -> None:
    """Update from a rollout whose environments are outside.

    `agent.inputs` hold the observations after it.
    """
    weigh_errors(agent, hp, len(member.states))
    update(member, agent, hp)


def collect_outside(
    member: Member, agent: Agent, hp: Record, worlds: Worlds, programs: Sequence[Any]
) -> None:
    """Act with the current policy for n_steps steps of outside environments.

    It does the same as `collect_rollout`; `programs` are `choose` and `propagate` as
    `Program.prepared` gives them. The observations after the rollout go into `agent.inputs`.
    """
    chosen, propagated = programs
    n_envs = len(member.states)
    rollout = agent.rollout
    worlds.begin()
    for t in range(int(hp.n_steps)):
        rows = slice(t * n_envs, (t + 1) * n_envs)
        rollout.observations[rows] = worlds.observations
        chosen(member, agent, t)
        result = worlds.step(rollout.actions[rows])
        rollout.rewards[rows] = result.rewards
        rollout.dones[rows] = result.ended
        if len(result.truncated):
            # A truncated episode bootstraps from the value of its final observation.
            count = len(result.truncated)
            agent.inputs[:count] = result.finals
            propagated(agent.critic, agent.inputs, count)
            bonus = float(hp.gamma) * agent.critic.outputs[:count, 0].astype(np.float64)
            rollout.rewards[t * n_envs + result.truncated] += bonus
    agent.inputs[:n_envs] = worlds.observations
    worlds.note_episodes()


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0."""
    parameters = initial_parameters(environment, hp, key, dtype)
    member = new_member(key, parameters, environment, int(hp.n_envs))
    return {"member": member, **normaliser_part(environment, int(hp.n_envs), float(hp.gamma))}


def outside(member: Member, agent: Agent, hp: Record, worlds: Worlds) -> Callable[[int], None]:
    """Make what advances a member whose environments are outside."""
    programs = (
        choose.prepared(member, agent, 0),
        propagate.prepared(agent.critic, agent.inputs, 0),
    )

    def advance_by(iterations: int) -> None:
        for _ in range(iterations):
            collect_outside(member, agent, hp, worlds, programs)
            learn(member, agent, hp)
            # No simulator takes actions that are not finite.
            if not is_finite(member):
                return

    return advance_by


ALGORITHM = Algorithm(
    name="ppo",
    settings=HYPERPARAMETERS,
    discrete=True,
    continuous=True,
    stride=lambda hp: int(hp.n_steps) * int(hp.n_envs),
    create=create,
    agent_of=make_agent,
    train=train,
    outside=outside,
    parts={"member": Member},
    continuous_head=MEAN,
    measures=MEASURES,
)
