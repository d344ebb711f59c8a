"""The search spaces and tasks of ARLBench's landscapes.

They are as ARLBench's run scripts state them.

References:
    [Becktepe2024] Becktepe et al., "ARLBench: flexible and efficient benchmarking for
        hyperparameter optimization in reinforcement learning", EWRL 2024, arXiv 2409.18827.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autorl.space import Space, load_space


@dataclass(frozen=True)
class Task:
    """An ARLBench task.

    Attributes:
        environment: its id.
        domain: the family of environments it belongs to.
        bounds: the range of its returns.
        floor: values below are noise.
    """

    environment: str
    domain: str
    bounds: tuple[float | None, float | None] = (None, None)
    floor: float | None = None


# A floor, or one run decides every mean: PPO's returns on Brax reach -1e22.
_BOX2D_FLOOR = -200.0
_BRAX_FLOOR = -2000.0
# Bounds are those of an episode: 500 steps of reward 1 for CartPole, 24 points for DoubleDunk.
TASKS: Mapping[str, Task] = {
    "atari_battle_zone": Task("BattleZone-v5", "atari", (0.0, None)),
    "atari_double_dunk": Task("DoubleDunk-v5", "atari", (-24.0, 24.0)),
    "atari_this_game": Task("NameThisGame-v5", "atari", (0.0, None)),
    "atari_phoenix": Task("Phoenix-v5", "atari", (0.0, None)),
    "atari_qbert": Task("Qbert-v5", "atari", (0.0, None)),
    "box2d_lunar_lander": Task("LunarLander-v2", "box2d", (_BOX2D_FLOOR, 350.0), _BOX2D_FLOOR),
    "box2d_lunar_lander_continuous": Task(
        "LunarLanderContinuous-v2", "box2d", (_BOX2D_FLOOR, 350.0), _BOX2D_FLOOR
    ),
    # The same task: the files have it under both names.
    "box2d_continuous_lunar_lander": Task(
        "LunarLanderContinuous-v2", "box2d", (_BOX2D_FLOOR, 350.0), _BOX2D_FLOOR
    ),
    "box2d_bipedal_walker": Task("BipedalWalker-v3", "box2d", (_BOX2D_FLOOR, 350.0), _BOX2D_FLOOR),
    "brax_ant": Task("brax-ant", "brax", (_BRAX_FLOOR, None), _BRAX_FLOOR),
    "brax_halfcheetah": Task("brax-halfcheetah", "brax", (_BRAX_FLOOR, None), _BRAX_FLOOR),
    "brax_hopper": Task("brax-hopper", "brax", (_BRAX_FLOOR, None), _BRAX_FLOOR),
    "brax_humanoid": Task("brax-humanoid", "brax", (_BRAX_FLOOR, None), _BRAX_FLOOR),
    "cc_acrobot": Task("Acrobot-v1", "cc", (-500.0, 0.0)),
    "cc_cartpole": Task("CartPole-v1", "cc", (0.0, 500.0)),
    "cc_mountain_car": Task("MountainCar-v0", "cc", (-200.0, 0.0)),
    "cc_continuous_mountain_car": Task("MountainCarContinuous-v0", "cc", (None, 100.0)),
    "cc_pendulum": Task("Pendulum-v1", "cc", (None, 0.0)),
    "minigrid_door_key": Task("MiniGrid-DoorKey-5x5", "minigrid", (0.0, 1.0)),
    "minigrid_empty_random": Task("MiniGrid-EmptyRandom-5x5", "minigrid", (0.0, 1.0)),
    "minigrid_four_rooms": Task("MiniGrid-FourRooms", "minigrid", (0.0, 1.0)),
    "minigrid_unlock": Task("MiniGrid-Unlock", "minigrid", (0.0, 1.0)),
}
# Batch sizes by algorithm and domain; ARLBench has no landscapes of any other pair.
_BATCHES = {
    "ppo": {
        "atari": (128, 256, 512),
        "cc": (128, 256, 512),
        "box2d": (32, 64, 128),
        "minigrid": (32, 64, 128),
        "brax": (512, 1024, 2048),
    },
    "dqn": {
        "atari": (16, 32, 64),
        "box2d": (64, 128, 256),
        "cc": (64, 128, 256),
        "minigrid": (32, 64, 128),
    },
    "sac": {"cc": (256, 512, 1024), "box2d": (128, 256, 512), "brax": (512, 1024, 2048)},
}
_BUFFERS = {
    "dqn": {
        "atari": (1024, 1_000_000),
        "box2d": (1024, 120_000),
        "cc": (1024, 120_000),
        "minigrid": (1024, 1_000_000),
    },
    "sac": {"cc": (1024, 120_000), "box2d": (1024, 500_000), "brax": (2048, 2_000_000)},
}


def has_space(algorithm: str, domain: str) -> bool:
    """Tell whether ARLBench has landscapes of the algorithm in the domain."""
    return domain in _BATCHES.get(algorithm, {})


def arlbench_space(algorithm: str, domain: str) -> Space:
    """Return the space an ARLBench landscape was sampled from (`has_space`)."""
    build = {"ppo": _ppo, "dqn": _dqn, "sac": _sac}[algorithm]
    return load_space(build(domain))


def _real(lower: float, upper: float, default: float, scale: str = "linear") -> dict[str, Any]:
    return {"type": "float", "lower": lower, "upper": upper, "default": default, "scale": scale}


def _int(lower: int, upper: int, default: int) -> dict[str, Any]:
    return {"type": "int", "lower": lower, "upper": upper, "default": default}


def _choice(choices: tuple[object, ...], default: object) -> dict[str, Any]:
    return {"type": "categorical", "choices": list(choices), "default": default}


def _ppo(domain: str) -> dict[str, Any]:
    batches = _BATCHES["ppo"][domain]
    return {
        "hyperparameters": {
            "learning_rate": _real(1e-6, 0.1, 3e-4, "log"),
            "ent_coef": _real(0.0, 0.5, 0.0),
            "minibatch_size": _choice(batches, batches[0]),
            "gae_lambda": _real(0.8, 0.9999, 0.95),
            "clip_eps": _real(0.0, 0.5, 0.2),
            "vf_clip_eps": _real(0.0, 0.5, 0.2),
            "normalize_advantage": _choice((True, False), True),
            "vf_coef": _real(0.0, 1.0, 0.5),
            "max_grad_norm": _real(0.0, 1.0, 0.5),
        }
    }


def _replay(algorithm: str, domain: str, epsilon: tuple[float, float, float]) -> dict[str, Any]:
    """Describe the hyperparameters that DQN and SAC share."""
    batches = _BATCHES[algorithm][domain]
    sizes = _BUFFERS[algorithm][domain]
    return {
        "learning_rate": _real(1e-6, 0.1, 3e-4, "log"),
        "buffer_batch_size": _choice(batches, batches[0]),
        "buffer_size": _int(*sizes, sizes[1]),
        "buffer_prio_sampling": _choice((True, False), False),
        "buffer_alpha": _real(0.01, 1.0, 0.9),
        "buffer_beta": _real(0.01, 1.0, 0.9),
        "buffer_epsilon": _real(*epsilon, "log"),
        "use_target_network": _choice((True, False), True),
    }


# Uniform sampling has no priorities to weigh.
_PRIORITISED = {
    f"buffer_{name}": "buffer_prio_sampling == true" for name in ("alpha", "beta", "epsilon")
}


def _dqn(domain: str) -> dict[str, Any]:
    atari = domain == "atari"
    longest_interval = 2000 if atari else 100
    return {
        "hyperparameters": {
            **_replay("dqn", domain, (1e-7, 1e-3, 1e-6)),
            "initial_epsilon": _real(0.5, 1.0, 1.0),
            "target_epsilon": _real(0.001, 0.2, 0.05),
            "learning_starts": _int(1024, 32_768, 1024) if atari else _int(0, 2048, 128),
            "target_update_interval": _int(1, longest_interval, 10),
        },
        "conditions": {**_PRIORITISED, "target_update_interval": "use_target_network == true"},
    }


def _sac(domain: str) -> dict[str, Any]:
    latest_start = 16_384 if domain == "brax" else 8192
    return {
        "hyperparameters": {
            **_replay("sac", domain, (1e-9, 1e-4, 1e-7)),
            "learning_starts": _int(0, latest_start, 128),
            "tau": _real(0.01, 1.0, 1.0),
            "reward_scale": _real(0.1, 10.0, 1.0, "log"),
        },
        "conditions": {**_PRIORITISED, "tau": "use_target_network == true"},
    }
