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

from autorl.core.plain_text import counted, shown
from autorl.core.types import InputError, SeedRole

MOST_SEEDS = 5_000  # of a role: the numbers of runs have room for so many (`study.lineage`)
LARGEST_SEED = 2**31 - 1
FIRST_TEST_SEED = 100  # ARLBench's convention: tuning seeds from 0, test seeds from 100
TASK = 10_000  # a pair is task * TASK + seed: 10003 is seed 3 of the second task
Purpose: TypeAlias = Literal["training", "evaluation", "algorithm", "ask", "noise", "test"]


@dataclass(frozen=True)
class SeedPlan:
    """Disjoint tuning and test seeds.

    Optimizers never see test seeds. Results are reported on them.

    Attributes:
        tuning: seeds every configuration is trained with during the search; a count n means 0..n-1.
        test: seeds only the frozen incumbent is trained with; a count m means 100..100+m-1.
        tasks: names of those that the seeds are crossed with (`on_tasks`); empty: none.
        tuned: how many of them, the first, are tuned on.

    Raises:
        InputError: a seed is negative, repeated, or in both roles; no tuning seed is given.
    """

    tuning: tuple[int, ...]
    test: tuple[int, ...]
    tasks: tuple[str, ...] = ()
    tuned: int = 0

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

    def on_tasks(self, tuning: Sequence[str], test: Sequence[str]) -> SeedPlan:
        """Cross the seeds with tasks.

        The result is a plan of pairs, of tasks to tune on and of all tasks to test. Its first pairs
        are one seed of each task. The first task has pairs that are equal to its seeds.

        Raises:
            InputError: a seed is too large, or there are too many pairs.
        """
        for key, seeds in (("seeds.tuning", self.tuning), ("seeds.test", self.test)):
            if seeds and max(seeds) >= TASK:
                raise InputError(f"with `tasks` a seed is below {TASK}, got {max(seeds)}", key=key)
        tasks = (*tuning, *test)
        plan = SeedPlan(_crossed(self.tuning, len(tuning)), _crossed(self.test, len(tasks)))
        object.__setattr__(plan, "tasks", tasks)
        object.__setattr__(plan, "tuned", len(tuning))
        return plan

    def seeds(self, role: SeedRole) -> tuple[int, ...]:
        """Return the training seeds of a role, each once whatever the tasks."""
        return tuple(dict.fromkeys(self.parts(pair)[1] for pair in self.of(role)))

    @property
    def block(self) -> int:
        """Number of pairs of one seed: the tasks to tune on."""
        return max(1, self.tuned)

    def parts(self, pair: int) -> tuple[int, int]:
        """Return task and training seed of a pair.

        A study without tasks has task 0.
        """
        return divmod(pair, TASK) if self.tasks else (0, pair)

    def judges(self, pair: int) -> bool:
        """Say whether the result is of a test run.

        It is of those on test tasks, if there are any.
        """
        return self.tuned == len(self.tasks) or self.parts(pair)[0] >= self.tuned

    def text(self, role: SeedRole) -> str:
        """Write the seeds of a role, and on how many tasks."""
        if not self.tasks:
            return str(list(self.of(role)))
        seeds = list(self.seeds(role))
        count = self.tuned if role == "tuning" else len(self.tasks)
        return f"{seeds} on each of {counted(count, 'task')}"

    def pair_text(self, pair: int) -> str:
        """Name the seed of a run, and its task."""
        task, seed = self.parts(pair)
        return f"seed {seed} of {self.tasks[task]}" if self.tasks else f"seed {seed}"


def _crossed(seeds: Sequence[int], tasks: int) -> list[int]:
    return [task * TASK + seed for seed in seeds for task in range(tasks)]


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
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
            raise InputError(
                f"a seed is an integer in 0..{LARGEST_SEED}, got {shown(seed)}", key=key
            )
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
