from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from population_helpers import CARTPOLE, DQN, advanced, close, make, torch_mlp

from autorl.population import dqn
from autorl.population.environments import ENVIRONMENTS

ACROBOT = ENVIRONMENTS["Acrobot-v1"]


def _agent(seed, environment, **config):
    _, hp, state = make("dqn", seed, environment, np.float64, **config)
    generator = np.random.default_rng(seed)
    parameters, target = state["member"].parameters, state["target"].parameters
    target += 0.5 * generator.normal(size=len(target)) * (parameters != 0.0)
    agent = dqn.make_agent(state, environment, hp)
    inputs, rows = environment.observation_size, agent.replay.rows
    rows[:, : 2 * inputs] = generator.normal(size=(len(rows), 2 * inputs))
    rows[:, 2 * inputs] = generator.integers(environment.n_actions, size=len(rows))
    rows[:, -2] = 3.0 * generator.normal(size=len(rows))
    rows[:, -1] = generator.integers(2, size=len(rows))
    agent.replay.counts[0] = len(rows)
    agent.batch[:] = generator.integers(len(rows), size=len(agent.batch))
    agent.weights[:] = generator.random(len(agent.batch))
    return hp, agent, parameters, target


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 9),
    depth=st.integers(1, 3),
    activation=st.sampled_from(["tanh", "relu"]),
    rows=st.integers(1, 20),
    acrobot=st.booleans(),
    double=st.booleans(),
    use_target_network=st.booleans(),
    prioritized=st.booleans(),
    gamma=st.floats(0.0, 1.0),
)
def test_the_gradient_is_that_of_sb3s_loss(
    seed, width, depth, activation, rows, acrobot, double, use_target_network, prioritized, gamma
):
    torch = pytest.importorskip("torch")
    environment = ACROBOT if acrobot else CARTPOLE
    config = {
        "net_width": width,
        "net_depth": depth,
        "activation": activation,
        "batch_size": rows,
        "gamma": gamma,
    }
    config |= {
        "double": double,
        "use_target_network": use_target_network,
        "prioritized": prioritized,
    }
    hp, agent, parameters, target = _agent(seed, environment, buffer_size=30, **config)
    dqn.loss_gradient(agent, hp, environment.n_actions)

    flat, inputs = torch.tensor(parameters, requires_grad=True), environment.observation_size
    batch = torch.tensor(agent.replay.rows[agent.batch])
    with torch.no_grad():
        online = torch_mlp(torch, flat, agent.online, batch[:, inputs : 2 * inputs])
        judge = torch_mlp(torch, torch.tensor(target), agent.online, batch[:, inputs : 2 * inputs])
        judge = judge if use_target_network else online
        choice = (online if double else judge).argmax(1)
        values = batch[:, -2] + gamma * (1 - batch[:, -1]) * judge[torch.arange(rows), choice]
    current = torch_mlp(torch, flat, agent.online, batch[:, :inputs])
    current = current[torch.arange(rows), batch[:, 2 * inputs].long()]
    losses = torch.nn.functional.smooth_l1_loss(current, values, reduction="none")
    (torch.tensor(agent.weights) * losses).mean().backward()
    assert close(agent.online.gradient, flat.grad.numpy())
    if prioritized:
        leaf = len(agent.replay.tree) // 2 + agent.batch[-1]
        error = abs((current - values)[-1].item())
        assert agent.replay.tree[leaf] == pytest.approx(
            (error + hp.priority_eps) ** hp.priority_alpha
        )


def test_exploration_falls_linearly_over_its_fraction_of_the_horizon():
    _, hp, _ = make(
        "dqn", 0, exploration_fraction=0.4, exploration_initial_eps=0.9, exploration_final_eps=0.1
    )
    found = [dqn.exploration_rate(hp, progress) for progress in (0.0, 0.2, 0.4, 0.7)]
    np.testing.assert_allclose(found, [0.9, 0.5, 0.1, 0.1])


def test_memory_holds_transitions_of_the_environment_with_terminations_but_not_truncations():
    state = advanced("dqn", 3, (40,), **{**DQN, "buffer_size": 640, "learning_starts": 10_000})
    rows = state["replay"].rows
    assert state["replay"].counts[0] == 640
    ends = 0
    for row in rows:
        world = row[:4].astype(np.float64)
        reward, terminated = CARTPOLE.step(world, row[8:9].astype(np.float64), np.uint64(0))
        np.testing.assert_allclose(world, row[4:8], rtol=1e-4, atol=1e-5)
        assert row[9] == reward
        assert row[10] == terminated
        ends += terminated
    assert ends > 5
    assert 0.4 < rows[:, 8].mean() < 0.6  # random actions before learning starts


def test_updates_begin_after_learning_starts_and_follow_the_ratio():
    config = {**DQN, "learning_starts": 32}
    assert (
        advanced("dqn", 0, (2,), **config)["member"].counts[1] == 0
    )  # 32 steps: not more than learning_starts
    assert advanced("dqn", 0, (5,), **config, gradient_steps=3)["member"].counts[1] == 9
    assert advanced("dqn", 0, (5,), **config, gradient_steps=-1)["member"].counts[1] == 48


def test_the_target_network_follows_at_its_interval():
    state = advanced("dqn", 0, (5,), **DQN, target_update_interval=10**6)
    _, _, first = make("dqn", 0, **DQN)
    assert np.array_equal(state["target"].parameters, first["member"].parameters)
    state = advanced("dqn", 0, (5,), **DQN, target_update_interval=1)
    assert not np.array_equal(state["target"].parameters, first["member"].parameters)
