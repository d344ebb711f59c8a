from __future__ import annotations

import pytest

pytest.importorskip("stable_baselines3")

import torch
import trainer_environments  # noqa: F401  (registers a task with goals)
from stable_baselines3 import PPO

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, TrainerSpec
from autorl.testing.trainers import Case, TrainerConformance

torch.set_num_threads(1)  # as the executors do
_PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_arch": (16,)}
_OFF_POLICY = {"learning_starts": 32, "batch_size": 16, "buffer_size": 500, "net_arch": (16,)}


_FALLING = {"learning_rate.shape": "linear", "learning_rate.end": 1e-3}


class TestPPO(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/ppo", FrozenMap(_PPO)),
        EnvironmentSpec("CartPole-v1", n_envs=2, normalize=True),
        configs=(
            Config({"learning_rate": 1e-2, "gamma": 0.99, **_FALLING}),
            Config({"learning_rate": 1e-3, "gamma": 0.9, **_FALLING}),
        ),
        fixed=("net_arch", (8,)),
    )


class TestA2C(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/a2c", FrozenMap(net_arch=(16,))),
        EnvironmentSpec("CartPole-v1"),
        configs=(Config(learning_rate=1e-2, n_steps=8), Config(learning_rate=1e-3, n_steps=16)),
        fixed=("activation", "relu"),
    )


class TestDQN(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/dqn", FrozenMap(_OFF_POLICY)),
        EnvironmentSpec("CartPole-v1"),
        configs=(
            Config(learning_rate=1e-2, exploration_fraction=0.8, target_update_interval=50),
            Config(learning_rate=1e-2, exploration_fraction=0.3, target_update_interval=10),
        ),
        fixed=("buffer_size", 400),
    )


class TestSAC(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/sac", FrozenMap({**_OFF_POLICY, "train_freq": 4})),
        EnvironmentSpec("Pendulum-v1"),
        configs=(
            Config(learning_rate=1e-2, ent_coef="auto"),
            Config(learning_rate=1e-2, ent_coef=0.5),
        ),
        horizon=128,
        episodes=1,
        fixed=("net_arch", (8,)),
    )


class Louder(PPO):
    """Counts its updates, and weighs values by their number and a hyperparameter of its own."""

    saved_attributes = ("updates",)
    updates = 0

    def __init__(self, *arguments, loudness=1.0, **named):
        self.loudness = loudness
        super().__init__(*arguments, **named)

    def train(self):
        self.updates += 1
        before = self.vf_coef
        self.vf_coef = before * self.loudness * self.updates
        super().train()
        self.vf_coef = before


class TestSubclassByPath(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/ppo", FrozenMap(_PPO, algorithm_class="test_sb3_conformance:Louder")),
        EnvironmentSpec("CartPole-v1", n_envs=2),
        configs=(Config(loudness=1.0), Config(loudness=8.0)),
        fixed=("net_arch", (8,)),
    )


class TestHindsightReplay(TrainerConformance):
    case = Case(
        TrainerSpec(
            "sb3/dqn",
            FrozenMap(
                {**_OFF_POLICY, "buffer_size": 100},
                replay_buffer_class="stable_baselines3:HerReplayBuffer",
                replay_buffer_kwargs={"n_sampled_goal": 3, "copy_info_dict": True},
            ),
        ),
        EnvironmentSpec("GoalTest-v0", n_envs=2),
        configs=(Config(learning_rate=1e-2), Config(learning_rate=1e-4)),
        fixed=("buffer_size", 200),
    )


@pytest.mark.slow
class TestTD3(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/td3", FrozenMap({**_OFF_POLICY, "noise_type": "ornstein-uhlenbeck"})),
        EnvironmentSpec("Pendulum-v1", n_envs=2, vec_env="subproc"),
        configs=(Config(noise_std=0.1, policy_delay=2), Config(noise_std=0.3, policy_delay=1)),
        horizon=128,
        episodes=1,
        fixed=("noise_type", "normal"),
    )


@pytest.mark.slow
class TestDDPG(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/ddpg", FrozenMap(_OFF_POLICY)),
        EnvironmentSpec("Pendulum-v1", normalize=FrozenMap(norm_reward=False)),
        configs=(Config(tau=0.01, gradient_steps=1), Config(tau=0.1, gradient_steps=2)),
        horizon=128,
        episodes=1,
        fixed=("activation", "elu"),
    )
