"""autorl: tune reinforcement-learning and RLHF training, cheaply, honestly, and keep every run.

result = autorl.tune("sb3/ppo-small", env="CartPole-v1", optimizer="tpe", runs=48)
print(result.test, result.gap)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import did_you_mean

__version__ = "0.1.0"

if TYPE_CHECKING:
    from autorl.core.seeds import SeedPlan
    from autorl.core.types import AutorlError, Config, InputError, StudyError
    from autorl.landscapes import Landscape, load_landscape
    from autorl.report.notebook import LiveProgress
    from autorl.space import Space, load_space
    from autorl.study import Result, Study
    from autorl.study.building import build_landscape
    from autorl.study.callbacks import Callback, ProposalInfo, RunInfo, ScoreInfo, StudyInfo
    from autorl.study.judging.calls import judge, repeated
    from autorl.study.tuner import Finished, Trial, Tuner, Waiting, tune
    from autorl.trainers.live_trial import LiveTrial, TrialStopped

_HOME = {
    "AutorlError": "autorl.core.types",
    "Callback": "autorl.study.callbacks",
    "Config": "autorl.core.types",
    "Finished": "autorl.study.tuner",
    "InputError": "autorl.core.types",
    "Landscape": "autorl.landscapes",
    "LiveProgress": "autorl.report.notebook",
    "LiveTrial": "autorl.trainers.live_trial",
    "ProposalInfo": "autorl.study.callbacks",
    "Result": "autorl.study",
    "RunInfo": "autorl.study.callbacks",
    "ScoreInfo": "autorl.study.callbacks",
    "SeedPlan": "autorl.core.seeds",
    "Space": "autorl.space",
    "Study": "autorl.study",
    "StudyError": "autorl.core.types",
    "StudyInfo": "autorl.study.callbacks",
    "Trial": "autorl.study.tuner",
    "TrialStopped": "autorl.trainers.live_trial",
    "Tuner": "autorl.study.tuner",
    "Waiting": "autorl.study.tuner",
    "build_landscape": "autorl.study.building",
    "judge": "autorl.study.judging.calls",
    "load_landscape": "autorl.landscapes",
    "load_space": "autorl.space",
    "repeated": "autorl.study.judging.calls",
    "tune": "autorl.study.tuner",
}
__all__ = [
    "AutorlError",
    "Callback",
    "Config",
    "Finished",
    "InputError",
    "Landscape",
    "LiveProgress",
    "LiveTrial",
    "ProposalInfo",
    "Result",
    "RunInfo",
    "ScoreInfo",
    "SeedPlan",
    "Space",
    "Study",
    "StudyError",
    "StudyInfo",
    "Trial",
    "TrialStopped",
    "Tuner",
    "Waiting",
    "build_landscape",
    "judge",
    "load_landscape",
    "load_space",
    "repeated",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used.

    `import autorl` and `autorl --help` therefore stay quick.
    """
    if name not in _HOME:
        raise AttributeError(
            f"module 'autorl' has no attribute {name!r}{did_you_mean(name, _HOME)}"
        )
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names, for whoever completes them."""
    return sorted({*__all__, "__version__", "__doc__", "__name__", "__path__", "__file__"})
