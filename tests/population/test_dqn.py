from __future__ import annotations

import numpy as np
from population_helpers import CARTPOLE, DQN, advanced, make

from autorl.population import dqn


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
