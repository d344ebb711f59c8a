"""Seed plans, and every random stream that is derived from a seed.

A stream is a function of (seed, purpose, keys) through a cryptographic hash, so it never depends on
the order of draws, on the configuration, or on how many workers run. Two configurations with the
same seed see the same streams (paired comparisons, common random numbers).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.types import InputError, SeedRole

MOST_SEEDS = 5_000  # of a role: the numbers of runs have room for so many (`study.lineage`)
FIRST_TEST_SEED = 100  # ARLBench's convention: tuning seeds from 0, test seeds from 100
Purpose: TypeAlias = Literal["training", "evaluation", "algorithm", "ask", "noise", "test"]


@dataclass(frozen=True)
class SeedPlan:
    """Disjoint tuning and test seeds.

    Optimizers never see test seeds. Results are reported on them.

    Attributes:
        tuning: seeds every configuration is trained with during the search; a count n means 0..n-1.
        test: seeds only the frozen incumbent is trained with; a count m means 100..100+m-1.

    Raises:
        InputError: a seed is negative, repeated, or in both roles; no tuning seed is given.
    """

    tuning: tuple[int, ...]
    test: tuple[int, ...]

    def __init__(self, tuning: int | Sequence[int] = 3, test: int | Sequence[int] = 10) -> None:
        object.__setattr__(self, "tuning", _seed_list(tuning, "seeds.tuning", first=0))
        object.__setattr__(self, "test", _seed_list(test, "seeds.test", first=FIRST_TEST_SEED))
        if not self.tuning:
            raise InputError("at least one tuning seed is needed", key="seeds.tuning")
        shared = sorted(set(self.tuning) & set(self.test))
        if shared:
            raise InputError(
                f"seeds {shared[:5]} are in both tuning and test: the two lists must be disjoint",
                key="seeds",
            )

    def of(self, role: SeedRole) -> tuple[int, ...]:
        return self.tuning if role == "tuning" else self.test


def _seed_list(seeds: int | Sequence[int], key: str, first: int) -> tuple[int, ...]:
    if isinstance(seeds, bool) or not isinstance(seeds, int | Sequence):
        raise InputError(f"expected a count or a list of integers, got {shown(seeds)}", key=key)
    if isinstance(seeds, int):
        if seeds < 0:
            raise InputError(f"a count of seeds cannot be negative, got {seeds}", key=key)
        if seeds > MOST_SEEDS:
            raise InputError(
                f"expected a count of at most {MOST_SEEDS}, got {shown(seeds)}", key=key
            )
        return tuple(range(first, first + seeds))
    values = tuple(seeds)
    if len(values) > MOST_SEEDS:
        raise InputError(f"expected at most {MOST_SEEDS} seeds, got {len(values)}", key=key)
    for seed in values:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
            raise InputError(f"a seed is an integer in 0..2147483647, got {shown(seed)}", key=key)
    if len(set(values)) < len(values):
        raise InputError(f"a seed is listed twice in {shown(list(values))}", key=key)
    return values


def digest(seed: int, purpose: str, *keys: int | str) -> int:
    """Hash the arguments to a 128-bit integer (BLAKE2b).

    It is a function of them alone, and the root of every stream.
    """
    # With a separator and with types: (1, 23) and (12, 3), or 1 and "1", are other streams.
    text = "\x1f".join([str(seed), purpose, *(f"{type(key).__name__}:{key}" for key in keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: Purpose, *keys: int | str) -> np.random.Generator:
    """Make a fresh NumPy generator for (seed, purpose, keys)."""
    return np.random.Generator(np.random.PCG64(digest(seed, purpose, *keys)))


def integer_seed(seed: int, purpose: Purpose, *keys: int | str) -> int:
    """Derive a seed for libraries that take one integer, such as torch.

    It is in 0..2^31-1, which Gymnasium and Optuna take too.
    """
    return digest(seed, purpose, *keys) % 2**31


def evaluation_seeds(seed: int, role: SeedRole, step: int, episodes: int) -> list[int]:
    """Give the seeds of the evaluation episodes at `step`.

    They are a function of (seed, step), distinct, in 0..2^31-1. Tuning seeds are even and test
    seeds odd, so no test episode was ever seen in tuning, whatever the seeds.
    """
    parity = 0 if role == "tuning" else 1
    rng = generator(seed, "evaluation", step)
    picked: dict[int, None] = {}
    while len(picked) < episodes:
        for value in rng.integers(0, 2**30, size=episodes - len(picked)):
            picked[2 * int(value) + parity] = None
    return list(picked)
