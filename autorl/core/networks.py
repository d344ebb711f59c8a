"""The size of a plain network, from hyperparameters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from autorl.core.numbers import is_number

_INPUTS = 8  # and outputs of a network, which only the environment knows


def layers_of(values: Mapping[str, object], layers: Sequence[int] = ()) -> list[int]:
    """Return the hidden layers that `net_arch`, or `net_width` and `net_depth` say.

    Args:
        values: hyperparameters by name.
        layers: where they say nothing.
    """
    arch = values.get("net_arch")
    if isinstance(arch, Mapping):  # one for the policy, one for the values
        arch = next(iter(arch.values()), None)
    if isinstance(arch, list | tuple) and all(isinstance(width, int) for width in arch):
        layers = arch
    if "net_width" in values or "net_depth" in values:
        width = int(positive(values, "net_width", layers[0] if layers else 64))
        layers = [width] * int(positive(values, "net_depth", len(layers)))
    return list(layers)


def network_weights(layers: Sequence[int]) -> float:
    """Count the weights of a network: the multiply-adds of one sample."""
    widths = [_INPUTS, *layers, _INPUTS]
    return float(sum(before * after for before, after in pairwise(widths)))


def positive(values: Mapping[str, object], name: str, otherwise: float) -> float:
    """Return a hyperparameter that is a positive number.

    `otherwise` where it is missing or no positive number.
    """
    value: Any = values.get(name)
    return float(value) if is_number(value, sys.float_info.min) else otherwise
