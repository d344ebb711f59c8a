"""The trainers: what runs a segment. `load` builds one from its spec; a new trainer registers one line in `_TRAINERS`.

Importing this module imports no trainer: modules and their heavy libraries are loaded by name, when first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from autorl.plain_text import did_you_mean
from autorl.types import InputError, Trainer, TrainerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPLAYING", "load", "names"]

FUNCTION_PREFIX = "python:"
REPLAYING = (
    "tabular",
    "surrogate",
)  # answer from a landscape, their option of this name, in microseconds


@dataclass(frozen=True)
class _Entry:
    """Where a trainer lives (`module:factory`, called with the spec), and the extra that brings its libraries."""

    target: str
    description: str
    extra: str | None = None
    needs: tuple[str, ...] = ()


def _sb3(description: str) -> _Entry:
    return _Entry("autorl.trainers.sb3:make", description, "sb3", ("torch", "stable_baselines3"))


def _trl(description: str) -> _Entry:
    needs = ("torch", "trl", "transformers", "datasets")
    return _Entry("autorl.trainers.trl:make", description, "rlhf", needs)


def _population(description: str) -> _Entry:
    return _Entry("autorl.trainers.population:make", description)


_TRAINERS: dict[str, _Entry] = {
    "sb3/ppo": _sb3("Stable-Baselines3 PPO on any Gymnasium environment"),
    "sb3/a2c": _sb3("Stable-Baselines3 A2C on any Gymnasium environment"),
    "sb3/dqn": _sb3("Stable-Baselines3 DQN on discrete actions"),
    "sb3/sac": _sb3("Stable-Baselines3 SAC on continuous actions"),
    "sb3/td3": _sb3("Stable-Baselines3 TD3 on continuous actions"),
    "sb3/ddpg": _sb3("Stable-Baselines3 DDPG on continuous actions"),
    "population/ppo": _population("PPO compiled, one member per thread (and A2C)"),
    "population/dqn": _population("DQN compiled: double, prioritised, or plain"),
    "population/sac": _population("SAC compiled, for continuous actions"),
    "trl/rloo": _trl("TRL's REINFORCE leave-one-out on an RLHF task"),
    "trl/grpo": _trl("TRL's GRPO and its variants (DAPO, Dr. GRPO, GSPO, CISPO) on an RLHF task"),
    "trl/ppo": _trl(
        "PPO on a language model with its details as hyperparameters, the package's own"
    ),
    "trl/dpo": _trl("TRL's DPO and its loss families on preference pairs"),
    "trl/kto": _trl("TRL's KTO on single labelled completions"),
    "trl/sft": _trl("TRL's supervised fine-tuning on the chosen completions"),
    "trl/reward": _trl("TRL's reward model on preference pairs"),
    "trl/*": _trl(
        "any other trainer of the installed TRL, looked up by name: trl/cpo, trl/orpo, trl/online_dpo"
    ),
    "command": _Entry(
        "autorl.trainers.command:make", "any script: flags or a config file in, metrics out"
    ),
    "python": _Entry("autorl.trainers.function:make", "a Python function: python:module:function"),
    "tabular": _Entry(
        "autorl.trainers.tabular:make", "replays a landscape: recorded runs instead of training"
    ),
    "surrogate": _Entry(
        "autorl.trainers.surrogate:make",
        "replays a landscape: predicted runs with seed noise",
        extra="bo",
        needs=("sklearn",),
    ),
    "synthetic": _Entry(
        "autorl.trainers.synthetic:make", "analytic learning curves with a known optimum, for tests"
    ),
}


def names() -> dict[str, str]:
    """One-line description of every trainer, by the name a study file uses."""
    return {
        f"{FUNCTION_PREFIX}module:function" if name == "python" else name: entry.description
        for name, entry in _TRAINERS.items()
    }


@lru_cache(maxsize=64)
def load(spec: TrainerSpec) -> Trainer:
    """The trainer `spec` names; built once per process and spec. Picklable by reference, for worker processes.

    Raises:
        InputError: the name is unknown, its libraries are not installed, or its options are wrong.
    """
    entry = _entry(spec.name)
    if entry is None:
        hint = did_you_mean(spec.name, names(), "`autorl trainers` lists all")
        raise InputError(f"unknown trainer {spec.name!r}{hint}", key="trainer")
    missing = [module for module in entry.needs if importlib.util.find_spec(module) is None]
    if missing:
        raise InputError(
            f'trainer {spec.name!r} needs {", ".join(missing)}: pip install "autorl[{entry.extra}]"',
            key="trainer",
        )
    module, _, factory = entry.target.partition(":")
    make: Callable[[TrainerSpec], Trainer] = getattr(importlib.import_module(module), factory)
    return make(spec)


def _entry(name: str) -> _Entry | None:
    if name.startswith(FUNCTION_PREFIX):
        return _TRAINERS["python"]
    return _TRAINERS.get(name) or (_TRAINERS["trl/*"] if name.startswith("trl/") else None)
