"""Environments outside the engine that are stepped together, in a vector.

Semantics are those of `Worlds`, and so of Stable-Baselines3's `DummyVecEnv`: an environment begins
its next episode in the step that ends one. Each environment is seeded once; its later episodes
take the random numbers that follow, which cannot be saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from autorl.population.environments.base import Environment
from autorl.population.kernels import Array
from autorl.population.members import LENGTH, RETURN
from autorl.population.outside import (
    End,
    OutsideEnvironment,
    SeededEpisodes,
    Vector,
    Worlds,
    next_seed,
)


class VectorWorlds(Worlds):
    """The environments of one member, stepped together."""

    _vector: Vector | None = None

    def _made(self) -> list[SeededEpisodes]:
        count = len(self.member.states)
        self._returned = np.zeros(count)
        self._length = np.zeros(count)
        self._over: dict[int, tuple[float, int]] = {}
        return []

    def _reset(self) -> None:
        self.close()
        make = self.environment.make_vector
        assert make is not None
        # Vectors take their seeds when they are made.
        vector = make([next_seed(self.member) for _ in self.member.states])
        self._vector = vector
        self._observed[:] = vector.reset()
        self._returned[:] = 0.0
        self._length[:] = 0.0

    def _step(self, applied: Array, rewards: Array) -> list[End]:
        assert self._vector is not None
        step = self._vector.step(applied)
        rewards[:] = step.rewards
        self._observed[:] = step.observations
        self._returned += rewards
        self._length += 1.0
        ends = []
        for index, final in step.finals.items():
            ends.append(End(index, bool(step.terminated[index]), np.float64(final).ravel()))
            self._over[index] = float(self._returned[index]), int(self._length[index])
            self._returned[index] = 0.0
            self._length[index] = 0.0
        return ends

    def _finished(self, index: int) -> tuple[float, int] | None:
        return self._over.pop(index)

    def note_episodes(self) -> None:
        """Write return and length of each running episode into the member."""
        self.member.episodes[:, RETURN] = self._returned
        self.member.episodes[:, LENGTH] = self._length

    def close(self) -> None:
        """Close the environments."""
        if self._vector is not None:
            self._vector.close()


def make_worlds(environment: OutsideEnvironment, state: Mapping[str, Any]) -> Worlds:
    """Make a member's environments."""
    kind = Worlds if environment.make_vector is None else VectorWorlds
    return kind(environment, state["member"], state.get("normaliser"))


@contextmanager
def worlds_of(environment: Environment, state: Mapping[str, Any]) -> Iterator[Worlds | None]:
    """Make a member's environments for a block, None for native ones."""
    if not isinstance(environment, OutsideEnvironment):
        yield None
        return
    worlds = make_worlds(environment, state)
    try:
        yield worlds
    finally:
        worlds.close()
