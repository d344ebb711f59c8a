"""Deep Q-learning of one member.

Epsilon-greedy steps go into a replay memory, and Huber updates go towards a target network.
Semantics and defaults are Stable-Baselines3's: `train_freq` steps of every environment, then
`gradient_steps` updates (-1: one per step taken); no updates before `learning_starts`; the target
network follows every `target_update_interval` environment steps by Polyak averaging; a truncated
episode bootstraps; `n_steps` rewards come before the bootstrap. Beyond SB3: double Q-learning, the
dueling network, prioritised replay, no target network. Each environment tosses a coin of its own
for exploration (SB3: one for all of them). With `double`, `dueling`, `prioritized` and `n_steps`
on, it is Rainbow without its distributional and noisy parts.

References:
    [Mnih2015] V. Mnih et al. Human-level control through deep reinforcement learning. Nature 518,
        2015.
    [Hasselt2016] H. van Hasselt, A. Guez, D. Silver. Deep reinforcement learning with double
        Q-learning. AAAI 2016.
    [Schaul2016] T. Schaul et al. Prioritized experience replay. ICLR 2016.
    [Wang2016] Z. Wang et al. Dueling network architectures for deep reinforcement learning. ICML
        2016.
    [Hessel2018] M. Hessel et al. Rainbow: combining improvements in deep reinforcement learning.
        AAAI 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.population import off_policy, rng
from autorl.population import replay as memory
from autorl.population.descent import average, clip_scale, descend, norm_of, polyak
from autorl.population.dueling import aggregate, keep_streams_apart, part_streams, slopes_of_streams
from autorl.population.engine import State
from autorl.population.environments.base import Environment
from autorl.population.hyperparameters import Record, Setting, scheduled
from autorl.population.kernels import Array, aligned_copy, aligned_zeros, inlined_kernel, kernel
from autorl.population.members import STEPS, UPDATES, Member, draw
from autorl.population.networks import (
    Network,
    backward,
    forward,
    hidden_sizes,
    network,
    parameter_count,
    prepare_backward,
    uniform_fan_in,
)
from autorl.population.normalisation import Normaliser
from autorl.population.off_policy import Target
from autorl.population.replay import Replay, begin_targets, take_rows

HYPERPARAMETERS = off_policy.settings(
    {
        "target_update_interval": Setting(10_000, lower=1),
        "exploration_fraction": Setting(0.1, lower=0.0, upper=1.0),
        "exploration_initial_eps": Setting(1.0, lower=0.0, upper=1.0),
        "exploration_final_eps": Setting(0.05, lower=0.0, upper=1.0),
        "max_grad_norm": Setting(10.0, lower=0.0),
        "double": Setting(False, sb3=None),
        "dueling": Setting(
            False,
            change=None,  # another network
            sb3=None,
            sb3_note=(
                "an exported model has both streams folded into one head of the same Q-values, "
                "and `learn` goes on without them"
            ),
        ),
        "use_target_network": Setting(
            True,
            sb3={"target_update_interval": 1, "tau": 1.0},
            sb3_note="a target network that follows at every step is the same",
        ),
        "prioritized": Setting(False, change=None, sb3=None),  # a uniform memory has no tree
        "priority_alpha": Setting(0.6, lower=0.0, sb3=None),
        "priority_beta": Setting(0.4, lower=0.0, scheduled=True, sb3=None),
        "priority_eps": Setting(1e-6, lower=0.0, sb3=None),
    },
    rate=1e-4,
    batch_size=32,
    tau=1.0,
    train_freq=4,
    width=Setting(64, lower=1, change=None, sb3="model"),
)


MEASURES = ("loss", "grad_norm")
LOSS, GRAD_NORM = range(len(MEASURES))


class Agent(NamedTuple):
    """Online and target network, the replay memory, and scratch memory.

    The scratch memory holds one minibatch of `batch_size` rows.

    Attributes:
        online, target: the networks.
        n_actions: how many there are to choose from.
        rewards, ended, and the other names of `off_policy.scratch`: as it makes them.
        weights: (n,) importance weights of the rows of a minibatch.
    """

    online: Network
    target: Network
    n_actions: int
    replay: Replay
    normaliser: Normaliser | None
    observations: Array
    actions: Array
    action: Array
    batch: Array
    weights: Array
    ends: Array
    discounts: Array
    targets: Array
    rewards: Array
    ended: Array
    measures: Array


def network_sizes(environment: Environment, hp: Record) -> tuple[int, ...]:
    """Return the layer sizes of the Q-network, with one output per action.

    A dueling network has one more, the value.
    """
    outputs = environment.n_actions + int(hp.dueling)
    return hidden_sizes(environment.observation_size, int(hp.net_width), int(hp.net_depth), outputs)


def create(environment: Environment, hp: Record, key: int, dtype: npt.DTypeLike) -> State:
    """Make a member at step 0.

    Weights are PyTorch's default, the target network equals the online one, and the memory is
    empty.

    Raises:
        InputError: a dueling network has no unit for one of its streams.
    """
    if hp.dueling and hp.net_width < 2:
        raise InputError("a dueling network needs at least 2 units a layer", key="net_width")
    sizes = network_sizes(environment, hp)
    parameters = aligned_zeros(parameter_count(sizes), dtype)
    uniform_fan_in(parameters, sizes, rng.derived(key, rng.INITIALISE, 0))
    if hp.dueling:
        part_streams(parameters, sizes)
    target = Target(aligned_copy(parameters))
    return off_policy.new_state(key, parameters, environment, hp, target=target)


def make_agent(state: State, environment: Environment, hp: Record) -> Agent:
    """Make networks over the state's parameters, and scratch memory."""
    parameters = state["member"].parameters
    target = state["target"].parameters
    sizes = network_sizes(environment, hp)
    code = int(hp.activation)
    dtype = parameters.dtype
    shared = off_policy.scratch(state, environment, hp)
    rows = len(shared["actions"])
    return Agent(
        online=network(parameters, aligned_zeros(len(parameters), dtype), sizes, code, rows),
        target=network(target, aligned_zeros(len(target), dtype), sizes, code, rows),
        n_actions=environment.n_actions,
        weights=np.ones(len(shared["batch"])),
        **shared,
    )


