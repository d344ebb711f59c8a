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

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.population import off_policy, rng
from autorl.population import replay as memory
from autorl.population.descent import adam, clip_scale, polyak
from autorl.population.dueling import (
    aggregate,
    keep_streams_apart,
    part_streams,
    slopes_of_streams,
)
from autorl.population.engine import Algorithm, Bound, State, limits
from autorl.population.environments.base import Environment
from autorl.population.evaluation import ARGMAX
from autorl.population.hyperparameters import Record, Setting, scheduled
from autorl.population.kernels import (
    Array,
    aligned_copy,
    aligned_zeros,
    inlined_kernel,
    kernel,
    program,
)
from autorl.population.members import (
    STEPS,
    UPDATES,
    Member,
    World,
    advance,
    draw,
    new_member,
    restart,
)
from autorl.population.minibatch import sum_rewards, take_rows
from autorl.population.networks import (
    ACTIVATIONS,
    Network,
    backward,
    forward,
    hidden_sizes,
    network,
    parameter_count,
    prepare_backward,
    uniform_fan_in,
)
from autorl.population.normalisation import (
    Observer,
    begin_observed,
    copy_rows,
    learn_step,
    normaliser_of,
    normaliser_part,
    note_step,
    observer_of,
)
from autorl.population.off_policy import look
from autorl.population.outside import Step, Worlds, no_step
from autorl.population.replay import Replay
from autorl.types import InputError

HYPERPARAMETERS = {
    "learning_rate": Setting(1e-4, lower=0.0, scheduled=True),
    "buffer_size": Setting(1_000_000, lower=1, change=None),
    "learning_starts": Setting(100, lower=0),
    "batch_size": Setting(32, lower=1),
    "tau": Setting(1.0, lower=0.0, upper=1.0),
    "gamma": Setting(0.99, lower=0.0, upper=1.0),
    "train_freq": Setting(4, lower=1),
    "gradient_steps": Setting(1, lower=-1),
    "target_update_interval": Setting(10_000, lower=1),
    "exploration_fraction": Setting(0.1, lower=0.0, upper=1.0),
    "exploration_initial_eps": Setting(1.0, lower=0.0, upper=1.0),
    "exploration_final_eps": Setting(0.05, lower=0.0, upper=1.0),
    "max_grad_norm": Setting(10.0, lower=0.0),
    "n_envs": Setting(1, lower=1, change=None),
    "n_steps": Setting(1, lower=1, change=None),  # a memory of single steps marks no ends
    "double": Setting(False),
    "dueling": Setting(False, change=None),  # another network
    "use_target_network": Setting(True),
    "prioritized": Setting(False, change=None),  # a uniform memory has no tree
    "priority_alpha": Setting(0.6, lower=0.0),
    "priority_beta": Setting(0.4, lower=0.0, scheduled=True),
    "priority_eps": Setting(1e-6, lower=0.0),
    "optimizer_eps": Setting(1e-8, lower=0.0),
    "net_width": Setting(64, lower=1, change=None),
    "net_depth": Setting(2, lower=1, change=None),
    "activation": Setting("relu", codes=ACTIVATIONS, change=None),
}


class Target(NamedTuple):
    """The parameters of the target network, flat."""

    parameters: Array


class Agent(NamedTuple):
    """Online and target network, the replay memory, and scratch memory.

    The scratch memory holds one minibatch of `batch_size` rows.

    `inputs` are those of the networks, `actions` (rows, 1) what is chosen for each environment.
    `batch` are the rows drawn from the memory, `weights` their importance weights, `ends` the rows
    whose following state they bootstrap from (`batch` itself for n_steps = 1), `discounts` the
    factors of those bootstrapped values, `targets` what their Q-values move to.
    """

    online: Network
    target: Network
    replay: Replay
    observer: Observer | None
    inputs: Array
    actions: Array
    batch: Array
    weights: Array
    ends: Array
    discounts: Array
    targets: Array


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
    n_envs = int(hp.n_envs)
    return {
        "member": new_member(key, parameters, environment, n_envs),
        "target": Target(aligned_copy(parameters)),
        "replay": memory.member_replay(environment, hp, dtype),
        **normaliser_part(environment, n_envs, float(hp.gamma)),
    }


