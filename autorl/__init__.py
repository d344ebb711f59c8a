"""autorl: tune reinforcement-learning and RLHF training, cheaply, honestly, and keep every run.

result = autorl.tune("sb3/ppo-small", env="CartPole-v1", optimizer="tpe", runs=48)
print(result.test, result.gap)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from autorl.building import build_landscape
    from autorl.landscapes import Landscape, load_landscape
    from autorl.seeds import SeedPlan
    from autorl.space import Space, load_space
    from autorl.study import Result, Study
    from autorl.tuner import Finished, Trial, Tuner, Waiting, tune
    from autorl.types import AutorlError, Config, InputError, StudyError

_HOME = {
    "AutorlError": "autorl.types",
    "Config": "autorl.types",
    "Finished": "autorl.tuner",
    "InputError": "autorl.types",
    "Landscape": "autorl.landscapes",
    "Result": "autorl.study",
    "SeedPlan": "autorl.seeds",
    "Space": "autorl.space",
    "Study": "autorl.study",
    "StudyError": "autorl.types",
    "Trial": "autorl.tuner",
    "Tuner": "autorl.tuner",
    "Waiting": "autorl.tuner",
    "build_landscape": "autorl.building",
    "load_landscape": "autorl.landscapes",
    "load_space": "autorl.space",
    "tune": "autorl.tuner",
}
__all__ = [
    "AutorlError",
    "Config",
    "Finished",
    "InputError",
    "Landscape",
    "Result",
    "SeedPlan",
    "Space",
    "Study",
    "StudyError",
    "Trial",
    "Tuner",
    "Waiting",
    "build_landscape",
    "load_landscape",
    "load_space",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used.

    So `import autorl` and `autorl --help` stay quick.
    """
    if name not in _HOME:
        raise AttributeError(f"module 'autorl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
