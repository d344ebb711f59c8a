"""Hyperparameters as the kernels see them: one record of numbers per member.

It is built from a configuration and read back.

An algorithm's page lists its hyperparameters as `Setting`s in the order of the record, and nothing
else lists them: a `Setting` says what Stable-Baselines3 and a special case of the algorithm make of
it too. Names and defaults are those of Stable-Baselines3 where it has them. A scheduled one takes
three fields: `x` (value at step 0), `x_end`, `x_shape`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from autorl.core.plain_text import one_of
from autorl.core.types import FrozenMap, InputError
from autorl.population.kernels import kernel
from autorl.space.schedules import schedule_function

CONSTANT = 0
LINEAR = 1
COSINE = 2
EXPONENTIAL = 3
STEP = 4
WARMUP = 5
# One record of an algorithm (`record_type`). To NumPy it is an `np.void`, whose fields mypy cannot
# know; in a kernel it is a structure.
Record: TypeAlias = Any
SHAPES = {
    **{"constant": CONSTANT, "linear": LINEAR, "cosine": COSINE},
    **{"exponential": EXPONENTIAL, "step": STEP, "warmup": WARMUP},
}
Place = Literal["argument", "function", "later", "policy", "noise", "model"]


@dataclass(frozen=True)
class Fixed:
    """The number of a special case that lacks the hyperparameter."""

    number: float


@dataclass(frozen=True)
class Setting:
    """One hyperparameter of an algorithm.

    Attributes:
        default: its value where the configuration says nothing.
        lower, upper: the allowed range, bounds included.
        change: how a continued run may change it (`Trainer.changes`); None = it may not.
        scheduled: may follow a schedule over the horizon.
        codes: the allowed words and the numbers that stand for them in the record.
        special: a word among numbers and what stands for it in the record; the word "none" may also
            be given as None.
        integral: whether it is whole although its default is a word.
        sb3: where Stable-Baselines3 has it: an `argument` of the constructor, one that may be a
            `function`, one of `later` versions, left out at its default, an argument of the
            `policy`, a part of `action_noise`, or what the `model` is built of. If it has no
            place, None, or arguments that do the same wherever it is not its default.
        sb3_note: what else an export says of it.
        case: what the special case of the algorithm has (A2C of PPO, DDPG of TD3): another default,
            or a `Fixed` number; None: the same.
    """

    default: Any
    lower: float = -math.inf
    upper: float = math.inf
    change: Literal["apply", "rebuild"] | None = "apply"
    scheduled: bool = False
    codes: Mapping[str, int] | None = None
    special: tuple[str, float] | None = None
    integral: bool = False
    sb3: Place | Mapping[str, Any] | None = "argument"
    sb3_note: str = ""
    case: Any = None

    @property
    def whole(self) -> bool:
        """Whether it is an integer, flag or word, kept as int64."""
        return self.codes is not None or self.integral or isinstance(self.default, int)

    def encode(self, name: str, value: object) -> float | int:
        """Return the number that stands for `value` in the record.

        Raises:
            InputError: it is not a value of this hyperparameter.
        """
        word = "none" if value is None else value
        if self.special is not None and word == self.special[0]:
            return self.special[1]
        if self.codes is not None:
            if not isinstance(value, str) or value not in self.codes:
                raise InputError(
                    f"expected one of {', '.join(self.codes)}, got {value!r}", key=name
                )
            return self.codes[value]
        if isinstance(self.default, bool):
            if not isinstance(value, bool | np.bool_):
                raise InputError(f"expected true or false, got {value!r}", key=name)
            return int(value)
        # To Python True is an int: a flag where a number belongs would pass.
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise InputError(f"expected a number, got {value!r}", key=name)
        if not self.lower <= value <= self.upper:
            raise InputError(
                f"expected a value in [{self.lower}, {self.upper}], got {value}", key=name
            )
        if self.whole and value != int(value):
            raise InputError(f"expected a whole number, got {value}", key=name)
        return int(value) if self.whole else float(value)

    def decode(self, number: float) -> Any:
        """Return the value that `number` stands for, the inverse of `encode`."""
        if self.special is not None and number == self.special[1]:
            return self.special[0]
        if self.codes is not None:
            return next(word for word, code in self.codes.items() if code == number)
        if isinstance(self.default, bool):
            return bool(number)
        return int(number) if self.whole else float(number)


Settings = Mapping[str, Setting]


def record_type(settings: Settings) -> np.dtype[Any]:
    """Make the structured type of an algorithm's record.

    `horizon` is always its first field.
    """
    fields: list[tuple[str, type]] = [("horizon", np.float64)]
    for name, setting in settings.items():
        fields += _fields(name, setting)
    return np.dtype(fields)


def _fields(name: str, setting: Setting) -> list[tuple[str, type]]:
    fields: list[tuple[str, type]] = [(name, np.int64 if setting.whole else np.float64)]
    if setting.scheduled:
        fields += [(f"{name}_end", np.float64), (f"{name}_shape", np.int64)]
    return fields


def of_case(settings: Settings) -> Settings:
    """Return the hyperparameters of an algorithm's special case."""
    return {
        name: setting if setting.case is None else replace(setting, default=setting.case, case=None)
        for name, setting in settings.items()
        if not isinstance(setting.case, Fixed)
    }