def make_agent(state: State, environment: Environment, hp: Record) -> Agent:
    """Make networks over the state's parameters, and scratch memory."""
    parameters = state["member"].parameters
    target = state["target"].parameters
    sizes = network_sizes(environment, hp)
    word = HYPERPARAMETERS["activation"].decode(hp.activation)
    n = int(hp.batch_size)
    dtype = parameters.dtype
    rows = max(n, int(hp.n_envs))  # acting and learning take turns with the same memory
    return Agent(
        online=network(parameters, aligned_zeros(len(parameters), dtype), sizes, word, rows),
        target=network(target, aligned_zeros(len(target), dtype), sizes, word, rows),
        replay=state["replay"],
        observer=observer_of(state),
        inputs=np.zeros((rows, environment.observation_size), dtype),
        actions=np.zeros((rows, 1)),
        batch=np.zeros(n, np.int64),
        weights=np.ones(n),
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
    begin_observed(agent.observer, member, world, agent.inputs)
    for _ in range(iterations):
        # Steps of every environment, into the replay memory.
        for _ in range(hp.train_freq):
            step_environments(member, agent, hp, world)
            follow(member, agent, hp)
        update(member, agent, hp, world.n_actions)


@inlined_kernel
def follow(member: Member, agent: Agent, hp: Record) -> None:
    """Have the target network follow where it is due."""
    n_envs = len(member.states)
    # In steps of all environments together, which is how Stable-Baselines3 counts.
    target_period = max(hp.target_update_interval // n_envs, 1)
    # By steps taken, not by updates, as in Stable-Baselines3.
    if member.counts[STEPS] // n_envs % target_period == 0:
        polyak(agent.target.parameters, agent.online.parameters, hp.tau)


@inlined_kernel
def update(member: Member, agent: Agent, hp: Record, n_actions: int) -> None:
    """Make the updates that follow the steps of one round."""
    if member.counts[STEPS] > hp.learning_starts:
        progress = member.counts[STEPS] / hp.horizon
        learning_rate = scheduled(
            hp.learning_rate, hp.learning_rate_end, hp.learning_rate_shape, progress
        )
        beta = scheduled(hp.priority_beta, hp.priority_beta_end, hp.priority_beta_shape, progress)
        updates = hp.gradient_steps
        if updates < 0:  # one per step taken
            updates = hp.train_freq * len(member.states)
        for _ in range(updates):
            sample_batch(member, agent, hp, beta)
            loss_gradient(agent, hp, n_actions)
            descend(member, agent, hp, learning_rate)


@kernel
def exploration_rate(hp: Record, progress: float) -> float:
    """Return epsilon at the present step.

    It is linear from the initial to the final value over the exploration fraction of the horizon.
    """
    if progress >= hp.exploration_fraction:
        return float(hp.exploration_final_eps)
    done = progress / hp.exploration_fraction
    return float((1.0 - done) * hp.exploration_initial_eps + done * hp.exploration_final_eps)


@kernel
def step_environments(member: Member, agent: Agent, hp: Record, world: World) -> None:
    """Make one epsilon-greedy step of every environment, and remember it."""
    n_envs = len(member.states)
    replay = agent.replay
    look(agent.observer, member, world, agent.inputs)
    choose_actions(member, agent, hp, world.n_actions)
    inputs = agent.inputs.shape[1]
    for e in range(n_envs):
        row = replay.rows[memory.claim(replay)]
        world.observe(member.states[e], row[:inputs])
        reward, terminated, truncated = advance(member, world, e, agent.actions[e])
        world.observe(member.states[e], row[inputs : 2 * inputs])
        row[2 * inputs] = agent.actions[e, 0]
        row[2 * inputs + 1] = reward
        row[2 * inputs + 2] = 1.0 if terminated else 0.0  # a truncated episode bootstraps
        over = terminated or truncated
        if hp.n_steps > 1:
            row[2 * inputs + 3] = 1.0 if over else 0.0
        note_step(agent.observer, e, reward, over)
        if over:
            restart(member, world, e)
    learn_step(agent.observer, member, world, agent.inputs)


@inlined_kernel
def choose_actions(member: Member, agent: Agent, hp: Record, n_actions: int) -> None:
    """Choose an epsilon-greedy action for every environment.

    Their observations are the first rows of `agent.inputs`, the actions go into `agent.actions`.
    """
    n_envs = len(member.states)
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
    forward(net, agent.inputs, rows)
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
    inputs = agent.inputs.shape[1]
    # First: it runs the online network too, and what `backward` reads is of the last run.
    bootstrap_values(agent, hp, n_actions)
    online.gradient.fill(0.0)
    take_rows(replay, agent.observer, agent.batch, 0, agent.inputs)
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
    backward(online, agent.inputs, n)
    if hp.dueling:
        keep_streams_apart(online, n_actions)


@kernel
def bootstrap_values(agent: Agent, hp: Record, n_actions: int) -> None:
    """Fill `agent.targets` with the targets y of the minibatch."""
    replay = agent.replay
    n = len(agent.batch)
    inputs = agent.inputs.shape[1]
    sum_rewards(agent, hp, 2 * inputs + 1)
    take_rows(replay, agent.observer, agent.ends, inputs, agent.inputs)
    if hp.double or not hp.use_target_network:
        q_values(agent.online, agent, hp, n, n_actions)
    if hp.use_target_network:
        q_values(agent.target, agent, hp, n, n_actions)
    for r in range(n):
        values = agent.target.outputs[r] if hp.use_target_network else agent.online.outputs[r]
        # Double Q-learning [Hasselt2016]: the online network chooses, the target network values.
        judge = agent.online.outputs[r] if hp.double else values
        choice = best(judge, n_actions)
        alive = 1.0 - replay.rows[agent.ends[r], 2 * inputs + 2]
        agent.targets[r] += agent.discounts[r] * alive * values[choice]


@kernel
def descend(member: Member, agent: Agent, hp: Record, learning_rate: float) -> None:
    """Make one step of Adam along the clipped gradient."""
    member.counts[UPDATES] += 1
    gradient = agent.online.gradient
    first = member.moments[0]
    second = member.moments[1]
    scale = clip_scale(gradient, hp.max_grad_norm)
    update = member.counts[UPDATES]
    adam(member.parameters, gradient, first, second, update, learning_rate, hp.optimizer_eps, scale)


def bind(state: State, environment: Environment, hp: Record) -> Bound:
    """Put networks and scratch memory around the state."""
    member = state["member"]
    normaliser_of(state, environment, float(hp.gamma))
    agent = make_agent(state, environment, hp)
    functions = environment.functions(member.parameters.dtype)

    def advance_by(iterations: int) -> None:
        train(member, agent, hp, limits(environment), *functions, iterations)

    return Bound(advance_by, agent.online, ARGMAX)


@program
def choose(member: Member, agent: Agent, hp: Record, n_actions: int, observations: Array) -> None:
    """Act on observations (n_envs, observation_size) of environments outside."""
    copy_rows(agent.inputs, observations)
    choose_actions(member, agent, hp, n_actions)


@program
def learn(
    member: Member, agent: Agent, hp: Record, n_actions: int, step: Step, round_ends: bool
) -> None:
    """Remember a step of environments outside, and update after a round."""
    off_policy.remember(agent.replay, agent.actions, step, 1.0)
    follow(member, agent, hp)
    if round_ends:
        update(member, agent, hp, n_actions)


def bind_outside(state: State, environment: Environment, hp: Record, worlds: Worlds) -> Bound:
    """Put networks and scratch memory around a member whose environments are outside."""
    member: Member = state["member"]
    normaliser_of(state, environment, float(hp.gamma))
    agent = make_agent(state, environment, hp)
    n_envs = len(member.states)
    actions = environment.n_actions
    chosen = choose.prepared(member, agent, hp, actions, worlds.observations)
    learned = learn.prepared(member, agent, hp, actions, no_step(environment, n_envs), True)

    def act() -> Array:
        chosen(member, agent, hp, actions, worlds.observations)
        return agent.actions[:n_envs]

    def absorb(step: Step, round_ends: bool) -> None:
        learned(member, agent, hp, actions, step, round_ends)

    def advance_by(iterations: int) -> None:
        off_policy.advance(member, agent.replay, hp, worlds, (act, absorb), iterations)

    return Bound(advance_by, agent.online, ARGMAX)


ALGORITHM = Algorithm(
    name="dqn",
    settings=HYPERPARAMETERS,
    discrete=True,
    continuous=False,
    stride=lambda hp: int(hp.train_freq) * int(hp.n_envs),
    create=create,
    bind=bind,
    parts={"member": Member, "target": Target, "replay": Replay},
    bind_outside=bind_outside,
)
