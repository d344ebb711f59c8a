"""Random streams of a segment.

SB3 and TRL draw from the global generators of Python, NumPy and torch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray


class GlobalState(TypedDict):
    """The state of every global generator."""

    python: tuple[Any, ...]
    numpy: dict[str, Any] | tuple[str, NDArray[np.uint32], int, int, float]
    torch: torch.Tensor
    cuda: list[torch.Tensor]


def global_state() -> GlobalState:
    """Return the state of every global generator."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - SB3 samples its buffers from it
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all()
        if torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        else [],
    }


def set_global_state(state: GlobalState) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def seed_global(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


@contextmanager
def preserved() -> Iterator[None]:
    """Leave the global generators as they were found, whatever the block draws."""
    state = global_state()
    try:
        yield
    finally:
        set_global_state(state)


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
