"""Trainers by name: which there are, what they are like, and `load`.

A name is a key of `_TRAINERS`, one that another package registered under the entry point group
`autorl.trainers`, or `module:Class`. Importing this module imports no trainer.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import get_type_hints

from autorl.core.plain_text import did_you_mean
from autorl.core.plugins import Plugins
from autorl.core.types import InputError, TrainerSpec
from autorl.trainers.contract import Trainer
from autorl.trainers.families import (
    FUNCTION_PREFIX,
    CommandInfo,
    ContribInfo,
    FunctionInfo,
    LookUpInfo,
    MergeInfo,
    OfflineInfo,
    OwnPPOInfo,
    PopulationInfo,
    SB3Info,
    SurrogateInfo,
    SyntheticInfo,
    TRLInfo,
)
from autorl.trainers.info import TrainerInfo

GROUP = "autorl.trainers"
"""Entry points under which other packages register subclasses of `Trainer`."""


_TRAINERS: dict[str, TrainerInfo] = {
    "sb3/ppo": SB3Info("Stable-Baselines3 PPO on any Gymnasium environment"),
    "sb3/a2c": SB3Info("Stable-Baselines3 A2C on any Gymnasium environment"),
    "sb3/dqn": SB3Info("Stable-Baselines3 DQN on discrete actions"),
    "sb3/sac": SB3Info("Stable-Baselines3 SAC on continuous actions"),
    "sb3/td3": SB3Info("Stable-Baselines3 TD3 on continuous actions"),
    "sb3/ddpg": SB3Info("Stable-Baselines3 DDPG on continuous actions"),
    "sb3/tqc": ContribInfo("sb3-contrib TQC (truncated quantile critics) on continuous actions"),
    "sb3/qrdqn": ContribInfo("sb3-contrib QR-DQN (quantile regression) on discrete actions"),
    "sb3/crossq": ContribInfo("sb3-contrib CrossQ (no target networks) on continuous actions"),
    "sb3/trpo": ContribInfo("sb3-contrib TRPO on any Gymnasium environment"),
    "sb3/recurrent_ppo": ContribInfo("sb3-contrib PPO with an LSTM on any Gymnasium environment"),
    "sb3/maskable_ppo": ContribInfo(
        "sb3-contrib PPO where the environment says which actions count"
    ),
    "offline/bc": OfflineInfo("behaviour cloning of a Minari data set"),
    "offline/iql": OfflineInfo("implicit Q-learning on a Minari data set"),
    "population/ppo": PopulationInfo("PPO compiled, one member per thread (and A2C)"),
    "population/a2c": PopulationInfo("A2C compiled, with RMSprop or Adam"),
    "population/dqn": PopulationInfo("DQN compiled: double, prioritised, or plain"),
    "population/sac": PopulationInfo("SAC compiled, for continuous actions"),
    "population/td3": PopulationInfo("TD3 compiled, for continuous actions"),
    "population/ddpg": PopulationInfo("DDPG compiled, for continuous actions"),
    "rlhf/ppo": OwnPPOInfo(
        "PPO on a language model with its details as hyperparameters, the package's own"
    ),
    "rlhf/merge": MergeInfo("language models put together by their weights (slerp, average; WARP)"),
    "trl/rloo": TRLInfo("TRL's REINFORCE leave-one-out on an RLHF task"),
    "trl/grpo": TRLInfo(
        "TRL's GRPO and its variants (DAPO, Dr. GRPO, GSPO, CISPO) on an RLHF task"
    ),
    "trl/dpo": TRLInfo("TRL's DPO and its loss families on preference pairs"),
    "trl/kto": TRLInfo("TRL's KTO on single labelled completions"),
    "trl/sft": TRLInfo("TRL's supervised fine-tuning on the chosen completions"),
    "trl/raft": TRLInfo("TRL's SFT on the best of n completions of the policy (RAFT, best-of-n)"),
    "trl/iterated_dpo": TRLInfo(
        "TRL's DPO on the best and the worst of n completions of the policy"
    ),
    "trl/reward": TRLInfo("TRL's reward model on preference pairs"),
    # Looked up in the installed TRL, whose list of trainers differs between versions.
    "trl/*": TRLInfo(
        "any other trainer of the installed TRL, looked up by name: "
        "trl/cpo, trl/orpo, trl/online_dpo"
    ),
    "command": CommandInfo(),
    "python": FunctionInfo(),
    "tabular": LookUpInfo("replays a landscape: recorded runs instead of training"),
    "surrogate": SurrogateInfo("replays a landscape: predicted runs with seed noise"),
    "synthetic": SyntheticInfo(),
}


REPLAY = "tabular"
"""The trainer that answers by recorded runs."""
ALIASES = {"trl/ppo": "rlhf/ppo"}
"""Earlier names of trainers, which studies, spaces and landscapes keep."""


def names() -> dict[str, str]:
    """One-line description of every trainer, by the name a study file uses."""
    described = {
        f"{FUNCTION_PREFIX}module:function" if name == "python" else name: about.description
        for name, about in _TRAINERS.items()
    }
    for alias, name in ALIASES.items():
        described[name] += f" (also {alias}, its earlier name)"
    for name, point in _PLUGINS.registered().items():
        try:
            text = _PLUGINS.load(point).info.description or f"of {point.value}"
        except InputError as error:  # one broken package must not hide all others
            text = error.message.removeprefix(f"{point.name!r} ")
        described[name] = text
    return described


def info(name: str, folder: str | None = None) -> TrainerInfo:
    """Describe the trainer of this name.

    An unknown trainer, or a trainer that cannot be imported, has an empty description: a study of
    it can still be looked at where it is not installed, and `load` says what is wrong.

    Args:
        name: as in a study file.
        folder: where a class of the user's may lie besides what is installed.
    """
    entry = _entry(name)
    if entry is not None:
        return entry
    try:
        trainer = _PLUGINS.find(name, folder)
    except InputError:
        trainer = None
    return TrainerInfo() if trainer is None else trainer.info


def installed_info(name: str) -> TrainerInfo:
    """Describe the trainer of this name, where it is installed.

    A class that only a study file names is not imported: for readers of studies that may be
    anybody's.
    """
    # Importing would run the code of whoever wrote the study file.
    if _entry(name) is None and name not in _PLUGINS.registered():
        return TrainerInfo()
    return info(name)


# Shared by the segments of a process: trainers keep no state between calls.
@lru_cache(maxsize=64)
def load(spec: TrainerSpec) -> Trainer:
    """The trainer that `spec` names, built once per process and spec.

    Picklable by reference, for worker processes.

    Raises:
        InputError: the name is unknown, its libraries are not installed, or its options are wrong.
    """
    return _maker(spec.name)(spec)


def documentation(name: str, folder: str | None = None) -> str:
    """Return what a trainer's class says of its options.

    Raises:
        InputError: the name is unknown, or its libraries are not installed.
    """
    make = _maker(name, folder)
    return inspect.getdoc(make if inspect.isclass(make) else get_type_hints(make)["return"]) or ""


def _maker(name: str, folder: str | None = None) -> Callable[[TrainerSpec], Trainer]:
    """The class or function that makes a trainer of its options."""
    info(name, folder).check_installed(name)
    entry = _entry(name)
    if entry is not None:
        module, _, factory = entry.target.partition(":")
        make: Callable[[TrainerSpec], Trainer] = getattr(importlib.import_module(module), factory)
        return make
    trainer = _PLUGINS.find(name, folder)
    if trainer is None:
        hint = did_you_mean(name, names(), "`autorl list trainers` lists all")
        raise InputError(f"unknown trainer {name!r}{hint}", key="trainer")
    return trainer


def _entry(name: str) -> TrainerInfo | None:
    """The description of a trainer of this package."""
    if name.startswith(FUNCTION_PREFIX):
        return _TRAINERS["python"]
    name = ALIASES.get(name, name)
    return _TRAINERS.get(name) or (_TRAINERS["trl/*"] if name.startswith("trl/") else None)


def _flaw(trainer: type[Trainer]) -> str:
    return "does not define train" if trainer.train is Trainer.train else ""


_PLUGINS = Plugins(
    GROUP,
    Trainer,
    ("trainer", "autorl.trainers.Trainer"),
    key="trainer",
    reserved=lambda name: _entry(name) is not None,
    flaw=_flaw,
)
