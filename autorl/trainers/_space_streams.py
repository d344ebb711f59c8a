"""Random streams of Gymnasium's spaces, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym


def space_state(space: gym.Space[object]) -> list[Any]:
    """Return the states of the generators a Gymnasium space samples from.

    There is one for each simple space in it.
    """
    return [part.np_random.bit_generator.state for part in simple_spaces(space)]


def set_space_state(
    space: gym.Space[object], states: list[dict[str, object]] | dict[str, object]
) -> None:
    parts = list(simple_spaces(space))
    # Earlier versions saved one state, of no use for a space made of others.
    if isinstance(states, dict):
        states = [states] if parts == [space] else []
    for part, state in zip(parts, states, strict=False):
        part.np_random.bit_generator.state = state


def simple_spaces(space: gym.Space[object]) -> Iterator[Any]:
    """Return a space, or those it is made of.

    A `Dict` or `Tuple` draws nothing itself, and asking it for its generator seeds those of its
    parts anew.
    """
    if isinstance(space, gym.spaces.Dict):
        for part in space.spaces.values():
            yield from simple_spaces(part)
    elif isinstance(space, gym.spaces.Tuple):
        for part in space.spaces:
            yield from simple_spaces(part)
    else:
        yield space
