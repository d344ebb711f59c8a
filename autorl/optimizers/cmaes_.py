"""CMA-ES: covariance matrix adaptation in the unit cube, by the `cmaes` package.

State is a fold: the distribution changes only when `population_size` further points have an
outcome, taken in proposal order. A point is a function of that distribution and the generator of
its proposal number, and travels, as drawn, in `Proposal.meta`. When a run has converged, a new one
starts elsewhere with twice the population [3].

References:
    [1] Hansen and Ostermeier, "Completely derandomized self-adaptation in evolution strategies",
        Evolutionary Computation 9, 2001.
    [2] Hansen, "The CMA evolution strategy: a tutorial", arXiv 1604.00772, 2016.
    [3] Auger and Hansen, "A restart CMA evolution strategy with increasing population size",
        CEC 2005.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.core import seeds
from autorl.core.types import Event, Failed, Proposal, ProposalId, Proposed
from autorl.optimizers.base import BaseOptimizer, Problem, Record, option, require, violation

if TYPE_CHECKING:
    from numpy.typing import NDArray


REDRAWS = 20  # points that break a rule of the space before one is repaired


@dataclass(frozen=True)
class CMAESOptions:
    # At 32 full runs the middle with 0.25 has 0.531, around the default configuration 0.522, and
    # 1/6 has 0.511 and 0.520 (`docs/optimizers.md`: not told apart).
    start: str = option("middle", "of the first distribution", choices=("middle", "default"))
    sigma: float = option(
        0.25,
        "initial step size, in units of each hyperparameter's range",
        minimum=1e-6,
        maximum=1.0,
    )
    population_size: int | None = option(
        None,
        "points per update; null: 4 + 3 ln(hyperparameters), at most a quarter of the budget",
        minimum=4,
    )
    seed: int = option(0, "of where restarts begin; a study gives its own seed", minimum=0)


class CMAES(BaseOptimizer[CMAESOptions]):
    """CMA-ES from the middle of the space.
    The choices of a categorical hyperparameter are bins of the unit interval.
    """

    Options = CMAESOptions
    search_kind = "search"
    reads_priors = False
    takes_enqueued = False
    learns = True

    def __init__(self, problem: Problem, options: CMAESOptions) -> None:
        require("cmaes", "cmaes", "bo")
        super().__init__(problem, options)
        space = problem.space
        self._searched = [
            i for i, n in enumerate(space.names) if space.hyperparameters[n].type != "constant"
        ]
        # The package needs two; a second, idle one does no harm.
        self._dimension = max(2, len(self._searched))
        unit = space.to_unit(space.default())
        self._template = np.where(np.isnan(unit), 0.5, unit)
        self._run = 0  # restarts so far
        # Points of this run with an outcome, not yet told.
        self._scored: dict[ProposalId, None] = {}
        self._told: set[ProposalId] = set()
        start = np.full(self._dimension, 0.5)
        if options.start == "default":
            start[: len(self._searched)] = self._template[self._searched]
        self._cma = self._started(start, self.population_size)

    @property
    def population_size(self) -> int:
        """Number of points per update of the first run."""
        usual = 4 + int(3 * math.log(self._dimension))  # [2], table 1
        return self.options.population_size or int(max(4, min(usual, self.problem.budget / 4)))

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether the distribution was updated.

        The initial configurations are none of its points.
        """
        return scored - len(self.problem.initial) >= self.population_size

    def blind(self, number: int) -> bool:
        """Tell whether no update can have moved the distribution yet."""
        return number < len(self.problem.initial) + self.population_size

    def _started(self, mean: NDArray[np.float64], population_size: int | None) -> Any:
        from cmaes import CMA

        bounds = np.tile([0.0, 1.0], (self._dimension, 1))
        return CMA(
            mean=mean, sigma=self.options.sigma, bounds=bounds, population_size=population_size
        )

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        # It draws from a generator of its own, in which earlier asks would leave their traces.
        self._cma.reseed_rng(int(rng.integers(2**31)))
        for _ in range(1 + REDRAWS):
            point = self._cma.ask()
            vector = self._vector(point)
            if space.is_valid(config := space.from_unit(vector)):
                break
        else:
            config = space.decode(vector, rng)
        # As drawn, also where it is inactive, rounded or repaired: the update assumes points of
        # this very distribution, and its variance collapses where they are not.
        meta = {"run": self._run, "point": [float(coordinate) for coordinate in point]}
        return self._propose(config, "cmaes", meta, informed=bool(self._told))

    def _vector(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """Extend a point (n searched,) to a vector over all hyperparameters (n,)."""
        vector = self._template.copy()
        vector[self._searched] = point[: len(self._searched)]
        return vector

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            return
        if self.history[event.proposal].proposal.meta.get("run") != self._run:
            return  # initial configurations, and points of a run that has converged
        if event.proposal in self._told:
            return  # a later score of a point that the distribution has already followed
        # With several in flight some points come from an earlier distribution. Leaving them out
        # measured worse: 0.018 against 0.007 (6-d sphere, 200 runs, 8 in flight; 0.002 with one).
        self._scored[event.proposal] = None
        if len(self._scored) >= self._cma.population_size:
            # Outcomes come in any order, an update takes them in that of the proposals.
            first = sorted(self._scored)[: self._cma.population_size]
            self._tell([self.history[proposal] for proposal in first])

    def _tell(self, records: list[Record]) -> None:
        points = [np.array(record.proposal.meta["point"]) for record in records]
        self._cma.tell(list(zip(points, losses(records), strict=True)))
        self._told |= {record.id for record in records}
        for record in records:
            del self._scored[record.id]
        if self._cma.should_stop():
            self._run += 1
            self._scored.clear()
            self._cma = self._started(self._restart(), 2 * self._cma.population_size)

    def _restart(self) -> NDArray[np.float64]:
        """Return the mean of the run that begins now, shape (dimension,)."""
        purpose = "cmaes restart"
        generator = seeds.generator(self.options.seed, "algorithm", purpose, self._run)
        return generator.random(self._dimension)


def losses(records: list[Record]) -> list[float]:
    """Return what to minimize: minus the score.

    Behind those come the infeasible by violation, then unscored failures.
    """
    usable = [record for record in records if record.values and not violation(record)]
    infeasible = [record for record in records if record.values and violation(record)]
    infeasible.sort(key=lambda record: (violation(record), record.id))
    unscored = [record for record in records if not record.values]
    loss = {record.id: -record.values[0] for record in usable}
    worst = max(loss.values(), default=0.0)
    # An update reads ranks only, so how far behind they lie is all the same.
    for rank, record in enumerate([*infeasible, *unscored], start=1):
        assert record.values or isinstance(record.result, Failed)
        loss[record.id] = worst + rank
    return [loss[record.id] for record in records]
