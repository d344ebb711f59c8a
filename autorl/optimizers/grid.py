"""Grid search: every combination of evenly spaced levels.

Levels are spaced on each hyperparameter's own scale, bounds included. Inactive hyperparameters are
not branched on, so a conditional space yields no configuration twice. The last hyperparameter
varies fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from autorl.core.types import Config, Done, Event, InputError, Proposal, Proposed
from autorl.optimizers.base import BaseOptimizer, Problem, option

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class GridOptions:
    levels: int | Mapping[str, int] = option(
        5, "points per numeric hyperparameter, or a mapping from names", minimum=1
    )


class GridSearch(BaseOptimizer[GridOptions]):
    """All combinations of evenly spaced values and of choices, each once.
    A numeric hyperparameter has `levels` values.
    """

    Options = GridOptions
    multi_objective = True
    lag_free = True
    search_kind = "design"
    reads_priors = False
    done_text = "has tried every point of its grid"
    takes_enqueued = False

    def __init__(self, problem: Problem, options: GridOptions) -> None:
        super().__init__(problem, options)
        if isinstance(options.levels, Mapping):
            self._check(options.levels)
        self._levels = {name: self._levels_of(name) for name in problem.space.names}
        self._next = 0
        self._walk: Iterator[Config] = iter(())
        # A cache: the point at this position, already produced. Walking to it from the beginning at
        # every ask would be quadratic in the points.
        self._ahead: tuple[int, Config | None] | None = None

    def _ask(self, rng: np.random.Generator) -> Proposal | Done:
        config = self._point(self._next)
        if config is None:
            return Done()
        return self._propose(config, f"grid {self._next}", {"position": self._next})

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed) and "position" in event.proposal.meta:
            self._next = event.proposal.meta["position"] + 1

    def _point(self, position: int) -> Config | None:
        if self._ahead is None or position < self._ahead[0]:
            self._walk = self._points()
            self._ahead = (0, next(self._walk, None))
        at, config = self._ahead
        if position > at:
            config = next(islice(self._walk, position - at - 1, None), None)
            self._ahead = (position, config)
        return config

    def _points(self) -> Iterator[Config]:
        """Yield the valid grid points that are not initial configurations.

        Initial configurations are proposed anyway.
        """
        initial = set(self.problem.initial)
        for config in map(Config, self._branch({}, 0)):
            if config not in initial and self.problem.space.is_valid(config):
                yield config

    def _branch(self, chosen: dict[str, object], depth: int) -> Iterator[dict[str, object]]:
        names = self.problem.space.names
        if depth == len(names):
            yield chosen
        # Parents stand before their children: whether it is active is decided.
        elif names[depth] not in self.problem.space.active(chosen):
            yield from self._branch(chosen, depth + 1)
        else:
            for value in self._levels[names[depth]]:
                yield from self._branch({**chosen, names[depth]: value}, depth + 1)

    def _check(self, levels: Mapping[str, int]) -> None:
        numeric = [
            name
            for name, hyperparameter in self.problem.space.hyperparameters.items()
            if hyperparameter.numeric
        ]
        for name, count in levels.items():
            if name not in numeric:
                raise InputError(
                    f"{name!r} is not one of {', '.join(numeric)}", key="optimizer.levels"
                )
            # A boolean is a number in Python, but not in a study file.
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise InputError(
                    f"expected int >= 1, got {count!r}", key=f"optimizer.levels.{name}"
                )

    def _levels_of(self, name: str) -> tuple[Any, ...]:
        hyperparameter = self.problem.space.hyperparameters[name]
        if hyperparameter.type == "constant":
            return (hyperparameter.default,)
        if hyperparameter.choices:
            return hyperparameter.choices
        levels = self.options.levels
        count = levels.get(name, 5) if isinstance(levels, Mapping) else levels
        places = [0.5] if count == 1 else [place / (count - 1) for place in range(count)]
        # Neighbouring levels of a narrow integer may round to one value.
        return tuple(dict.fromkeys(hyperparameter.from_unit(place) for place in places))
