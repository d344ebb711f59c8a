"""Decides which proposals of an adaptive study get more seeds, and when.

The rule is `autorl.statistics.confirmation`. A study explores with few seeds until its share of the
budget is used up or the optimizer has nothing more to propose. When every outcome is in, the best
proposals get one more seed, level by level (`SeedsGranted`). The budget that is left after the last
level, or is added later, is split again in the same way.

The state is a fold over events: what is charged, scored and granted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autorl.core.types import ProposalId, Scored
from autorl.statistics.confirmation import confirmed_at, levels_of
from autorl.statistics.evaluation import Adaptive, Racing, SeedValue
from autorl.statistics.fronts import fronts
from autorl.statistics.noise import posterior
from autorl.store.events import SeedsGranted
from autorl.study.open_proposals import Item, Order
from autorl.study.search import Search

# Scores that are equal come out of the noise model equal but for rounding.
_DIGITS = 9


class Confirmation:
    """The levels of an adaptive study, and the exploration before them.

    Args:
        search: whose policy is adaptive.

    Attributes:
        under_way: whether seeds were granted since the search explored last.
    """

    def __init__(self, search: Search) -> None:
        assert isinstance(search.policy, Adaptive)
        self.under_way = False
        self._search = search
        self._policy = search.policy
        self._horizon = search.spec.fidelity.steps
        self._lineage = search.lineage
        self._charges = search.charges
        self._begun = 0  # steps charged when the search began to explore, or went on
        self._confirmed = 0  # seeds beyond the first ones of the best, at that time
        self._last = SeedsGranted()

    def apply(self, event: SeedsGranted) -> None:
        """Take note of seeds that were granted, or that none are."""
        self._last = event
        self.under_way = bool(event.proposals)
        if not self.under_way:
            self._begun = self._charges.steps
            counts = [scored.n_seeds for scored in self._search.contenders().values()]
            most = max(counts, default=self._policy.minimum)
            self._confirmed = (most - self._policy.minimum) // self._policy.block

    def limit(self, budget: float) -> float:
        """Return the charged steps at which the exploration ends.

        Args:
            budget: in nominal steps; infinite where it is not counted in steps.
        """
        if math.isinf(budget):
            return budget
        runs = (budget - self._begun) / self._horizon
        explore = self._policy.runs_to_explore(runs, self._confirmed)
        return self._begun + explore * self._horizon

    def next_level(self, budget: float, *, may_explore: bool) -> SeedsGranted | None:
        """Decide what follows when every outcome is in.

        Args:
            budget: in nominal steps; infinite where it is not counted in steps.
            may_explore: whether a budget that is not counted in steps pays for another proposal.

        Returns:
            None if nothing is left to confirm or explore.
        """
        granted = self._grant(budget)
        if granted is not None:
            return granted
        # A proposal since the last time, or this would go on for ever.
        if self._charges.steps == self._begun:
            return None
        proposal = self._horizon * len(self._policy.first)
        affordable = budget - self._charges.steps >= proposal
        goes_on = may_explore if math.isinf(budget) else affordable
        return SeedsGranted() if goes_on else None

    def _grant(self, budget: float) -> SeedsGranted | None:
        """Return the next level at which a proposal lacks seeds."""
        candidates = self._search.contenders()
        block = self._policy.block
        if self.under_way:
            target = len(self._last.seeds) + block
            levels = self._last.levels
            survivors = [number for number in self._last.proposals if number in candidates]
        else:
            target = self._policy.minimum + block
            levels = self._levels(list(candidates), budget)
            survivors = list(candidates)
        if not levels:
            return None
        seeds = {number: scored.n_seeds for number, scored in candidates.items()}
        expected = _expected_scores(candidates)
        for place, runs in enumerate(levels):
            ranked = _ranked(survivors, expected)
            count = target + place * block
            survivors = confirmed_at(ranked, seeds, count, runs * block)
            if any(seeds[number] < count for number in survivors):
                granted = self._policy.full[:count]
                return SeedsGranted(tuple(survivors), granted, levels[place + 1 :])
        return None

    def _levels(self, candidates: Sequence[ProposalId], budget: float) -> tuple[int, ...]:
        if not candidates:
            return ()
        if math.isinf(budget):
            explored = (self._charges.steps - self._begun) / self._horizon
            planned = explored / (1 - self._policy.share)
            steps = float(self._policy.runs_to_confirm(planned, self._confirmed) * self._horizon)
        else:
            steps = budget - self._charges.steps
        chains = map(self._lineage.chain, candidates)
        block = self._policy.block
        cost = block * max(sum(map(self._charges.of, chain)) for chain in chains)  # of one seed
        most = (len(self._policy.full) - self._policy.minimum) // block
        # Hundreds of runs are 3e-14 short of their number where steps are a sum of floats.
        runs = int(steps / cost + 1e-9)
        return levels_of(runs, len(candidates), most, confirmed=self._confirmed)


def _ranked(
    survivors: Sequence[ProposalId], expected: Mapping[ProposalId, tuple[float, ...]]
) -> list[ProposalId]:
    """Order proposals by their expected scores, best first.

    The earliest of equals comes first. With several objectives the proposals that no other
    dominates come first, then the proposals that only these dominate, and so on, each time by the
    first objective.
    """
    ranked: list[ProposalId] = []
    for front in fronts(np.array([expected[number] for number in survivors])):
        numbers = [survivors[row] for row in front]
        ranked += sorted(numbers, key=lambda number: (-expected[number][0], number))
    return ranked


def _expected_scores(
    candidates: Mapping[ProposalId, Scored],
) -> dict[ProposalId, tuple[float, ...]]:
    """Return expected true scores of each proposal, one for each objective.

    They are in units of the range of the scores.
    """
    scored = list(candidates.values())
    seeds = [event.n_seeds for event in scored]
    columns = []
    for values, spreads in zip(
        zip(*(event.values for event in scored), strict=True),
        zip(*(event.spread for event in scored), strict=True),
        strict=True,
    ):
        means = posterior(values, spreads, seeds).mean
        low = min(values)
        span = max(values) - low or 1.0
        columns.append(np.round((means - low) / span, _DIGITS).tolist())
    return dict(zip(candidates, zip(*columns, strict=True), strict=True))


class Races:
    """The further seeds of proposals in a study whose policy races.

    Args:
        search: whose proposals race.
        order: in which their outcomes are observed.
    """

    def __init__(self, search: Search, order: Order) -> None:
        self._search = search
        self._order = order

    def reference(self) -> tuple[SeedValue, ...]:
        """Return the seeds of the incumbent.

        A proposal that is asked for now races against them.
        """
        best = self._search.ranking.best()
        racing = isinstance(self._search.policy, Racing)
        return self._values(best) if racing and best is not None else ()

    def extend(self, item: Item) -> bool:
        """Add the seeds that an item's race asks for.

        Earlier outcomes are in. The result is False where the race asks for none.
        """
        if not isinstance(self._search.policy, Racing):
            return False
        values = [self._search.work.value(item.proposal, seed) for seed in item.seeds]
        more = self._search.policy.more(values, item.reference)
        if more:
            item.seeds.extend(more)
            self._search.queue.changed(item)
        return bool(more)

    def go_on(self, proposal: ProposalId) -> None:
        """Give the incumbent its missing seeds, and let a proposal race it.

        At the proposal's own ask the incumbent may have had fewer seeds. An added run is observed
        when its training would have ended.
        """
        best = self._search.ranking.best()
        policy = self._search.policy
        if best is None or not isinstance(policy, Racing):
            return
        lacking = self._search.ranking[best].n_seeds < len(policy.full)
        if lacking and not self._search.queue.holds(best):
            self.add_seeds(Item(best, list(policy.full), upgrade=True))
        if best == proposal or proposal not in self._search.ranking:
            return
        reference = self._values(best)
        if more := policy.more(self._values(proposal), reference):
            seeds = [*self._search.tuning_seeds(proposal), *more]
            self.add_seeds(Item(proposal, seeds, reference))

    def _values(self, proposal: ProposalId) -> tuple[SeedValue, ...]:
        """Return the seeds that a proposal was last scored with."""
        seeds = self._search.tuning_seeds(proposal)
        return tuple(self._search.work.value(proposal, seed) for seed in seeds)

    def add_seeds(self, item: Item) -> None:
        """Have an earlier proposal trained with more seeds.

        They are trained from scratch to its end.
        """
        cost = sum(self._search.costs[link] for link in self._search.lineage.chain(item.proposal))
        self._search.queue.append(item)
        self._order.begin(item.proposal, cost, occupies=False)