@inlined_kernel
def follow(member: Member, agent: Agent, hp: Record) -> None:
    """Have the target network follow where it is due."""
    n_envs = len(member.states)
    # In steps of all environments together, which is how Stable-Baselines3 counts.
    target_period = max(hp.target_update_interval // n_envs, 1)
    # By steps taken, not by updates, as in Stable-Baselines3.
    if member.counts[STEPS] // n_envs % target_period == 0:
        polyak(agent.target.parameters, agent.online.parameters, hp.tau)


@kernel
def update_networks(member: Member, agent: Agent, hp: Record, rate: float, index: int) -> None:
    """Make one gradient step on a fresh minibatch."""
    progress = member.counts[STEPS] / hp.horizon
    beta = scheduled(hp.priority_beta, hp.priority_beta_end, hp.priority_beta_shape, progress)
    sample_batch(member, agent, hp, beta)
    loss_gradient(agent, hp, agent.n_actions)
    member.counts[UPDATES] += 1
    gradient = agent.online.gradient
    norm = norm_of(gradient)
    average(agent.measures, LOSS, loss(agent), member.counts[UPDATES])
    average(agent.measures, GRAD_NORM, norm, member.counts[UPDATES])
    scale = clip_scale(norm, hp.max_grad_norm)
    pace = (rate, member.counts[UPDATES])
    descend(member, gradient, hp, pace, scale, (0, len(gradient)))


@kernel
def exploration_rate(hp: Record, progress: float) -> float:
    """Return epsilon at the present step.

    It is linear from the initial to the final value over the exploration fraction of the horizon.
    """
    if progress >= hp.exploration_fraction:
        return float(hp.exploration_final_eps)
    done = progress / hp.exploration_fraction
    return float((1.0 - done) * hp.exploration_initial_eps + done * hp.exploration_final_eps)


@inlined_kernel
def choose_actions(member: Member, agent: Agent, hp: Record) -> None:
    """Choose an epsilon-greedy action for every environment.

    Their observations are the first rows of `agent.observations`, the actions go into
    `agent.actions`.
    """
    n_envs = len(member.states)
    n_actions = agent.n_actions
    epsilon = exploration_rate(hp, member.counts[STEPS] / hp.horizon)
    # Random until learning starts, whatever the schedule says, as in Stable-Baselines3.
    if member.counts[STEPS] < hp.learning_starts:
        epsilon = 1.0
    q_values(agent.online, agent, hp, n_envs, n_actions)
    seed = rng.stream(member.key[0], rng.ACTION)
    for e in range(n_envs):
        # Each environment tosses a coin of its own (Stable-Baselines3: one for all of them).
        counter = draw(member, rng.ACTION)
        agent.actions[e, 0] = best(agent.online.outputs[e], n_actions)
        if rng.uniform(seed, 2 * counter) < epsilon:
            agent.actions[e, 0] = rng.integer(seed, 2 * counter + 1, n_actions)


@kernel
def q_values(net: Network, agent: Agent, hp: Record, rows: int, n_actions: int) -> None:
    """Fill the first `rows` rows of the outputs with the inputs' Q-values."""
    forward(net, agent.observations, rows)
    if hp.dueling:
        aggregate(net, rows, n_actions)


@kernel
def best(values: Array, n_actions: int) -> int:
    """Return the first action of largest value."""
    choice = 0
    for j in range(1, n_actions):
        if values[j] > values[choice]:
            choice = j
    return choice


@kernel
def sample_batch(member: Member, agent: Agent, hp: Record, beta: float) -> None:
    """Draw a minibatch of rows and their importance weights.

    Weights are 1 where rows are drawn uniformly.
    """
    # Each minibatch has a stream of its own: its size does not move the draws of later ones.
    seed = rng.bits(rng.stream(member.key[0], rng.REPLAY), draw(member, rng.REPLAY))
    if hp.prioritized:
        memory.sample_by_priority(agent.replay, seed, beta, agent.batch, agent.weights)
    else:
        memory.sample_uniform(agent.replay, seed, agent.batch)


@kernel
def loss_gradient(agent: Agent, hp: Record, n_actions: int) -> None:
    """Compute the gradient of mean(w * huber(Q(s, a) - y)).

    It goes into the online network's gradient, and priorities are set anew. The targets are y = R +
    gamma^k * (1 - terminated) * Q'(s', a'): R is the discounted sum of k rewards, s' the state
    after them (`replay.n_step_return`); a' is the best action of Q' itself, or of Q (double
    Q-learning); Q' is the target network, or Q where there is none.
    """
    replay = agent.replay
    online = agent.online
    n = len(agent.batch)
    inputs = agent.observations.shape[1]
    # First: it runs the online network too, and what `backward` reads is of the last run.
    bootstrap_values(agent, hp, n_actions)
    online.gradient.fill(0.0)
    take_rows(agent, agent.batch, 0)
    q_values(online, agent, hp, n, n_actions)
    prepare_backward(online)
    for r in range(n):
        i = agent.batch[r]
        action = int(replay.rows[i, 2 * inputs])
        error = online.outputs[r, action] - agent.targets[r]
        for j in range(n_actions):
            online.slopes[r, j] = 0.0
        # The slope of the Huber loss (PyTorch's smooth L1) is the error, cut at +-1.
        online.slopes[r, action] = agent.weights[r] * min(max(error, -1.0), 1.0) / n
        # p = (|error| + eps)^alpha, the proportional variant [Schaul2016].
        if hp.prioritized:
            memory.set_priority(replay, i, (abs(error) + hp.priority_eps) ** hp.priority_alpha)
    if hp.dueling:
        slopes_of_streams(online, n, n_actions)
    backward(online, agent.observations, n)
    if hp.dueling:
        keep_streams_apart(online, n_actions)


@kernel
def loss(agent: Agent) -> float:
    """Return mean(w * huber(Q(s, a) - y)) after `loss_gradient`."""
    inputs = agent.observations.shape[1]
    total = 0.0
    for r in range(len(agent.batch)):
        action = int(agent.replay.rows[agent.batch[r], 2 * inputs])
        error = abs(agent.online.outputs[r, action] - agent.targets[r])
        total += agent.weights[r] * (0.5 * error * error if error < 1.0 else error - 0.5)
    return total / len(agent.batch)


@kernel
def bootstrap_values(agent: Agent, hp: Record, n_actions: int) -> None:
    """Fill `agent.targets` with the targets y of the minibatch."""
    n = len(agent.batch)
    begin_targets(agent, hp)
    if hp.double or not hp.use_target_network:
        q_values(agent.online, agent, hp, n, n_actions)
    if hp.use_target_network:
        q_values(agent.target, agent, hp, n, n_actions)
    for r in range(n):
        values = agent.target.outputs[r] if hp.use_target_network else agent.online.outputs[r]
        # Double Q-learning [Hasselt2016]: the online network chooses, the target network values.
        judge = agent.online.outputs[r] if hp.double else values
        choice = best(judge, n_actions)
        agent.targets[r] += agent.discounts[r] * values[choice]


LOOP = off_policy.make_loop(__name__, choose_actions, update_networks, after_step=follow)
ALGORITHM = off_policy.make_algorithm(
    *("dqn", HYPERPARAMETERS, LOOP, create, make_agent, {"target": Target}),
    discrete=True,
    measures=MEASURES,
)
