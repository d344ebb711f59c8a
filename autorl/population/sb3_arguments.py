"""Translates hyperparameters into arguments of Stable-Baselines3's constructor.

All of a member are translated, defaults included.

Nothing of Stable-Baselines3 is imported here: values are numbers, words and `Schedule`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autorl.population.descent import RMSPROP, RMSPROP_ALPHA
from autorl.population.engine import Algorithm
from autorl.population.hyperparameters import CONSTANT, SHAPES, Record, Setting, value_at
from autorl.population.networks import hidden_widths


@dataclass(frozen=True)
class Schedule:
    """A hyperparameter that changes from `start` to `end`.

    Shapes are those of `space.schedules`.
    """

    start: float
    end: float
    shape: str


@dataclass(frozen=True)
class SB3Arguments:
    """Arguments to build a Stable-Baselines3 model that trains as the member did.

    Attributes:
        constructor: its arguments by name, `policy`, `env` and `policy_kwargs` apart.
        net_arch: sizes of the hidden layers.
        activation: `tanh` or `relu`.
        optimizer: name of the class in `torch.optim`, and its arguments, the learning rate apart.
        n_envs: environments trained side by side: of the vectorised environment, no argument of the
            constructor.
        notes: what Stable-Baselines3 has no place for, in words.
        policy: further arguments of the policy.
        noise: `noise_type` and `noise_std` of RL Baselines3 Zoo, which stand for the object
            `action_noise`; empty where there is no noise.
    """

    constructor: Mapping[str, Any]
    net_arch: list[int]
    activation: str
    optimizer: tuple[str, Mapping[str, float]]
    n_envs: int
    notes: tuple[str, ...]
    policy: Mapping[str, Any] = field(default_factory=dict)
    noise: Mapping[str, Any] = field(default_factory=dict)


def sb3_arguments(algorithm: Algorithm, hp: Record, step: int = 0) -> SB3Arguments:
    """Translate a record of an algorithm into arguments.

    A schedule SB3 cannot follow is at its value of `step`.
    """
    places: dict[str, dict[str, Any]] = {
        place: {} for place in ("constructor", "policy", "noise", "model")
    }
    notes = []
    for name, setting in algorithm.settings.items():
        value, schedule_note = _value(name, setting, hp, step)
        place = setting.sb3
        if isinstance(place, str):
            notes += schedule_note
            if place != "later" or value != setting.default:
                places.get(place, places["constructor"])[name] = None if value == "none" else value
        elif value != setting.default:
            more = f": {setting.sb3_note}" if setting.sb3_note else ""
            notes.append(f"Stable-Baselines3 has no {name}={value!r}{more}")
            places["constructor"] |= place or {}
    noise = places["noise"]
    trained = algorithm.as_general(hp)
    optimizer: tuple[str, dict[str, float]] = ("Adam", {})
    if "optimizer" in trained.dtype.names and trained.optimizer == RMSPROP:
        optimizer = ("RMSprop", {"alpha": RMSPROP_ALPHA})
    optimizer[1]["eps"] = float(trained.optimizer_eps)
    return SB3Arguments(
        constructor=places["constructor"],
        net_arch=list(hidden_widths(int(hp["net_width"]), int(hp["net_depth"]))),
        activation=places["model"]["activation"],
        optimizer=optimizer,
        n_envs=places["model"]["n_envs"],
        notes=tuple(notes),
        policy=places["policy"],
        noise=noise if noise.get("noise_std") and noise["noise_type"] else {},
    )


def _value(name: str, setting: Setting, hp: Record, step: int) -> tuple[Any, list[str]]:
    """Read a hyperparameter as Stable-Baselines3 can follow it.

    Returns it, and what is to be said of a schedule that it cannot follow.
    """
    if not setting.scheduled or hp[f"{name}_shape"] == CONSTANT:
        return setting.decode(hp[name]), []
    shape = next(word for word, code in SHAPES.items() if code == hp[f"{name}_shape"])
    end = float(hp[f"{name}_end"])
    if setting.sb3 == "function":
        return Schedule(float(hp[name]), end, shape), []
    start = setting.decode(hp[name])
    note = f"{name} went from {start!r} to {end!r} ({shape}), Stable-Baselines3 keeps it constant"
    return value_at(setting, name, hp, step), [note]
