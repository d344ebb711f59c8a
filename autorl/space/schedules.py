"""Schedules of a hyperparameter over training.

They are functions of step / horizon, never of where a run was cut. `schedule: [constant, linear]`
on a float hyperparameter x adds a categorical `x.shape` and, active only when the shape is not
constant, a float `x.end` with the bounds and scale of x. `x` itself is the value at step 0, of
`warmup` after a tenth of the horizon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from autorl.core.plain_text import shown
from autorl.core.types import InputError
from autorl.space.hyperparameter import Hyperparameter

Shape: TypeAlias = Callable[[float, float, float], float]
"""The value for the values at step 0 and at the horizon, and the progress."""


def _between(done: Callable[[float], float]) -> Shape:
    def value(start: float, end: float, progress: float) -> float:
        share = done(progress)
        # Exact at both ends: 3e-4 + 1 * (1e-5 - 3e-4) is not 1e-5.
        return (1.0 - share) * start + share * end

    return value


# The cosine is that of Loshchilov and Hutter (2017, SGDR), equation 5, without restarts. No
# function that has a name here: cloudpickle saves others by value, for models that load without us.
SHAPES: Mapping[str, Shape] = {
    "constant": _between(lambda progress: 0.0),
    "linear": _between(lambda progress: progress),
    "cosine": _between(lambda progress: 0.5 * (1.0 - math.cos(math.pi * progress))),
    "exponential": lambda start, end, progress: start ** (1.0 - progress) * end**progress,
    "step": _between(lambda progress: float(progress >= 0.5)),
    "warmup": _between(lambda progress: max(1.0 - progress / 0.1, (progress - 0.1) / 0.9)),
}
"""`exponential` has the same ratio everywhere, `step` is the end from half of the horizon on, and
`warmup` rises from the end to the start in the first tenth, then falls in a line."""


def expand(
    hyperparameter: Hyperparameter, shapes: Sequence[object]
) -> tuple[list[Hyperparameter], dict[str, str]]:
    """Add `x.shape` and `x.end` to the hyperparameter x.

    The default shape is the first in the list; a single shape is a constant. `x.end` has the lower
    bound of x as its default, the usual end of a decay, and is changeable if x is.

    Returns:
        x and its helpers, and the condition of `x.end` by its name.

    Raises:
        InputError: not a float, an unknown or repeated shape, no shape.
    """
    name = hyperparameter.name
    key = f"hyperparameters.{name}.schedule"
    if hyperparameter.type != "float":
        raise InputError(
            "only float hyperparameters can have a schedule, "
            f"{shown(name)} is {hyperparameter.type}",
            key=key,
        )
    unknown = [shape for shape in shapes if shape not in SHAPES]
    if unknown or not shapes or len(set(shapes)) < len(shapes):
        raise InputError(
            f"expected distinct shapes among {', '.join(SHAPES)}, got {list(shapes)}", key=key
        )
    if list(shapes) == ["constant"]:
        return [hyperparameter], {}
    lower, upper = hyperparameter.bounds
    if "exponential" in shapes and lower <= 0:
        raise InputError(f"exponential needs a lower bound above 0, got {lower:g}", key=key)
    end = Hyperparameter.real(
        f"{name}.end",
        lower,
        upper,
        scale=hyperparameter.scale,
        default=lower,
        changeable=hyperparameter.changeable,
    )
    if len(shapes) == 1:
        return [hyperparameter, Hyperparameter.constant(f"{name}.shape", shapes[0]), end], {}
    condition = {f"{name}.end": f"{name}.shape != constant"} if "constant" in shapes else {}
    return [hyperparameter, Hyperparameter.categorical(f"{name}.shape", shapes), end], condition


def schedule_function(config: Mapping[str, Any], name: str) -> Callable[[float], float]:
    """Return the value of hyperparameter `name` as a function of progress.

    Progress is step / horizon, clipped to [0, 1].

    Raises:
        InputError: an unknown shape, no `.end` for one that needs it, or an exponential one not
            between numbers above 0.
    """
    start = config[name]
    shape = config.get(f"{name}.shape", "constant")
    if shape not in SHAPES:
        raise InputError(
            f"expected one of {', '.join(SHAPES)}, got {shown(shape)}", key=f"{name}.shape"
        )
    if shape == "constant":
        return lambda progress: float(start)
    if f"{name}.end" not in config:
        raise InputError(f"the shape {shape} needs a final value", key=f"{name}.end")
    end = config[f"{name}.end"]
    if shape == "exponential" and not min(start, end) > 0:
        raise InputError(
            f"exponential goes between numbers above 0, got {start} and {end}", key=f"{name}.shape"
        )
    value = SHAPES[shape]
    return lambda progress: float(value(start, end, min(1.0, max(0.0, progress))))


def remaining_schedule(start: float, end: float, shape: str) -> Callable[[float], float]:
    """Return a schedule as Stable-Baselines3 calls it.

    It is a function of the progress that remains: 1 at step 0 and 0 at the horizon. A model saved
    with it loads without this package.
    """
    if shape == "linear":
        from stable_baselines3.common.utils import LinearSchedule

        linear: Callable[[float], float] = LinearSchedule(start, end, 1.0)
        return linear
    value = SHAPES[shape]
    return lambda remaining: value(start, end, 1.0 - remaining)


def resolve_schedules(config: Mapping[str, object], step: int, horizon: int) -> dict[str, Any]:
    """Return the hyperparameters at `step` of `horizon`, both in steps of training.

    Scheduled ones have their value there, and `.shape` and `.end` are dropped.

    Raises:
        InputError: the horizon is not positive, or as for `schedule_function`.
    """
    if horizon <= 0:
        raise InputError(f"the horizon of a schedule is positive, got {horizon}", key="horizon")
    scheduled = [name for name in config if f"{name}.shape" in config]
    helpers = {f"{name}{suffix}" for name in scheduled for suffix in (".shape", ".end")}
    resolved = {name: value for name, value in config.items() if name not in helpers}
    return resolved | {name: schedule_function(config, name)(step / horizon) for name in scheduled}
