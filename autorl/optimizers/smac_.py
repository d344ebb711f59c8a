"""SMAC: sequential model-based optimization with random forests.

Hutter et al. 2011; Lindauer et al. 2022; SMAC3.

SMAC only proposes; seeds, racing and budgets are the study's. A fresh facade is built from what is
known, seeded by a number that travels in `Proposal.meta`, and the next proposals are its
challengers in their order: one while there are fewer than twenty results, eight, as in SMAC, from
eighty results on, or `refit`. Every proposal is therefore a function of the events, and a resumed
study goes on where it stopped. Before that a scrambled Sobol design is run, as SMAC does. Failures
have the cost of their penalty, infeasible ones a cost behind the worst that is feasible. Pending
proposals are told with the mean cost, lest the next ones pile up around them (Ginsbourger et al.
2010), and never proposed again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autorl.core.types import Config, Event, Proposal, Proposed
from autorl.optimizers._parzen import Feasibility, points_of
from autorl.optimizers.base import (
    BaseOptimizer,
    Problem,
    Record,
    option,
    require,
    seed_counts,
    violation,
)
from autorl.optimizers.priors.mapping import places_of, searched
from autorl.optimizers.sobol import SKIPS, SobolOptions, SobolSearch
from autorl.space.configspace import from_configuration, places_of_vectors, to_configuration
from autorl.space.prior import log_prior

if TYPE_CHECKING:
    import numpy as np

MOST = 8  # proposals from one fit, unless the user says otherwise: SMAC's own number
DRAWS = 32  # challengers of a fit looked at: some break a rule that ConfigSpace cannot express


@dataclass(frozen=True)
class SMACOptions:
    startup: int | None = option(
        None,
        "proposals before the model is used; null: 10 per hyperparameter, "
        "at most a quarter of the runs",
        minimum=1,
    )
    model: str = option(
        "forest",
        "surrogate; a Gaussian process takes seconds beyond 150 runs",
        choices=("forest", "gp"),
    )
    refit: int | None = option(
        None,
        "proposals from one fit of the model; null: a tenth of the results it knows, 1 to 8",
        minimum=1,
    )
    seed: int = option(0, "of the design; a study gives its own seed", minimum=0)


@dataclass(frozen=True)
class _Fit:
    """The records and the seed that a facade is built from.

    Equal fits give equal challengers.
    """

    seed: int
    records: tuple[Record, ...]


class SMAC(BaseOptimizer[SMACOptions]):
    """Random-forest Bayesian optimization, strong on conditional and mixed spaces (SMAC3)."""

    Options = SMACOptions
    search_kind = "search"
    learns = True

    def __init__(self, problem: Problem, options: SMACOptions) -> None:
        require("smac", "smac", "smac")
        super().__init__(problem, options)
        self._design = SobolSearch(problem, SobolOptions(seed=options.seed))
        self._index = 0  # next point of the design
        self._fit: _Fit | None = None  # the current one
        self._place = 0  # proposals made from it
        self._exported: Any = None  # the ConfigSpace, a cache
        self._challengers: tuple[_Fit, tuple[Config, ...]] | None = None  # of a fit, a cache

    @property
    def startup(self) -> int:
        """Number of proposals before the model is used.

        The initial configurations are included.
        """
        if self.options.startup is not None:
            return self.options.startup
        searched = [h for h in self.problem.space.hyperparameters.values() if h.type != "constant"]
        return int(max(1, min(10 * len(searched), self.problem.budget / 4)))

    def modelled(self, proposed: int, scored: int) -> bool:
        """Tell whether the design is used up and there is a score."""
        return proposed >= self.startup and scored > 0

    def blind(self, number: int) -> bool:
        """Proposals of the design read no score."""
        return number < self.startup

    def _ask(self, rng: np.random.Generator) -> Proposal:
        scored = sum(bool(record.values) for record in self.history)
        if not self.modelled(len(self.history), scored):
            return self._from_design(rng)
        if self._fit is not None and self._place < self._serves(self._fit):
            served = self._candidates(self._fit)[self._place :]
            for place, config in enumerate(served, start=self._place + 1):
                if config not in self.history.configs:
                    return self._propose(config, "smac", {"place": place}, informed=True)
        fit = _Fit(int(rng.integers(2**31)), tuple(self.history))
        candidates = self._candidates(fit)
        if candidates:  # all of them new: this fit knows every proposal
            meta = {"place": 1, "seed": fit.seed}
            return self._propose(candidates[0], "smac, fitted anew", meta, informed=True)
        origin = "smac, at random: nothing new was found"
        return self._propose(self._sampled(rng), origin, informed=True)

    def _from_design(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        if space.has_priors:
            return self._propose(self._sampled(rng), "smac, start-up")
        for index in range(self._index, self._index + SKIPS):
            config = space.from_unit(self._design.point(index))
            if space.is_valid(config) and config not in self.history.configs:
                return self._propose(config, f"smac, design {index}", {"index": index})
        return self._propose(space.sample(rng), "smac, at random: the design is used up")

    def _observe(self, event: Event) -> None:
        if not isinstance(event, Proposed):
            return
        meta = event.proposal.meta
        self._index = meta.get("index", self._index - 1) + 1  # as it was, without an index
        self._place = meta.get("place", self._place)
        if "seed" in meta:
            # Results known at the ask: the fit is the same after a resume.
            before = tuple(record for record in self.history if record.id != event.id)
            self._fit = _Fit(meta["seed"], before)

    def _serves(self, fit: _Fit) -> int:
        """Return the number of proposals made from a fit."""
        results = sum(1 for record in fit.records if record.values)
        # With SMAC's own eight from the start, a study of 32 runs with eight in flight has models
        # of 1, 9 and 17 results.
        return self.options.refit or max(1, min(MOST, results // 10))

    def _candidates(self, fit: _Fit) -> tuple[Config, ...]:
        """Return the next proposals according to a fit.

        They are valid, and new when it was made.
        """
        # Fitting the model is what an ask costs: up to 1.8 s at 500 observations
        # (`benchmarks/results/proposals.md`).
        if self._challengers is None or self._challengers[0] != fit:
            self._challengers = (fit, tuple(islice(self._found(fit), self._serves(fit))))
        return self._challengers[1]

    def _found(self, fit: _Fit) -> Iterator[Config]:
        bridge = _bridge()
        space = self.problem.space
        if self._exported is None:
            self._exported = space.to_configspace()
        records_and_costs = costs(fit.records)
        results = [
            (to_configuration(space, self._exported, record.proposal.config), cost)
            for record, cost in records_and_costs
        ]
        counts = None
        if self.problem.weigh_seeds:
            counts = seed_counts(record for record, _ in records_and_costs)
        items = searched(space)
        ended = [record for record in fit.records if record.result is not None]
        places = places_of(space, [record.proposal.config for record in ended])
        feasibility = Feasibility.of(items, places, ended)

        def weigh(vectors: np.ndarray) -> np.ndarray:
            units = places_of_vectors(items, self._exported, vectors)
            total = log_prior(items, units, len(fit.records))
            if not feasibility.needed:
                return total
            return total + feasibility.log_probability(points_of(items, units))

        proposed = {record.proposal.config for record in fit.records}
        draws = max(DRAWS, 4 * self._serves(fit))
        model = self.options.model
        stream = bridge.challengers(self._exported, results, fit.seed, model, draws, weigh, counts)
        for configuration in islice(stream, draws):
            config = from_configuration(space, configuration)
            # Some rules cannot be said in ConfigSpace, so SMAC's challengers may break them.
            if config not in proposed and space.is_valid(config):
                proposed.add(config)
                yield config


def costs(records: tuple[Record, ...]) -> list[tuple[Record, float]]:
    """Return what SMAC is told: minus the score of each proposal.

    Pending ones have the mean of those that have a score.

    Infeasible ones lie behind the worst feasible one by up to the range of scores, in the order of
    their violation.
    """
    scored = [record for record in records if record.values]
    feasible = [-record.values[0] for record in scored if not violation(record)]
    worst = max(feasible, default=0.0)
    span = worst - min(feasible, default=0.0) or 1.0
    violations = [violation(record) for record in scored]
    most = max(filter(math.isfinite, violations), default=0.0)  # constraints may be infinite

    def cost(record: Record) -> float:
        broken = violation(record)
        return worst + span * min(1.0, broken / (most or 1.0)) if broken else -record.values[0]

    settled = [(record, cost(record)) for record in scored]
    # The constant liar CL-mean of Ginsbourger et al. 2010.
    mean = sum(value for _, value in settled) / max(1, len(settled))
    return settled + [(record, mean) for record in records if settled and record.result is None]


def _bridge() -> ModuleType:
    """Return the module that imports smac."""
    state = random.getstate()  # part of what smac imports draws from the global generator
    from autorl.optimizers import _smac_facade

    random.setstate(state)
    return _smac_facade
