"""Gives proposals of a race further seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autorl.evaluation import Adaptive, Fixed, Racing, Ranking, SeedValue
from autorl.study.lineage import Lineage
from autorl.study.order import Order
from autorl.study.queue import Item, Queue
from autorl.study.work import Work
from autorl.types import ProposalId


class Search(Protocol):
    """The parts of a search that a race asks.

    `Driver` has them.

    Attributes:
        policy: says which seeds a proposal is trained with.
        ranking: the scored proposals.
        lineage: the chains of proposals.
        work: the values of their seeds.
    """

    policy: Fixed | Racing | Adaptive
    ranking: Ranking
    lineage: Lineage
    work: Work

    def tuning_seeds(self, proposal: ProposalId) -> tuple[int, ...]:
        """Return the tuning seeds a scored proposal was last scored with."""
        ...


class Races:
    """The further seeds of proposals in a study whose policy races.

    Args:
        search: whose proposals race.
        queue: the proposals under evaluation.
        order: in which their outcomes are observed.
        costs: predicted of one seed of each proposal.
    """

    def __init__(
        self, search: Search, queue: Queue, order: Order, costs: Mapping[ProposalId, float]
    ) -> None:
        self._search = search
        self._queue = queue
        self._order = order
        self._costs = costs

    def reference(self) -> tuple[SeedValue, ...]:
        """Return the seeds of the incumbent.

        A proposal that is asked for now races against them.
        """
        best = self._search.ranking.best()
        if best is None or not isinstance(self._search.policy, Racing):
            return ()
        return self._values(best)

    def extend(self, item: Item) -> bool:
        """Add the seeds that an item's race asks for.

        Those before are in. False where it asks for none.
        """
        if not isinstance(self._search.policy, Racing):
            return False
        values = [self._search.work.value(item.proposal, seed) for seed in item.seeds]
        more = self._search.policy.more(values, item.reference)
        if more:
            item.seeds.extend(more)
            self._queue.changed(item)
        return bool(more)

    def upgrade_incumbent(self) -> None:
        """Give the incumbent of a race the seeds it lacks.

        They are observed when their training would have ended.
        """
        best = self._search.ranking.best()
        if best is None or not isinstance(self._search.policy, Racing):
            return
        full = self._search.policy.full
        if self._search.ranking[best].n_seeds >= len(full):
            return
        if not self._queue.holds(best):
            self.add_seeds(Item(best, list(full), upgrade=True))

    def race_again(self, proposal: ProposalId) -> None:
        """Have a proposal race the incumbent of today.

        At its own ask the incumbent may have had fewer seeds.
        """
        best = self._search.ranking.best()
        if best is None or best == proposal or proposal not in self._search.ranking:
            return
        if not isinstance(self._search.policy, Racing):
            return
        reference = self._values(best)
        if more := self._search.policy.more(self._values(proposal), reference):
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
        cost = sum(self._costs[link] for link in self._search.lineage.chain(item.proposal))
        self._queue.append(item)
        self._order.begin(item.proposal, cost, occupies=False)
