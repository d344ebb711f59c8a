"""The cells of benchmarks/equivalence.py: algorithm, task, length and setting of each comparison."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EPISODES = 20
EVALUATED_AT = (60, 70, 80, 90, 100)  # per cent of the steps
RANGES = {
    "CartPole-v1": (0.0, 500.0),
    "Pendulum-v1": (-1600.0, 0.0),
    "LunarLander-v3": (-300.0, 300.0),
    "HalfCheetah-v5": (-500.0, 500.0),  # random policies have -300; more takes longer than a cell
    "MiniGrid-Empty-5x5-v0": (0.0, 1.0),
}
CONTINUOUS = ("Pendulum-v1", "HalfCheetah-v5")


@dataclass(frozen=True)
class Cell:
    """One comparison. `config` is in the engine's words; `kind` is the class of Stable-Baselines3."""

    kind: str
    environment: str
    steps: int
    config: dict[str, Any]
    normalize: bool = False  # `VecNormalize`, with the cell's gamma

    @property
    def algorithm(self) -> str:
        """The engine's name for it: A2C is a special case of PPO."""
        return "ppo" if self.kind == "A2C" else self.kind.lower()

    @property
    def episodes(self) -> int:
        """How many an evaluation plays: those of HalfCheetah always have 1,000 steps."""
        return 4 if self.environment == "HalfCheetah-v5" else EPISODES

    @property
    def digest(self) -> str:
        """Changes with whatever a finished run depends on."""
        text = json.dumps(
            [
                self.kind,
                self.environment,
                self.steps,
                self.config,
                self.episodes,
                EVALUATED_AT,
                *["normalize"] * self.normalize,  # other cells keep what is finished
            ],
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()[:12]


Settings = Mapping[str, dict[str, Any]]
"""Hyperparameters of the settings of a cell, by number; the rest are the defaults."""


def a2c(environment: str, steps: int, **config: Any) -> Cell:
    """A2C's defaults in Stable-Baselines3 as a setting of PPO, with `config` over them."""
    values = {"n_envs": 1, "n_steps": 5, "learning_rate": 7e-4, "gae_lambda": 1.0, **config}
    special = {
        "n_epochs": 1,
        "batch_size": values["n_steps"] * values["n_envs"],
        "clip_range": math.inf,
    }
    special |= {"normalize_advantage": False, "optimizer": "rmsprop", "optimizer_eps": 1e-5}
    return Cell("A2C", environment, steps, {**values, **special})


PPO: Settings = {
    "1": {"n_envs": 1},
    "2": {
        "n_envs": 8,
        "n_steps": 64,
        "batch_size": 128,
        "n_epochs": 4,
        "learning_rate": 5e-4,
        "gamma": 0.98,
    }
    | {"ent_coef": 0.01},
    "3": {
        "n_envs": 4,
        "n_steps": 128,
        "batch_size": 64,
        "n_epochs": 4,
        "gamma": 0.98,
        "gae_lambda": 0.8,
    }
    | {"clip_range": 0.1, "max_grad_norm": 1.0, "activation": "relu"},
}
PENDULUM: Settings = {
    "1": {"n_envs": 4, "n_steps": 256, "n_epochs": 10, "learning_rate": 1e-3, "gamma": 0.9},
    "2": {
        "n_envs": 8,
        "n_steps": 64,
        "batch_size": 128,
        "n_epochs": 8,
        "learning_rate": 2e-3,
        "gamma": 0.9,
    }
    | {"clip_range_vf": 5.0, "normalize_advantage": False, "max_grad_norm": 2.0, "vf_coef": 0.25},
    "3": {
        "n_envs": 4,
        "n_steps": 128,
        "batch_size": 128,
        "n_epochs": 5,
        "learning_rate": 1e-3,
        "gamma": 0.9,
    }
    | {"gae_lambda": 0.9, "ent_coef": 0.01, "clip_range": 0.3, "activation": "relu"},
}
DQN: Settings = {
    "1": {"learning_rate": 1e-3, "batch_size": 64, "buffer_size": 50_000, "learning_starts": 1000}
    | {"target_update_interval": 240, "exploration_fraction": 0.2},
    "2": {
        "learning_rate": 5e-4,
        "buffer_size": 5000,
        "learning_starts": 500,
        "target_update_interval": 100,
    }
    | {"exploration_fraction": 0.3, "gamma": 0.95, "tau": 0.5},
    "3": {
        "n_envs": 4,
        "learning_rate": 1e-3,
        "batch_size": 128,
        "buffer_size": 10_000,
        "learning_starts": 1000,
    }
    | {
        "target_update_interval": 200,
        "train_freq": 2,
        "gradient_steps": 4,
        "gamma": 0.98,
        "max_grad_norm": 1.0,
    }
    | {"exploration_final_eps": 0.1, "activation": "tanh"},
}
SAC: Settings = {
    "1": {
        "net_width": 64,
        "batch_size": 64,
        "learning_rate": 3e-3,
        "tau": 0.02,
        "gamma": 0.95,
        "train_freq": 2,
    },
    "2": {
        "net_width": 64,
        "batch_size": 64,
        "learning_rate": 3e-3,
        "tau": 0.02,
        "gamma": 0.95,
        "train_freq": 4,
    }
    | {"gradient_steps": 2, "ent_coef": 0.2, "activation": "tanh"},
    "3": {
        "n_envs": 2,
        "net_width": 32,
        "batch_size": 128,
        "learning_rate": 4e-3,
        "tau": 0.03,
        "gamma": 0.9,
    }
    | {
        "learning_starts": 500,
        "buffer_size": 2000,
        "train_freq": 2,
        "gradient_steps": 2,
        "target_update_interval": 2,
    },
}
SAC_STEPS = {"1": 6_000, "2": 4_000, "3": 6_000}
TD3: Settings = {
    "1": {"net_width": 64, "batch_size": 64, "learning_rate": 2e-3, "tau": 0.02, "gamma": 0.95}
    | {"noise_std": 0.1, "train_freq": 2},
    "2": {"net_width": 64, "batch_size": 64, "learning_rate": 2e-3, "tau": 0.02, "gamma": 0.95}
    | {
        "noise_type": "ornstein-uhlenbeck",
        "noise_std": 0.5,
        "train_freq": 4,
        "gradient_steps": 2,
        "policy_delay": 1,
    },
    "3": {
        "n_envs": 2,
        "net_width": 32,
        "batch_size": 128,
        "learning_rate": 3e-3,
        "tau": 0.03,
        "gamma": 0.9,
        "noise_std": 0.2,
    }
    | {
        "learning_starts": 500,
        "buffer_size": 2000,
        "train_freq": 2,
        "gradient_steps": 2,
        "policy_delay": 3,
        "target_policy_noise": 0.1,
        "target_noise_clip": 0.3,
    },
}
TD3_STEPS = dict.fromkeys(TD3, 8_000)
DDPG = {
    "net_width": 64,
    "batch_size": 64,
    "learning_rate": 1e-3,
    "tau": 0.02,
    "gamma": 0.95,
    "noise_std": 0.1,
    "train_freq": 2,
}
LUNAR: Settings = {
    "1": {"n_envs": 8, "n_steps": 128, "batch_size": 64, "n_epochs": 4, "learning_rate": 1e-3},
    "2": {
        "n_envs": 4,
        "n_steps": 256,
        "batch_size": 128,
        "n_epochs": 8,
        "learning_rate": 5e-4,
        "gamma": 0.98,
        "ent_coef": 0.01,
    },
    "3": {
        "n_envs": 16,
        "n_steps": 64,
        "batch_size": 256,
        "n_epochs": 8,
        "learning_rate": 1e-3,
        "gae_lambda": 0.9,
        "activation": "relu",
        "max_grad_norm": 1.0,
    },
}
CHEETAH: Settings = {
    "1": {"n_envs": 4, "n_steps": 256, "batch_size": 128, "n_epochs": 4, "learning_rate": 1e-3},
    "2": {
        "n_envs": 8,
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 8,
        "learning_rate": 1e-3,
        "gamma": 0.98,
    },
    "3": {
        "n_envs": 4,
        "n_steps": 128,
        "batch_size": 64,
        "n_epochs": 4,
        "gamma": 0.95,
        "gae_lambda": 0.9,
        "clip_range": 0.1,
        "activation": "relu",
    },
}
GRID: Settings = {
    "1": {"n_envs": 8, "n_steps": 64, "batch_size": 64, "n_epochs": 4, "learning_rate": 1e-3},
    "2": {
        "n_envs": 4,
        "n_steps": 128,
        "batch_size": 128,
        "n_epochs": 6,
        "learning_rate": 5e-4,
        "ent_coef": 0.01,
    },
    "3": {
        "n_envs": 8,
        "n_steps": 64,
        "batch_size": 128,
        "n_epochs": 8,
        "learning_rate": 5e-4,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "clip_range": 0.1,
        "max_grad_norm": 1.0,
    },
}
CELLS = {
    "a2c-1": a2c("CartPole-v1", 12_000, learning_rate=3e-4),
    "a2c-2": a2c(
        "CartPole-v1",
        15_360,
        n_envs=4,
        n_steps=16,
        learning_rate=5e-4,
        gae_lambda=0.9,
        vf_coef=0.25,
    ),
    "a2c-3": a2c(
        "CartPole-v1",
        20_480,
        n_envs=8,
        learning_rate=5e-4,
        gamma=0.95,
        ent_coef=0.01,
        max_grad_norm=1.0,
    ),
    **{
        f"ppo-discrete-{n}": Cell("PPO", "CartPole-v1", 20_480, config) for n, config in PPO.items()
    },
    **{
        f"ppo-continuous-{n}": Cell("PPO", "Pendulum-v1", 20_480, config)
        for n, config in PENDULUM.items()
    },
    **{f"dqn-{n}": Cell("DQN", "CartPole-v1", 15_000, config) for n, config in DQN.items()},
    **{f"sac-{n}": Cell("SAC", "Pendulum-v1", SAC_STEPS[n], config) for n, config in SAC.items()},
    **{f"td3-{n}": Cell("TD3", "Pendulum-v1", TD3_STEPS[n], config) for n, config in TD3.items()},
    **{f"lunarlander-{n}": Cell("PPO", "LunarLander-v3", 30_720, c) for n, c in LUNAR.items()},
    **{
        f"halfcheetah-{n}": Cell("PPO", "HalfCheetah-v5", 20_480, c, normalize=n != "3")
        for n, c in CHEETAH.items()
    },
    **{f"minigrid-{n}": Cell("PPO", "MiniGrid-Empty-5x5-v0", 6_144, c) for n, c in GRID.items()},
    "ddpg-1": Cell("DDPG", "Pendulum-v1", 8_000, DDPG),
}
