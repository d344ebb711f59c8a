"""Families of environments: what a prior is trusted across.

On ARLBench's tables of DQN and PPO the ranks of configurations correlate by 0.45 to 0.84 within a
family, and by -0.25 to -0.53 between Atari and classic control: a portfolio of other families is
worse than random search, one of the own family much better.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OTHER_FAMILY = 0.1
"""What another family of environments counts beside the study's own."""
_FAMILIES = {
    "classic control": "CartPole|Acrobot|MountainCar|Pendulum",
    "box2d": "LunarLander|BipedalWalker|CarRacing",
    "toy text": "FrozenLake|CliffWalking|Taxi|Blackjack",
    "grid worlds": "MiniGrid-|BabyAI-",
    "locomotion": (
        "brax-|Ant-|HalfCheetah|Hopper|Humanoid|Walker2d|Swimmer|Reacher|Pusher"
        "|InvertedPendulum|InvertedDoublePendulum"
    ),
    "atari": (
        "ALE/|Alien|Amidar|Assault|Asterix|Asteroids|Atlantis|BankHeist|BattleZone|BeamRider"
        "|Berzerk|Bowling|Boxing|Breakout|Centipede|ChopperCommand|CrazyClimber|DemonAttack"
        "|DoubleDunk|Enduro|FishingDerby|Freeway|Frostbite|Gopher|Gravitar|Hero|IceHockey"
        "|Jamesbond|Kangaroo|Krull|KungFuMaster|MontezumaRevenge|MsPacman|NameThisGame|Phoenix"
        "|Pitfall|Pong|PrivateEye|Qbert|Riverraid|RoadRunner|Robotank|Seaquest|Skiing|Solaris"
        "|SpaceInvaders|StarGunner|Tennis|TimePilot|Tutankham|UpNDown|Venture|VideoPinball"
        "|WizardOfWor|YarsRevenge|Zaxxon"
    ),
}
_PATTERNS = {family: re.compile(names) for family, names in _FAMILIES.items()}


def family_of(environment: str) -> str:
    """Return the family of an environment by its id.

    An unknown environment forms a family with all ids that begin alike: `letters` of
    `letters-goldproxy`.
    """
    for family, pattern in _PATTERNS.items():
        if pattern.match(environment):
            return family
    return re.split(r"[-/]", environment, maxsplit=1)[0]


def task_weights(environments: Sequence[str], own: str | None) -> list[float]:
    """Return what tasks count before a study has results, of sum 1.

    The tasks of a family share its weight, so that ten of one do not outvote three of another.

    Args:
        environments: of the tasks.
        own: that of the study; None: all families count alike.
    """
    families = [family_of(environment) for environment in environments]
    favoured = families if own is None else [family_of(own)]
    shares = [
        (1.0 if family in favoured else OTHER_FAMILY) / families.count(family)
        for family in families
    ]
    # Rounded: it stands in study files, where 0.1 + 0.2 has no place.
    return [round(share / sum(shares), 6) for share in shares]


def algorithm_of(name: str) -> str:
    """Return the last part of a trainer's name: `ppo` of `sb3/ppo`."""
    return name.rpartition("/")[2]
