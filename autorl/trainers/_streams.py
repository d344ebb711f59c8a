"""Random streams of a segment, and the device it trains on.

SB3 and TRL draw from the global generators of Python, NumPy and torch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from autorl.core.types import InputError


def check_device(device: torch.device, wanted: str) -> None:
    """Check that a library trains where it was told to.

    Both fall back to the CPU in silence.

    Raises:
        InputError: it does not.
    """
    if device.type != wanted:
        message = f"torch {torch.__version__} sees no device `{wanted}` here, and took {device}"
        raise InputError(message, key="resources.gpu")


def global_state() -> dict[str, Any]:
    """Return the state of every global generator."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - SB3 samples its buffers from it
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all()
        if torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        else [],
    }


def set_global_state(state: dict[str, Any]) -> None:
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
