"""The engine learns what Stable-Baselines3 learns at equal settings and steps, on few seeds; `benchmarks/` has many."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from autorl.core.seeds import digest
from autorl.core.types import FrozenMap
from autorl.population import engine
from autorl.population.environments import ENVIRONMENTS, find_environment
from autorl.population.hyperparameters import record

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
_RATE = {"learning_rate": 7e-4, "gae_lambda": 1.0}
_SMALL = {"policy_kwargs": {"net_arch": [64, 64]}}
_NOISE = {"noise_type": "ornstein-uhlenbeck"}
# name: (algorithm, SB3's class, environment, ours, SB3's, steps)
CASES = {
    "ppo": ("ppo", "PPO", "CartPole-v1", {}, {}, 12_000),
    "a2c": ("ppo", "A2C", "CartPole-v1", {**_A2C, **_RATE}, {}, 12_000),
    "dqn": ("dqn", "DQN", "CartPole-v1", _DQN, _DQN, 12_000),
    "sac": ("sac", "SAC", "Pendulum-v1", {"net_width": 64}, _SMALL, 2_500),
}
_NET = {"net_width": 64, "noise_std": 0.1}
CASES |= {
    "ppo-normalised": ("ppo", "PPO", "CartPole-v1", {}, {}, 12_000),
    "a2c-pendulum": ("a2c", "A2C", "Pendulum-v1", {}, {}, 12_000),
    "td3": ("td3", "TD3", "Pendulum-v1", _NET, {**_SMALL, "noise_std": 0.1}, 3_000),
    "ddpg": (
        "ddpg",
        "DDPG",
        "Pendulum-v1",
        {**_NET, **_NOISE},
        {**_SMALL, "noise_std": 0.1},
        3_000,
    ),
}
OURS, THEIRS = 16, 5


def _ours(name, environment, config, steps):
    returns = []
    for seed in range(OURS):
        algorithm = engine.find_algorithm(name)
        hp = record(algorithm.settings, config, steps)
        state = algorithm.create(environment, hp, digest(seed, "training") % 2**64, np.float32)
        engine.train_to(algorithm.bind(state, environment, hp), algorithm, state, hp, steps)
        recent = state["member"].recent
        returns.append(recent[: min(int(state["member"].counts[2]), len(recent))].mean())
    return np.array(returns)


def _theirs(kind, environment_id, arguments, steps, normalised):
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    arguments = dict(arguments)
    deviation = arguments.pop("noise_std", None)
    if deviation is not None:
        name = "OrnsteinUhlenbeckActionNoise" if kind == "DDPG" else "NormalActionNoise"
        noise = getattr(importlib.import_module("stable_baselines3.common.noise"), name)
        arguments["action_noise"] = noise(np.zeros(1), np.full(1, deviation))
    returns = []
    for seed in range(THEIRS):
        environment = environment_id
        if normalised:
            environment = VecNormalize(make_vec_env(environment_id))
        model = getattr(stable_baselines3, kind)(
            "MlpPolicy", environment, seed=seed, device="cpu", **arguments
        )
        model.learn(steps)
        returns.append(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    return np.array(returns)


@pytest.mark.parametrize("case", sorted(CASES))
def test_training_returns_are_those_of_stable_baselines3(case):
    name, kind, environment_id, ours, theirs, steps = CASES[case]
    environment = ENVIRONMENTS[environment_id]
    normalised = case.endswith("normalised")
    if normalised:
        environment = replace(environment, normalize=FrozenMap())
    mine = _ours(name, environment, ours, steps)
    reference = _theirs(kind, environment_id, theirs, steps, normalised)
    error = np.sqrt(mine.var(ddof=1) / OURS + reference.var(ddof=1) / THEIRS)
    # t with 4 or more degrees of freedom: about 1 in 100
    assert abs(mine.mean() - reference.mean()) < 4.5 * error


def test_ppo_solves_cartpole_at_its_defaults():
    assert np.median(_ours("ppo", ENVIRONMENTS["CartPole-v1"], {}, 50_000)) > 250


def test_a_normalised_member_learns_from_rewards_a_thousand_times_as_large():
    """From about -1200 a thousand times, the return of random actions; another stays there."""
    config = {"n_envs": 4, "n_steps": 256, "gamma": 0.9, "learning_rate": 1e-3}
    environment = find_environment("Pendulum-v1", {"reward_scale": 1000.0})
    normalised = replace(environment, normalize=FrozenMap())
    assert np.median(_ours("ppo", normalised, config, 60_000)) > -600e3
    assert np.median(_ours("ppo", environment, config, 60_000)) < -900e3
