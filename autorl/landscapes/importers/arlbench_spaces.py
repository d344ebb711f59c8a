"""The search spaces and tasks of ARLBench's landscapes.

They are as ARLBench's run scripts state them.

References:
    [Becktepe2024] Becktepe et al., "ARLBench: flexible and efficient benchmarking for
        hyperparameter optimization in reinforcement learning", EWRL 2024, arXiv 2409.18827.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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


def arlbench_space(algorithm: str, domain: str) -> Space | None:
    """Return the space of ARLBench's landscapes of a domain, or None."""
    file = Path(__file__).with_suffix(".yaml")
    stated: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    space = stated.get(algorithm, {}).get(domain)
    return None if space is None else load_space(space)
