"""Tree-structured Parzen estimator: a density of good results over one of bad.

A tenth of the results, at most 25, is good (with several objectives a tenth: the first fronts). All
others are bad, and so are runs in flight: the next proposal is elsewhere. Each side is described by
a density. Candidates are drawn from that of the good, and the one is proposed whose ratio of the
two is largest.

One density is over all hyperparameters that are active together, so it sees how they depend on each
other. Hyperparameters that are active under conditions have densities of their own.

    scores 1.0, 3.0, 2.0 at x = 0.1, 0.5, 0.4, and x = 0.7 in flight
    good: 0.5; bad: 0.1, 0.4, 0.7
    ask -> of 24 draws around 0.5 the one farthest from the bad, such as 0.55

Once runs have failed, the ratio becomes an expected improvement, times the probability that a run
at the candidate does not fail. Priors of the space weigh the ratio, and count less and less.

The formulas are those of Optuna's TPESampler (multivariate, group, constant_liar), except that
failed runs come last, whatever constraints others break, and that of a front with several
objectives the least crowded are good, not the ones of most hypervolume.

References:
    Bergstra, Bardenet, Bengio and Kegl, "Algorithms for hyper-parameter optimization", NIPS 2011.
    Watanabe, "Tree-structured Parzen estimator: understanding its algorithm components and their
    roles", arXiv 2304.11127, 2023: the formulas of Optuna.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autorl.core.types import Config, Event, Failed, Proposal, ProposalId, Proposed
from autorl.optimizers._parzen import Array, Feasibility, ParzenEstimator, points_of, weights_of_age
from autorl.optimizers._startup import StartedOptimizer, StartupOptions
from autorl.optimizers.base import Problem, option, seed_counts, violation
from autorl.space.prior import log_prior
from autorl.statistics.fronts import crowded_order

if TYPE_CHECKING:
    from autorl.space import Space
    from autorl.space.tree import Forbidden, Rule

GOOD = 0.1
"""Part of the results that is good."""
MOST_GOOD = 25
BATCHES = 8  # of candidates, until as many are valid as are compared


@dataclass(frozen=True)
class TPEOptions(StartupOptions):
    candidates: int = option(
        24, "samples from the good configurations' density, of which the best is taken", minimum=1
    )


class TPE(StartedOptimizer[TPEOptions]):
    """Multivariate tree-structured Parzen estimator (Bergstra et al. 2011)."""

    Options = TPEOptions
    search_kind = "search"
    multi_objective = True
    learns = True

    def __init__(self, problem: Problem, options: TPEOptions) -> None:
        super().__init__(problem, options)
        space = problem.space
        places: dict[str, list[int]] = {}
        for place, (name, item) in enumerate(space.hyperparameters.items()):
            if item.varies:
                condition = space.conditions.get(name)
                places.setdefault(condition.text if condition else "", []).append(place)
        self._groups = [_Group(space, group) for group in places.values()]
        # Results, best first: whether failed, by how much infeasible, loss, proposal.
        self._ranked: list[tuple[bool, float, float, ProposalId]] = []
        self._ranks: dict[ProposalId, tuple[bool, float, float, ProposalId]] = {}

    def _ask(self, rng: np.random.Generator) -> Proposal:
        space = self.problem.space
        if not self.modelled(len(self.history), len(self._ranks)):
            return self._propose(self._sampled(rng), "tpe, start-up")
        good = self._good()
        counts = None
        if self.problem.weigh_seeds:
            pairs = zip(self.history, seed_counts(self.history), strict=True)
            counts = {record.id: count for record, count in pairs}
        units = np.full((self.options.candidates, len(space.names)), 0.5)
        for group in self._groups:
            drawn = group.candidates(good, counts, rng, len(units), len(self.history))
            units = units[: len(drawn)]
            units[:, group.places] = drawn
        for unit in units:
            config = space.from_unit(unit)
            if config not in self.history.configs and not space.violated(config):
                return self._propose(config, "tpe", informed=True)
        config, how = self._repaired(space.from_unit(units[0]), rng)
        return self._propose(config, f"tpe, {how}", informed=True)

    def _good(self) -> list[ProposalId]:
        """List the good results."""
        count = math.ceil(GOOD * len(self._ranked))
        if self.problem.n_objectives == 1:
            return [number for *_, number in self._ranked[: min(count, MOST_GOOD)]]
        feasible = bisect_left(self._ranked, (False, 0.0, math.inf))
        best = [number for *_, number in self._ranked[: max(count, feasible)]]
        if feasible <= count:
            return best
        values = np.array([self.history[number].values for number in best])
        return [best[row] for row in crowded_order(values)[:count]]

    def _observe(self, event: Event) -> None:
        if isinstance(event, Proposed):
            for group in self._groups:
                group.add(event.id, event.proposal.config)
            return
        superseded = self._ranks.pop(event.proposal, None)
        if superseded is not None:
            del self._ranked[bisect_left(self._ranked, superseded)]
        for group in self._groups:
            group.feasibility.end(event.proposal, isinstance(event, Failed))
        if event.values:
            broken = violation(self.history[event.proposal])
            loss = -event.values[0] if self.problem.n_objectives == 1 else 0.0
            rank = (isinstance(event, Failed), broken, loss, event.proposal)
            self._ranks[event.proposal] = rank
            insort(self._ranked, rank)


class _Group:
    """Hyperparameters that are active together, and the densities of their values.

    Args:
        space: the search space.
        places: of the hyperparameters among its names.
    """

    def __init__(self, space: Space, places: Sequence[int]) -> None:
        self.places = list(places)
        self._items = [space.hyperparameters[space.names[place]] for place in places]
        # Under conditions groups are drawn apart, and rules are about the whole.
        rules: list[Forbidden | Rule] = [*space.forbidden, *space.constraints]
        self._rules = [] if space.conditions else rules
        self._constants = {
            item.name: item.default for item in space.hyperparameters.values() if not item.varies
        }
        self._rows: dict[ProposalId, int] = {}
        self._good: set[int] = set()
        self.densities = ParzenEstimator(self._items), ParzenEstimator(self._items)
        self.feasibility = Feasibility(self._items)

    def add(self, number: ProposalId, config: Config) -> None:
        """Take note of a proposal, as bad, that has the hyperparameters."""
        if self._items[0].name in config:
            point = self.feasibility.points[number] = self.point(config)
            rows = [density.add(point) for density in self.densities]
            self._rows[number] = rows[1]
            self.densities[1].enrol(rows[1], True)

    def point(self, config: Config) -> Array:
        """Return where a configuration lies for the densities."""
        places = [[item.to_unit(config[item.name]) for item in self._items]]
        return np.ravel(points_of(self._items, np.array(places)))

    def candidates(
        self,
        good: Collection[ProposalId],
        counts: Mapping[ProposalId, int] | None,
        rng: np.random.Generator,
        count: int,
        proposals: int,
    ) -> Array:
        """Draw places in the unit cube, the most promising first.

        Args:
            good: proposals.
            counts: what each counts; None: all the same.
            rng: of the draws.
            count: of the places.
            proposals: made so far.

        Returns:
            Shape (n, d), with n below `count` where few are valid.
        """
        likely, unlikely = self.densities
        rows = {self._rows[number] for number in good if number in self._rows}
        for row in self._good ^ rows:
            likely.enrol(row, row in rows)
            unlikely.enrol(row, row not in rows)
        self._good = rows
        weights = (np.ones(len(rows)), weights_of_age(len(unlikely.rows)))
        if counts is not None:
            of_rows = np.array([1, *(counts[number] for number in self._rows)])
            for weight, density in zip(weights, self.densities, strict=True):
                weight *= of_rows[density.rows]
        points = self._valid(lambda: likely.draw(rng, count, weights[0]))
        ratio = likely.log_density(points, weights[0]) - unlikely.log_density(points, weights[1])
        units = self._units(points)
        if self.feasibility.needed:
            # Expected improvement is proportional to this (Bergstra et al. 2011, equation 3).
            ratio = -np.log(GOOD + (1 - GOOD) * np.exp(-ratio))
            ratio += self.feasibility.log_probability(points)
        ratio += log_prior(self._items, units, proposals)
        # Rounded: processors differ in the last digits.
        return units[np.argsort(-np.round(ratio, 9), kind="stable")]

    def _valid(self, draw: Callable[[], Array]) -> Array:
        """Draw until as many are valid, or return all if none is."""
        drawn = draw()
        if not self._rules:
            return drawn
        valid = drawn[self._keep_rules(drawn)]
        for _ in range(BATCHES - 1):
            if len(valid) < len(drawn):
                more = draw()
                valid = np.concatenate([valid, more[self._keep_rules(more)]])
        return valid[: len(drawn)] if len(valid) else drawn

    def _keep_rules(self, points: Array) -> list[bool]:
        """Tell of each point whether it keeps the rules."""
        ruled = set[str]().union(*(rule.names for rule in self._rules))
        columns = {
            item.name: [item.from_unit(unit) for unit in column]
            for item, column in zip(self._items, self._units(points).T.tolist(), strict=True)
            if item.name in ruled
        }
        configs = (
            self._constants | {name: column[row] for name, column in columns.items()}
            for row in range(len(points))
        )
        return [not any(rule.violated(config) for rule in self._rules) for config in configs]

    def _units(self, points: Array) -> Array:
        """Return points in the unit cube."""
        units = points + 0.5
        for place, item in enumerate(self._items):
            if item.type == "categorical":
                units[:, place] /= item.n_choices
        return units
