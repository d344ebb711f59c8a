"""A landscape as a function that any optimizer can call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from autorl.core.types import SeedRole
from autorl.landscapes.dataset import Dataset


class Benchmark(Protocol):
    """The part of a replay or a surrogate that gives scores."""

    def score(self, config: Mapping[str, object], seed: int, role: SeedRole, until: int) -> float:
        """Score a run at the nearest recorded step <= `until`."""
        ...


class LandscapeObjective:
    """A data set that gives the score of a configuration.

    The score is that of the landscape: floor applied, a failed run scores the penalty, larger or
    smaller is better as `direction` says. It can be given to `autorl.tune(objective, space,
    steps=objective.horizon)`. Pickled, it names the folder and is made again where it is used.

    Attributes:
        space: the landscape's search space.
        direction: maximize or minimize.
        horizon: the last recorded step.
        name: the landscape's id.
    """

    def __init__(self, landscape: Dataset, benchmark: Benchmark, **options: object) -> None:
        self.space = landscape.space
        self.direction = landscape.manifest.objective.direction
        self.horizon = int(landscape.grid.steps[-1])
        self.name = landscape.manifest.id
        self._folder = str(landscape.path)
        self._options = options
        # Bound once: a search over recorded runs asks a million times a second.
        self._score = benchmark.score

    def __call__(
        self,
        config: Mapping[str, object],
        *,
        seed: int = 0,
        until: int | None = None,
        role: SeedRole = "tuning",
    ) -> float:
        """Give the score at the nearest recorded step <= `until`.

        None = the last.

        Raises:
            InputError: the configuration or the seed has no answer, or nothing is recorded at or
                before `until`.
        """
        last = self.horizon if until is None else until
        return self._score(config, seed, role, last)

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes get the folder's name: the arrays and the forest would be copied to each.
        return _reopened, (type(self), self._folder, self._options)


def _reopened(
    kind: Callable[..., LandscapeObjective], folder: str, options: Mapping[str, object]
) -> LandscapeObjective:
    return kind(Dataset(folder), **options)
