"""Double, dueling, prioritised and n-step DQN against formulae written out in NumPy.

The formulae are those of the papers and of the rainbow and DQN scripts of CleanRL: y = R + gamma^k (1 - terminated)
Q'(s', a'), w = (N P)^-beta / max w, p = (|y - Q| + eps)^alpha, Q = V + A - mean A.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from population_helpers import CARTPOLE, DQN, advanced, close, make, trained_in_python

from autorl.core.types import InputError
from autorl.population import dqn, rng
from autorl.population import replay as memory
from autorl.population.environments import ENVIRONMENTS
from autorl.population.networks import layer_views

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # hashing in plain Python
ACROBOT = ENVIRONMENTS["Acrobot-v1"]
ALL = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}
COMBINATIONS = [
    dict(zip(ALL, values, strict=True))
    for values in itertools.product((False, True), (False, True), (False, True), (1, 3))
]


# ---- the formulae


class Reference:
    """A Q-network in NumPy, written as the papers draw it: each stream has layers of its own."""

    def __init__(self, parameters, net, hp, n_actions):
        self.layers = [layer_views(parameters, net.layers, i) for i in range(len(net.layers))]
        self.activation = np.tanh if net.activation == 0 else lambda x: np.maximum(x, 0.0)
        self.slope = (
            (lambda out: 1.0 - out**2) if net.activation == 0 else (lambda out: (out > 0.0) * 1.0)
        )
        self.dueling, self.n_actions = bool(hp.dueling), n_actions
        self.half = int(hp.net_width) // 2

    def streams(self):
        """(units of the last hidden layer, columns of the head) of each stream."""
        if not self.dueling:
            return [(slice(None), slice(0, self.n_actions))]
        value = (slice(0, self.half), slice(self.n_actions, self.n_actions + 1))
        return [(slice(self.half, None), slice(0, self.n_actions)), value]

    def run(self, x):
        """Q-values (rows, n_actions), and the outputs of every layer."""
        shared = [x]
        for weights, biases in self.layers[:-2]:
            shared.append(self.activation(shared[-1] @ weights + biases))
        tops, ends = [], []
        for units, columns in self.streams():
            weights, biases = self.layers[-2]
            tops.append(self.activation(shared[-1] @ weights[:, units] + biases[units]))
            weights, biases = self.layers[-1]
            ends.append(tops[-1] @ weights[units, columns] + biases[columns])
        q = ends[0]
        if self.dueling:
            advantage, value = ends
            q = value + advantage - advantage.mean(axis=1, keepdims=True)
        return q, shared, tops

    def gradient(self, like, net, x, by_q):
        """The gradient of sum(by_q * Q(x)), flat as the engine's."""
        flat = np.zeros_like(like)
        out = [layer_views(flat, net.layers, i) for i in range(len(net.layers))]
        _, shared, tops = self.run(x)
        slopes = [by_q]
        if self.dueling:  # dQ_a/dA_b = [a = b] - 1/n, dQ_a/dV = 1
            centring = np.eye(self.n_actions) - 1.0 / self.n_actions
            slopes = [by_q @ centring, by_q.sum(axis=1, keepdims=True)]
        below = np.zeros_like(shared[-1])
        for (units, columns), top, slope in zip(self.streams(), tops, slopes, strict=True):
            out[-1][0][units, columns] = top.T @ slope
            out[-1][1][columns] = slope.sum(axis=0)
            delta = slope @ self.layers[-1][0][units, columns].T * self.slope(top)
            out[-2][0][:, units] = shared[-1].T @ delta
            out[-2][1][units] = delta.sum(axis=0)
            below += delta @ self.layers[-2][0][:, units].T
        for index in range(len(self.layers) - 3, -1, -1):
            delta = below * self.slope(shared[index + 1])
            out[index][0][:] = shared[index].T @ delta
            out[index][1][:] = delta.sum(axis=0)
            below = delta @ self.layers[index][0].T
        return flat


