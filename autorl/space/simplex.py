"""Weights from 0 on whose sum is 1, as hyperparameters: `type: simplex`.

`x: {type: simplex, size: 3}` stands for the floats `x.simplex.0` and `x.simplex.1` in [0, 1], which
optimizers see. A trainer is given x, a tuple of three weights. Uniform floats make weights uniform
on the simplex: each weight is a share of what those before it leave, and with r weights after it
that share is distributed as Beta(1, r), the distribution of 1 - (1 - u) ** (1 / r).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autorl.core.numbers import check_number, is_number
from autorl.core.plain_text import shown
from autorl.core.types import Config, InputError
from autorl.space.hyperparameter import Hyperparameter

_PART = re.compile(r"(.+)\.simplex\.(\d+)")


def expand(
    name: str, size: int, default: object = None, changeable: bool = False
) -> list[Hyperparameter]:
    """Make the floats that stand for `size` weights.

    Args:
        name: of the weights.
        size: how many there are.
        default: the weights of the default configuration; None: all the same.
        changeable: as of any hyperparameter.

    Raises:
        InputError: there are fewer than two, or the default is no such weights.
    """
    key = f"hyperparameters.{name}"
    check_number(size, f"{key}.size", 2, whole=True)
    weights: Any = [1 / size] * size if default is None else default
    if (
        not isinstance(weights, list | tuple)
        or len(weights) != size
        or not all(is_number(weight, 0, 1) for weight in weights)
        or not math.isclose(sum(weights), 1, rel_tol=1e-6)
    ):
        raise InputError(
            f"expected {size} numbers from 0 on with sum 1, got {shown(default)}",
            key=f"{key}.default",
        )
    return [
        Hyperparameter.real(f"{name}.simplex.{index}", 0, 1, default=unit, changeable=changeable)
        for index, unit in enumerate(_units(weights))
    ]


def _units(weights: Sequence[float]) -> list[float]:
    """Return the floats that stand for weights."""
    units = []
    for index in range(len(weights) - 1):
        before = math.fsum(weights[index:])
        share = math.fsum(weights[index + 1 :]) / before if before else 1.0
        units.append(1 - share ** (len(weights) - 1 - index))
    return units


def with_weights(config: Config) -> Config:
    """Put weights in the place of the floats that stand for them."""
    units: dict[str, dict[int, float]] = {}
    for name, value in config.items():
        part = _PART.fullmatch(name)
        if part is not None:
            units.setdefault(part[1], {})[int(part[2])] = value
    if not units:
        return config
    beside = {name: value for name, value in config.items() if not _PART.fullmatch(name)}
    return Config(beside | {name: _weights(parts) for name, parts in units.items()})


def _weights(units: Mapping[int, float]) -> tuple[float, ...]:
    remaining = 1.0
    weights = []
    for index in range(len(units)):
        after = remaining * (1 - units[index]) ** (1 / (len(units) - index))
        weights.append(remaining - after)
        remaining = after
    return (*weights, remaining)


def whole_name(name: str) -> str:
    """Return the name of a float's weights, or the name itself."""
    part = _PART.fullmatch(name)
    return name if part is None else part[1]
