"""`autorl.population.rng` on torch int64 tensors, whose arithmetic wraps around like unsigned words'."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from autorl.population import rng


def _signed(word: Any) -> int:
    value = int(word)
    return value - 2**64 if value >= 2**63 else value


_GOLDEN, _MIX_1, _MIX_2 = (
    _signed(rng.GOLDEN),
    _signed(0xBF58476D1CE4E5B9),
    _signed(0x94D049BB133111EB),
)


def shift(z: Tensor, places: int) -> Tensor:
    """Logical shift to the right (torch's own keeps the sign)."""
    return (z >> places) & ((1 << (64 - places)) - 1)


def mix(z: Tensor) -> Tensor:
    """SplitMix64's output function."""
    z = (z ^ shift(z, 30)) * _MIX_1
    z = (z ^ shift(z, 27)) * _MIX_2
    return z ^ shift(z, 31)


def stream(key: Tensor, purpose: Tensor | int) -> Tensor:
    """The stream of each key for a purpose."""
    return mix(
        key ^ mix(torch.as_tensor(purpose, dtype=torch.int64, device=key.device).add(1) * _GOLDEN)
    )


def bits(seed: Tensor, counter: Tensor | int) -> Tensor:
    """64 random bits: draw `counter` of stream `seed`."""
    return mix(
        seed + (torch.as_tensor(counter, dtype=torch.int64, device=seed.device) + 1) * _GOLDEN
    )


def uniform(seed: Tensor, counter: Tensor | int) -> Tensor:
    """Uniform in [0, 1), float64."""
    return shift(bits(seed, counter), 11).to(torch.float64) * 2.0**-53


def integer(seed: Tensor, counter: Tensor | int, n: Tensor | int) -> Tensor:
    """Uniform in 0..n-1."""
    return shift(shift(bits(seed, counter), 32) * n, 32)


def normal(seed: Tensor, counter: Tensor) -> Tensor:
    """Standard normal, float64."""
    first, second = uniform(seed, 2 * counter), uniform(seed, 2 * counter + 1)
    return torch.sqrt(-2.0 * torch.log(1.0 - first)) * torch.cos(2.0 * math.pi * second)


def permute(seed: Tensor, n: int) -> Tensor:
    """A permutation of 0..n-1 for each seed, (P, n), by Fisher and Yates."""
    order = torch.arange(n, device=seed.device).repeat(len(seed), 1)
    members = torch.arange(len(seed), device=seed.device)
    for i in range(n - 1, 0, -1):
        j = integer(seed, i, i + 1)
        held = order[:, i].clone()
        order[:, i] = order[members, j]
        order[members, j] = held
    return order
