"""The engine learns what Stable-Baselines3 learns at equal settings and steps, on few seeds; `benchmarks/` has many."""

from __future__ import annotations

import numpy as np
import pytest

from autorl.population import engine
from autorl.population.environments import ENVIRONMENTS
from autorl.population.hyperparameters import record
from autorl.seeds import digest

stable_baselines3 = pytest.importorskip("stable_baselines3")
pytestmark = [pytest.mark.slow, pytest.mark.cpu_seconds(900)]

_A2C = {
    "n_steps": 5,
    "batch_size": 5,
    "n_epochs": 1,
    "normalize_advantage": False,
    "optimizer": "rmsprop",
}
_DQN = {"learning_rate": 1e-3, "batch_size": 64, "buffer_size": 50_000, "learning_starts": 1000}
_DQN |= {"target_update_interval": 240, "exploration_fraction": 0.2}
# name: (algorithm, SB3's class, environment, ours, SB3's, steps)
CASES = {
    "ppo": ("ppo", "PPO", "CartPole-v1", {}, {}, 12_000),
    "a2c": (
        "ppo",
        "A2C",
        "CartPole-v1",
        {**_A2C, "learning_rate": 7e-4, "gae_lambda": 1.0},
        {},
        12_000,
    ),
    "dqn": ("dqn", "DQN", "CartPole-v1", _DQN, _DQN, 12_000),
    "sac": (
        "sac",
        "SAC",
        "Pendulum-v1",
        {"net_width": 64},
        {"policy_kwargs": {"net_arch": [64, 64]}},
        2_500,
    ),
}
OURS, THEIRS = 16, 5


def _ours(name, environment_id, config, steps):
    environment, returns = ENVIRONMENTS[environment_id], []
    for seed in range(OURS):
        algorithm = engine.find_algorithm(name)
        hp = record(algorithm.settings, config, steps)
        state = algorithm.create(environment, hp, digest(seed, "training") % 2**64, np.float32)
        engine.train_to(algorithm.bind(state, environment, hp), algorithm, state, hp, steps)
        recent = state["member"].recent
        returns.append(recent[: min(int(state["member"].counts[2]), len(recent))].mean())
    return np.array(returns)


def _theirs(kind, environment_id, arguments, steps):
    import torch

    torch.set_num_threads(1)
    returns = []
    for seed in range(THEIRS):
        model = getattr(stable_baselines3, kind)(
            "MlpPolicy", environment_id, seed=seed, device="cpu", **arguments
        )
        model.learn(steps)
        returns.append(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    return np.array(returns)


@pytest.mark.parametrize("case", sorted(CASES))
def test_training_returns_are_those_of_stable_baselines3(case):
    name, kind, environment_id, ours, theirs, steps = CASES[case]
    mine = _ours(name, environment_id, ours, steps)
    reference = _theirs(kind, environment_id, theirs, steps)
    error = np.sqrt(mine.var(ddof=1) / OURS + reference.var(ddof=1) / THEIRS)
    assert (
        abs(mine.mean() - reference.mean()) < 4.5 * error
    )  # t with 4 or more degrees of freedom: about 1 in 100


def test_ppo_solves_cartpole_at_its_defaults():
    assert np.median(_ours("ppo", "CartPole-v1", {}, 50_000)) > 250
