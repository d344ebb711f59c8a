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
from typing import Any

import numpy.typing as npt

from autorl.population import actor_critic, off_policy, rng
from autorl.population.actor_critic import (
    ACTOR_LOSS,
    ENT_COEF,
    ENT_COEF_LOSS,
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
from autorl.population.hyperparameters import Record, Setting
from autorl.population.kernels import Array, aligned_copy, inlined_kernel, kernel
from autorl.population.members import STEPS, UPDATES, Member, draw
from autorl.population.networks import (
    backward,
    backward_inputs,
    forward,
    parameter_count,
    prepare_backward,
)
from autorl.population.off_policy import Target
from autorl.population.policies import HALF_LOG_2PI
from autorl.population.replay import begin_targets, take_rows

HYPERPARAMETERS = off_policy.settings(
    {
        "target_update_interval": Setting(1, lower=1),  # in gradient steps
        "ent_coef": Setting("auto", lower=0.0, special=("auto", -1.0), change=None),
        # auto: minus the number of action dimensions.
        "target_entropy": Setting("auto", special=("auto", math.inf)),
        "reward_scale": Setting(
            1.0, sb3=None, sb3_note="scale rewards to train on, after any normalisation"
        ),
    },
    rate=3e-4,
    batch_size=256,
    tau=0.005,
    train_freq=1,
    width=Setting(256, lower=1, change=None, sb3="model"),
)
LOG_STD_LOW = -20.0
LOG_STD_HIGH = 2.0
SQUASH_EPS = 1e-6


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0.

    Weights are PyTorch's default, targets equal the critics, and the temperature is 1 or as given.
    """
    actor, critic = network_sizes(environment, hp, 2)
    parameters = actor_critic.initial_parameters((actor, critic, critic), key, dtype, 1)
    # A coefficient of 0 has no logarithm.
    if hp.ent_coef >= 0.0:
        parameters[-1] = math.log(max(float(hp.ent_coef), 1e-30))
    target = Target(aligned_copy(parameters[parameter_count(actor) : -1]))
    return off_policy.new_state(key, parameters, environment, hp, target=target)


def make_agent(state: State, environment: Environment, hp: Record) -> Agent:
    """Make networks over the state's parameters, and scratch memory."""
    return actor_critic.make_agent(state, environment, hp, 2)


@kernel
def reward_scale(hp: Record) -> Any:
    """Return the factor of rewards in the memory."""
    return hp.reward_scale


@inlined_kernel
def choose_actions(member: Member, agent: Agent, hp: Record) -> None:
    """Draw an action in [-1, 1] for every environment, uniformly before `learning_starts`.

    The first rows of `agent.observations` are theirs, the actions go into `agent.actions`.
    """
    n_envs = len(member.states)
    # Actions of all environments are random or none is, as in Stable-Baselines3.
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
def update_networks(member: Member, agent: Agent, hp: Record, rate: float, index: int) -> None:
    """Make gradient step `index` of a round, of temperature, critics and actor.

    The minibatch is fresh, the order Stable-Baselines3's.
    """
    seed = begin_update(member, agent)
    # Before its own step: Stable-Baselines3 has one value for targets and for the actor's loss.
    alpha = math.exp(agent.log_alpha[0]) if hp.ent_coef < 0.0 else float(hp.ent_coef)
    # 1. Targets, by the networks before any step of this update:
    #    y = R + gamma^k * (1 - terminated) * (min Q'(s', a') - alpha * log pi(a'|s')).
    begin_targets(agent, hp)
    draw_actions(agent, rng.stream(seed, 1))
    add_values(agent, 2, alpha)
    # 2. New actions for the states of the minibatch.
    take_rows(agent, agent.batch, 0)
    draw_actions(agent, rng.stream(seed, 0))
    # 3. The temperature, which is the last parameter, where it is learned.
    actor_end = len(agent.actor.parameters)
    critics_end = len(member.parameters) - 1
    pace = (rate, member.counts[UPDATES])
    if hp.ent_coef < 0.0:
        temperature_gradient(agent, hp)
        loss = agent.log_alpha[0] * agent.gradient[-1]
        average(agent.measures, ENT_COEF_LOSS, loss, pace[1])
        descend(member, agent.gradient, hp, pace, 1.0, (critics_end, critics_end + 1))
    # 4. The critics, then the actor against the critics as they are now. The factor 0.5 of the
    #    critics' loss and the 2 of the square's derivative cancel.
    average(agent.measures, ENT_COEF, alpha, pace[1])
    critic_gradient(agent, 2, 1.0, pace[1])
    descend(member, agent.gradient, hp, pace, 1.0, (actor_end, critics_end))
    actor_gradient(agent, alpha)
    average(agent.measures, ACTOR_LOSS, actor_loss(agent, alpha), pace[1])
    descend(member, agent.gradient, hp, pace, 1.0, (0, actor_end))
    # Counted anew in every round, as in Stable-Baselines3.
    if index % hp.target_update_interval == 0:
        polyak(agent.target_1.parameters, agent.first.parameters, hp.tau)
        polyak(agent.target_2.parameters, agent.second.parameters, hp.tau)


@kernel
def draw_actions(agent: Agent, seed: int) -> None:
    """Draw an action and its log-probability for each of `observations`."""
    n = len(agent.batch)
    forward(agent.actor, agent.observations, n)
    for r in range(n):
        agent.log_probs[r] = squashed_sample(
            agent.actor.outputs[r], seed, r * len(agent.action), agent.noise[r], agent.actions[r]
        )


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
def actor_loss(agent: Agent, alpha: float) -> float:
    """Return the actor's loss after `actor_gradient`."""
    total = 0.0
    for r in range(len(agent.batch)):
        value = min(agent.first.outputs[r, 0], agent.second.outputs[r, 0])
        total += alpha * agent.log_probs[r] - value
    return total / len(agent.batch)


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


LOOP = off_policy.make_loop(__name__, choose_actions, update_networks, reward_scale=reward_scale)
ALGORITHM = off_policy.make_algorithm(
    "sac",
    HYPERPARAMETERS,
    LOOP,
    create,
    make_agent,
    {"target": Target},
    discrete=False,
    measures=MEASURES,
)