def record(settings: Settings, config: Mapping[str, Any], horizon: int) -> Any:
    """Make the record of one configuration.

    A hyperparameter that it leaves out takes the default.

    Raises:
        InputError: a name or a value is not one of the algorithm's.
    """
    check_names(settings, config)
    values = np.zeros(1, record_type(settings))
    values["horizon"] = horizon
    for name, setting in settings.items():
        values[name] = setting.encode(name, config.get(name, setting.default))
        if setting.scheduled:
            shape = config.get(f"{name}.shape", "constant")
            parts = {name: values[name].item(), f"{name}.shape": shape}
            if f"{name}.end" in config:
                parts[f"{name}.end"] = setting.encode(f"{name}.end", config[f"{name}.end"])
            schedule_function(parts, name)  # for its errors
            values[f"{name}_shape"] = SHAPES[shape]
            values[f"{name}_end"] = parts.get(f"{name}.end", parts[name])
    # As a record its fields are attributes in Python too, where kernels run for debugging.
    return values.view(np.recarray)[0]


def converted(hp: Record, settings: Settings, own: Mapping[str, float] = FrozenMap()) -> Record:
    """Return the record of an algorithm that trains as its special case.

    Args:
        hp: of the special case.
        settings: of the algorithm.
        own: fields that follow from hyperparameters which only the special case has.
    """
    made = np.zeros(1, record_type(settings))
    made["horizon"] = hp["horizon"]
    for name, setting in settings.items():
        if isinstance(setting.case, Fixed):
            # Constant: the end of a schedule is never read.
            made[name] = own.get(name, setting.case.number)
        else:
            for field, _ in _fields(name, setting):
                made[field] = hp[field]
    return made.view(np.recarray)[0]


def check_names(settings: Settings, names: Collection[str]) -> None:
    """Check that every name is a hyperparameter of the algorithm.

    Raises:
        InputError: the first name that is none.
    """
    scheduled = {
        f"{name}.{part}"
        for name, setting in settings.items()
        if setting.scheduled
        for part in ("shape", "end")
    }
    allowed = [*settings, *scheduled]
    for name in names:
        if name not in allowed:
            hint = one_of(name, allowed)
            raise InputError(f"unknown hyperparameter{hint}", key=name)


def read_back(
    settings: Settings, values: Record, config: Collection[str], step: int
) -> dict[str, Any]:
    """Read from a record what it holds for each hyperparameter of `config`.

    Schedules are read at `step`.
    """
    return {
        name: value_at(setting, name, values, step)
        for name, setting in settings.items()
        if name in config
    }


def value_at(setting: Setting, name: str, values: Record, step: int) -> Any:
    """Read a hyperparameter from a record, a scheduled one at `step`."""
    if not setting.scheduled or values[f"{name}_shape"] == CONSTANT:
        return setting.decode(values[name])
    shape = int(values[f"{name}_shape"])
    progress = float(step / values["horizon"])
    return float(scheduled(float(values[name]), float(values[f"{name}_end"]), shape, progress))


@kernel
def scheduled(start: float, end: float, shape: int, progress: float) -> float:
    """Return the value of a scheduled hyperparameter.

    It is taken at progress = step / horizon, clipped to [0, 1].
    """
    if shape == CONSTANT:
        return start  # also where it is infinite: an infinite clip range clips nothing
    progress = min(max(progress, 0.0), 1.0)
    if shape == EXPONENTIAL:
        return math.pow(start, 1.0 - progress) * math.pow(end, progress)
    done = progress
    if shape == COSINE:
        done = 0.5 * (1.0 - math.cos(math.pi * progress))
    elif shape == STEP:
        done = 1.0 if progress >= 0.5 else 0.0
    elif shape == WARMUP:
        done = max(1.0 - progress / 0.1, (progress - 0.1) / 0.9)
    # Exact at both ends, and as `space.schedules` has it.
    return (1.0 - done) * start + done * end
