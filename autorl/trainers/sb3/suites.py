"""Suites of environments: Atari, Box2D, MuJoCo and MiniGrid.

A suite says which package its environments need, and what a study of one of them begins with: the
space `TRAINER-SUITE` where there is one, wrappers, environments side by side, normalisation and
length. Only a study that a space's bare name stands for is begun so (`autorl tune sb3/ppo --env
Hopper-v5`); a study file says all of this itself.

Source of these settings: the presets of RL Baselines3 Zoo (Raffin 2020), `hyperparams/` at commit
22e3ff2.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autorl.core.types import InputError

_MOST = 100
_said: set[str] = set()


def say_warnings(mujoco: Any) -> None:
    """Have the warnings of the package said from now on, each once.

    By itself it writes each into MUJOCO_LOG.TXT in the working folder, one for every environment of
    HalfCheetah that is made. A handler that somebody has set stays.
    """
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_say)


def _say(warning: str) -> None:
    # Warnings of a simulation that diverges have the time in them.
    if warning in _said or len(_said) == _MOST:
        return
    _said.add(warning)
    # An error in here would end the process: standard error may be closed.
    with suppress(OSError, ValueError):
        print(f"MuJoCo: {warning}", file=sys.stderr, flush=True)


FRAME_STACK = "autorl.trainers.sb3.wrappers:FrameStack"
"""The wrapper that stacks the latest observations of an episode."""
_ATARI_WRAPPERS = "stable_baselines3.common.atari_wrappers"
IMAGE_WRAPPERS = (f"{_ATARI_WRAPPERS}:AtariWrapper", f"{_ATARI_WRAPPERS}:WarpFrame")
"""Wrappers of Stable-Baselines3 that make images of 8 bits, by OpenCV."""
_GRID_AS_VECTOR = "minigrid.wrappers:FlatObsWrapper"
_WHOLE_RUN = 1_000_000  # steps; the presets of these suites train 100,000 to 10 million


@dataclass(frozen=True)
class Suite:
    """Environments of one package.

    Attributes:
        name: of the extra that brings the package, and the suffix of its spaces.
        ids: what their Gymnasium ids look like.
        module: of the package.
        begin: gives the sections a study begins with, by id and whether training is on-policy.
        wrapper: that makes observations ones Stable-Baselines3 takes; empty where they are.
        quiet: keeps the package from writing where nobody asked it to.
    """

    name: str
    ids: re.Pattern[str]
    module: str
    begin: Callable[[str, bool], dict[str, Any]]
    wrapper: str = ""
    quiet: Callable[[Any], None] | None = None

    def require(self, environment: str) -> None:
        """Import the package, which may register the suite, and keep it quiet.

        Raises:
            InputError: its package is not installed; names the extra.
        """
        if importlib.util.find_spec(self.module) is None:
            raise InputError(
                f'{environment!r} needs {self.module}: pip install "autorl[{self.name}]"',
                key="environment.id",
            )
        package = importlib.import_module(self.module)
        if self.quiet is not None:
            self.quiet(package)


def suite_of(environment: str) -> Suite | None:
    """Find the suite of an id, with or without its module."""
    name = environment.rpartition(":")[2]
    return next((suite for suite in SUITES if suite.ids.fullmatch(name)), None)


def _atari(environment: str, on_policy: bool) -> dict[str, Any]:
    """Begin with four frames of 84 x 84.

    Rewards are their signs, and each life is an episode of the training.
    """
    section: dict[str, Any] = {
        "wrappers": [f"{_ATARI_WRAPPERS}:AtariWrapper", {FRAME_STACK: {"n_stack": 4}}]
    }
    if "NoFrameskip" not in environment:
        # The wrapper repeats actions: those of the environment itself would come on top.
        section["kwargs"] = {"frameskip": 1}
    return {
        "environment": section | ({"n_envs": 8} if on_policy else {}),
        # The mode of a policy may wait for ever; the Zoo evaluates Atari by samples too.
        "trainer": {"kwargs": {"deterministic": False}},
        # Whole games, thousands of frames long.
        "fidelity": {"steps": _WHOLE_RUN, "episodes": 10},
    }


def _box2d(environment: str, on_policy: bool) -> dict[str, Any]:
    section: dict[str, Any] = {}
    if "CarRacing" in environment:
        section["wrappers"] = [
            {f"{_ATARI_WRAPPERS}:WarpFrame": {"width": 64, "height": 64}},
            {FRAME_STACK: {"n_stack": 2}},
        ]
    if on_policy:
        section["n_envs"] = 16
    if on_policy and "BipedalWalker" in environment:
        section["normalize"] = True
    return {"environment": section, "fidelity": {"steps": _WHOLE_RUN}}


def _mujoco(environment: str, on_policy: bool) -> dict[str, Any]:
    section: dict[str, Any] = {"normalize": True} if on_policy else {}
    return {"environment": section, "fidelity": {"steps": _WHOLE_RUN}}


def _minigrid(environment: str, on_policy: bool) -> dict[str, Any]:
    """Begin with grid and mission as a vector.

    Stable-Baselines3 takes no text.
    """
    section: dict[str, Any] = {"wrappers": [_GRID_AS_VECTOR]}
    if on_policy:
        section |= {"n_envs": 8, "normalize": True}
    return {"environment": section, "fidelity": {"steps": _WHOLE_RUN}}


_MUJOCO = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
)
_BOX2D = r"(LunarLander|BipedalWalker|CarRacing)\w*"


def _log_errors_only(ale_py: Any) -> None:
    # It writes who it is to the standard error of every process.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


SUITES = (
    Suite(
        "atari", re.compile(r"ALE/.+|.+NoFrameskip-v\d+"), "ale_py", _atari, "", _log_errors_only
    ),
    Suite("box2d", re.compile(rf"{_BOX2D}-v\d+"), "Box2D", _box2d),
    Suite(
        *("mujoco", re.compile(rf"({'|'.join(_MUJOCO)})-v\d+"), "mujoco", _mujoco),
        quiet=say_warnings,
    ),
    Suite(
        *("minigrid", re.compile(r"(MiniGrid|BabyAI)-.+-v\d+"), "minigrid", _minigrid),
        wrapper=_GRID_AS_VECTOR,
    ),
)
