"""Gymnasium spaces as plain data.

They say what an agent observes and does, without its environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

_KINDS: dict[str, Any] = {
    "Box": gym.spaces.Box,
    "Discrete": gym.spaces.Discrete,
    "MultiDiscrete": gym.spaces.MultiDiscrete,
    "MultiBinary": gym.spaces.MultiBinary,
    "Dict": gym.spaces.Dict,
}


def space_as_data(space: gym.Space[object]) -> dict[str, Any]:
    """Write a space that Stable-Baselines3 takes as plain data.

    Raises:
        ValueError: it is of another kind.
    """
    kind = next(
        (name for name, kind in _KINDS.items() if isinstance(space, kind)), type(space).__name__
    )
    return attributes_as_data(kind, space, space_as_data)


def parts_that_do_not_fit(space: gym.Space[object]) -> list[str]:
    """Name the parts of a dictionary that Stable-Baselines3 has no network for.

    Text, for instance, or a dictionary in it: as `KIND (name)`.
    """
    if not isinstance(space, gym.spaces.Dict):
        return []
    fitting = tuple(kind for name, kind in _KINDS.items() if name != "Dict")
    return [
        f"{type(part).__name__} ({name})"
        for name, part in space.spaces.items()
        if not isinstance(part, fitting)
    ]


def attributes_as_data(
    kind: str, space: Any, part_as_data: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """Write the attributes that define a space of a kind.

    The kind is `Box`, for instance. `part_as_data` is called for spaces in it.
    """
    match kind:
        case "Box":
            return {"kind": kind, "low": space.low, "high": space.high, "dtype": str(space.dtype)}
        case "Discrete":
            return {"kind": kind, "n": int(space.n), "start": int(space.start)}
        case "MultiDiscrete":
            return {
                "kind": kind,
                "nvec": space.nvec,
                "start": space.start,
                "dtype": str(space.dtype),
            }
        case "MultiBinary":
            # A number, or the sizes of several axes.
            n = space.n
            return {
                "kind": kind,
                "n": int(n) if np.ndim(n) == 0 else [int(size) for size in np.ravel(n)],
            }
        case "Dict":
            return {
                "kind": kind,
                "spaces": {name: part_as_data(part) for name, part in space.spaces.items()},
            }
    raise ValueError(f"Stable-Baselines3 takes no {kind} space")


def space_from_data(data: Mapping[str, Any]) -> gym.Space[Any]:
    """Make the space that `space_as_data` wrote.

    Raises:
        ValueError: it is none.
    """
    match data["kind"]:
        case "Box":
            return gym.spaces.Box(data["low"], data["high"], dtype=_number_type(data["dtype"]))
        case "Discrete":
            return gym.spaces.Discrete(data["n"], start=data["start"])
        case "MultiDiscrete":
            kind = _number_type(data["dtype"])
            return gym.spaces.MultiDiscrete(data["nvec"], dtype=kind, start=data["start"])
        case "MultiBinary":
            return gym.spaces.MultiBinary(data["n"])
        case "Dict":
            return gym.spaces.Dict(
                {name: space_from_data(part) for name, part in data["spaces"].items()}
            )
    raise ValueError(f"unknown kind of space {data['kind']!r}")


def _number_type(name: str) -> Any:
    kind = np.dtype(name)
    # A checkpoint of somebody else may name any type, that of objects too.
    if kind.kind not in "biuf":
        raise ValueError(f"expected a type of numbers, got {name!r}")
    return kind.type
