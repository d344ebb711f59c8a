"""Trainers by name: which there are, what they are like, and `load`.

A name is a key of `_TRAINERS`, one that another package registered under the entry point group
`autorl.trainers`, or `module:Class`. Importing this module imports no trainer.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from autorl.plain_text import did_you_mean
from autorl.plugins import Plugins
from autorl.trainers.contract import Trainer
from autorl.trainers.families import (
    FUNCTION_PREFIX,
    CommandInfo,
    ContribInfo,
    FunctionInfo,
    LookUpInfo,
    OfflineInfo,
    OwnPPOInfo,
    PopulationInfo,
    SB3Info,
    SurrogateInfo,
    SyntheticInfo,
    TRLInfo,
)
from autorl.trainers.info import TrainerInfo
from autorl.types import InputError, TrainerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = "autorl.trainers"
"""Entry points under which other packages register subclasses of `Trainer`."""


@dataclass(frozen=True)
class _Entry:
    """The place of a trainer in the code, and its description.

    `target` is `module:factory`, called with the spec.
    """

    target: str
    info: TrainerInfo


def _sb3(description: str) -> _Entry:
    return _Entry("autorl.trainers.sb3.trainer:make", SB3Info(description))


def _contrib(description: str) -> _Entry:
    return _Entry("autorl.trainers.sb3.trainer:make", ContribInfo(description))


def _offline(description: str) -> _Entry:
    return _Entry("autorl.trainers.offline.trainer:make", OfflineInfo(description))


def _population(description: str) -> _Entry:
    return _Entry("autorl.trainers.population:make", PopulationInfo(description))


def _trl(description: str) -> _Entry:
    return _Entry("autorl.trainers.trl:make", TRLInfo(description))


_TRAINERS: dict[str, _Entry] = {
    "sb3/ppo": _sb3("Stable-Baselines3 PPO on any Gymnasium environment"),
    "sb3/a2c": _sb3("Stable-Baselines3 A2C on any Gymnasium environment"),
    "sb3/dqn": _sb3("Stable-Baselines3 DQN on discrete actions"),
    "sb3/sac": _sb3("Stable-Baselines3 SAC on continuous actions"),
    "sb3/td3": _sb3("Stable-Baselines3 TD3 on continuous actions"),
    "sb3/ddpg": _sb3("Stable-Baselines3 DDPG on continuous actions"),
    "sb3/tqc": _contrib("sb3-contrib TQC (truncated quantile critics) on continuous actions"),
    "sb3/qrdqn": _contrib("sb3-contrib QR-DQN (quantile regression) on discrete actions"),
    "sb3/crossq": _contrib("sb3-contrib CrossQ (no target networks) on continuous actions"),
    "sb3/trpo": _contrib("sb3-contrib TRPO on any Gymnasium environment"),
    "sb3/recurrent_ppo": _contrib("sb3-contrib PPO with an LSTM on any Gymnasium environment"),
    "sb3/maskable_ppo": _contrib("sb3-contrib PPO where the environment says which actions count"),
    "offline/bc": _offline("behaviour cloning of a Minari data set"),
    "offline/iql": _offline("implicit Q-learning on a Minari data set"),
    "population/ppo": _population("PPO compiled, one member per thread (and A2C)"),
    "population/a2c": _population("A2C compiled, with RMSprop or Adam"),
    "population/dqn": _population("DQN compiled: double, prioritised, or plain"),
    "population/sac": _population("SAC compiled, for continuous actions"),
    "population/td3": _population("TD3 compiled, for continuous actions"),
    "population/ddpg": _population("DDPG compiled, for continuous actions"),
    "rlhf/ppo": _Entry(
        "autorl.trainers.rlhf.ppo:make",
        OwnPPOInfo(
            "PPO on a language model with its details as hyperparameters, the package's own"
        ),
    ),
    "trl/rloo": _trl("TRL's REINFORCE leave-one-out on an RLHF task"),
    "trl/grpo": _trl("TRL's GRPO and its variants (DAPO, Dr. GRPO, GSPO, CISPO) on an RLHF task"),
    "trl/dpo": _trl("TRL's DPO and its loss families on preference pairs"),
    "trl/kto": _trl("TRL's KTO on single labelled completions"),
    "trl/sft": _trl("TRL's supervised fine-tuning on the chosen completions"),
    "trl/reward": _trl("TRL's reward model on preference pairs"),
    # Looked up in the installed TRL, whose list of trainers differs between versions.
    "trl/*": _trl(
        "any other trainer of the installed TRL, looked up by name: "
        "trl/cpo, trl/orpo, trl/online_dpo"
    ),
    "command": _Entry("autorl.trainers.command:make", CommandInfo()),
    "python": _Entry("autorl.trainers.trial_function:make", FunctionInfo()),
    "tabular": _Entry(
        "autorl.trainers.tabular:make",
        LookUpInfo("replays a landscape: recorded runs instead of training"),
    ),
    "surrogate": _Entry(
        "autorl.trainers.surrogate:make",
        SurrogateInfo("replays a landscape: predicted runs with seed noise"),
    ),
    "synthetic": _Entry("autorl.trainers.synthetic:make", SyntheticInfo()),
}


ALIASES = {"trl/ppo": "rlhf/ppo"}
"""Earlier names of trainers, which studies, spaces and landscapes keep."""


def names() -> dict[str, str]:
    """One-line description of every trainer, by the name a study file uses."""
    described = {
        f"{FUNCTION_PREFIX}module:function" if name == "python" else name: entry.info.description
        for name, entry in _TRAINERS.items()
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
    """What a trainer of this name is like.

    Of one that is unknown or cannot be imported nothing is known: a study of it can still be looked
    at where it is not installed, and `load` says what is wrong.

    Args:
        name: as in a study file.
        folder: where a class of the user's may lie besides what is installed.
    """
    entry = _entry(name)
    if entry is not None:
        return entry.info
    try:
        trainer = _PLUGINS.find(name, folder)
    except InputError:
        trainer = None
    return TrainerInfo() if trainer is None else trainer.info


def installed_info(name: str) -> TrainerInfo:
    """What a trainer of this name is like, where it is installed.

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
    info(spec.name).check_installed(spec.name)
    entry = _entry(spec.name)
    if entry is not None:
        module, _, factory = entry.target.partition(":")
        make: Callable[[TrainerSpec], Trainer] = getattr(importlib.import_module(module), factory)
        return make(spec)
    trainer = _PLUGINS.find(spec.name)
    if trainer is None:
        hint = did_you_mean(spec.name, names(), "`autorl trainers` lists all")
        raise InputError(f"unknown trainer {spec.name!r}{hint}", key="trainer")
    return trainer(spec)


def _entry(name: str) -> _Entry | None:
    """The entry of a trainer of this package."""
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