def _filled(seed, environment, config, written):
    """(record, agent, state, histories): a memory of made-up transitions, and each environment's in order.

    A history has (observation, action, reward, following observation, terminated, truncated) and the row of the ring.
    """
    _, hp, state = make("dqn", seed, environment, np.float64, **config)
    generator = np.random.default_rng(seed)
    state["target"].parameters[:] += (
        0.5
        * generator.normal(size=len(state["target"].parameters))
        * (state["target"].parameters != 0)
    )
    agent = dqn.make_agent(state, environment, hp)
    histories = [[] for _ in range(int(hp.n_envs))]
    inputs = environment.observation_size
    for number in range(written):
        place = memory.claim(agent.replay)
        before, after = generator.normal(size=(2, inputs))
        action, reward = int(generator.integers(environment.n_actions)), 3.0 * generator.normal()
        terminated = bool(generator.random() < 0.15)
        truncated = not terminated and bool(generator.random() < 0.15)
        row = agent.replay.rows[place]
        row[: 2 * inputs] = np.concatenate([before, after])
        row[2 * inputs : 2 * inputs + 3] = (action, reward, terminated)
        if hp.n_steps > 1:
            row[2 * inputs + 3] = terminated or truncated
        histories[number % len(histories)].append(
            (before, action, reward, after, terminated, truncated, place)
        )
        if hp.prioritized:
            memory.set_priority(agent.replay, place, generator.random() + 0.1)
    capacity = len(agent.replay.rows)
    kept = [history[-capacity // len(histories) :] for history in histories]
    return hp, agent, state, kept


def _n_step(history, position, n_steps, gamma):
    """(return, discount, following observation, terminated) of up to `n_steps` steps, as a loop over an episode."""
    total = 0.0
    for k in range(n_steps):
        _, _, reward, after, terminated, truncated, _ = history[position + k]
        total += gamma**k * reward
        if terminated or truncated or position + k == len(history) - 1:
            break
    return total, gamma ** (k + 1), after, terminated


@pytest.mark.parametrize("written", [22, 75])  # half a ring, and one whose oldest are overwritten
@pytest.mark.parametrize("config", COMBINATIONS, ids=lambda c: "-".join(map(str, c.values())))
def test_an_update_is_that_of_the_papers(config, written):
    case = COMBINATIONS.index(config)
    environment = ACROBOT if case % 2 else CARTPOLE
    shape = {"activation": ("relu", "tanh")[case % 3 == 0], "net_depth": 1 + case % 3}
    options = {"gamma": 0.9, "priority_alpha": 0.7, "priority_eps": 0.01, "n_envs": 3}
    config = {**config, **shape, **options, "net_width": 9, "buffer_size": 36, "batch_size": 14}
    config["use_target_network"] = case % 5 != 4
    hp, agent, state, histories = _filled(case, environment, config, 3 * (written // 3))
    n, beta, n_actions = 14, 0.55, environment.n_actions

    # 1. The rows drawn and their weights.
    priorities = np.zeros(36)
    seed = rng.bits(rng.stream(state["member"].key[0], rng.REPLAY), 0)
    size = sum(map(len, histories))
    if hp.prioritized:
        priorities = agent.replay.tree[len(agent.replay.tree) // 2 :][:36].copy()
        ranges = (np.arange(n) + [rng.uniform(seed, i) for i in range(n)]) / n * priorities.sum()
        rows = np.searchsorted(np.cumsum(priorities), ranges, side="right")
        weights = (size * priorities[rows] / priorities.sum()) ** -beta
        weights /= weights.max()
    else:
        rows = np.array([rng.integer(seed, i, size) for i in range(n)])
        weights = np.ones(n)
    dqn.sample_batch(state["member"], agent, hp, beta)
    assert np.array_equal(agent.batch, rows)
    np.testing.assert_allclose(agent.weights, weights, rtol=1e-12)

    # 2. The targets.
    where = {
        event[-1]: (history, position)
        for history in histories
        for position, event in enumerate(history)
    }
    steps = [_n_step(*where[row], int(hp.n_steps), 0.9) for row in rows]
    online = Reference(state["member"].parameters, agent.online, hp, n_actions)
    target = Reference(state["target"].parameters, agent.target, hp, n_actions)
    following = np.array([after for _, _, after, _ in steps])
    values = (target if hp.use_target_network else online).run(following)[0]
    choice = (online.run(following)[0] if hp.double else values).argmax(axis=1)
    expected = np.array(
        [
            total + (0.0 if terminated else discount * values[r, choice[r]])
            for r, (total, discount, _, terminated) in enumerate(steps)
        ]
    )

    # 3. The gradient of mean(w huber(Q - y)), and the new priorities.
    events = [where[row][0][where[row][1]] for row in rows]
    observations, actions = np.array([event[0] for event in events]), [event[1] for event in events]
    errors = online.run(observations)[0][np.arange(n), actions] - expected
    by_q = np.zeros((n, n_actions))
    by_q[np.arange(n), actions] = weights * np.clip(errors, -1.0, 1.0) / n
    gradient = online.gradient(state["member"].parameters, agent.online, observations, by_q)
    dqn.loss_gradient(agent, hp, n_actions)
    assert close(agent.targets, expected)
    assert close(agent.online.gradient, gradient)
    if hp.prioritized:
        priorities[rows] = (np.abs(errors) + 0.01) ** 0.7
        leaves = agent.replay.tree[len(agent.replay.tree) // 2 :][:36]
        assert close(leaves, priorities)
        assert agent.replay.tree[1] == pytest.approx(priorities.sum(), rel=1e-12)
        assert agent.replay.top[0] >= leaves.max()


def test_the_exponent_of_the_weights_is_annealed_over_the_horizon(monkeypatch):
    """From 0.4 to 1 at the end of training, as section 3.4 of the paper has it."""
    seen = []
    real = dqn.sample_batch

    def sample_batch(member, agent, hp, beta):
        seen.append((int(member.counts[0]) / 1000, beta))
        real(member, agent, hp, beta)

    monkeypatch.setattr(dqn, "sample_batch", sample_batch)
    annealed = {"priority_beta": 0.4, "priority_beta.shape": "linear", "priority_beta.end": 1.0}
    trained_in_python("dqn", 0, 6, CARTPOLE, **{**DQN, **ALL, **annealed})
    assert len(seen) >= 4
    for progress, beta in seen:
        assert beta == pytest.approx(0.4 + 0.6 * progress, rel=1e-12)


def test_streams_stay_apart_in_training_and_begin_like_layers_of_their_own():
    config = {**DQN, **ALL, "net_width": 64, "learning_rate": 1e-2}
    _, hp, state = make("dqn", 3, ACROBOT, np.float64, **config)
    layers = dqn.make_agent(state, ACROBOT, hp).online.layers
    head, biases = layer_views(state["member"].parameters, layers, 2)
    bound = 1.0 / math.sqrt(32)
    assert 0.9 * bound < np.abs(head).max() <= bound
    assert np.abs(biases).max() <= bound
    state = advanced("dqn", 3, (20,), ACROBOT, **config)
    assert state["member"].counts[1] > 10
    for parameters in (state["member"].parameters, state["target"].parameters):
        head, _ = layer_views(parameters, layers, 2)
        assert (head[:32, :-1] == 0.0).all()
        assert (head[32:, -1] == 0.0).all()
        assert (head[32:, :-1] != 0.0).all()
        assert (head[:32, -1] != 0.0).all()


def test_ends_are_marked_at_terminations_and_truncations():
    short = replace(CARTPOLE, time_limit=13)
    config = {**DQN, "n_envs": 1, "n_steps": 2, "buffer_size": 400, "learning_starts": 10_000}
    rows = advanced("dqn", 3, (50,), short, **config)["replay"].rows
    assert rows.shape == (400, 2 * 4 + 4)
    terminated, ended = rows[:, -2] == 1.0, rows[:, -1] == 1.0
    assert (ended | ~terminated).all()
    truncated = ended & ~terminated
    assert truncated.sum() > 3
    # Within an episode the following observation is the next row's observation.
    goes_on = (rows[:-1, 4:8] == rows[1:, :4]).all(axis=1)
    assert np.array_equal(goes_on, ~ended[:-1])


def test_a_dueling_network_needs_a_unit_for_each_stream():
    with pytest.raises(InputError, match="at least 2 units") as error:
        make("dqn", 0, dueling=True, net_width=1)
    assert error.value.key == "net_width"
    with pytest.raises(InputError, match="n_steps"):
        make("dqn", 0, n_steps=0)


# ---- learning


def test_exploration_falls_linearly_over_its_fraction_of_the_horizon():
    _, hp, _ = make(
        "dqn", 0, exploration_fraction=0.4, exploration_initial_eps=0.9, exploration_final_eps=0.1
    )
    found = [dqn.exploration_rate(hp, progress) for progress in (0.0, 0.2, 0.4, 0.7)]
    np.testing.assert_allclose(found, [0.9, 0.5, 0.1, 0.1])


def test_the_target_network_follows_at_its_interval():
    state = advanced("dqn", 0, (5,), **DQN, target_update_interval=10**6)
    _, _, first = make("dqn", 0, **DQN)
    assert np.array_equal(state["target"].parameters, first["member"].parameters)
    state = advanced("dqn", 0, (5,), **DQN, target_update_interval=1)
    assert not np.array_equal(state["target"].parameters, first["member"].parameters)
