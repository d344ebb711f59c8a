"""What a budget was charged, by proposal and seed."""

from __future__ import annotations

from collections.abc import Sequence

from autorl.study.lineage import Lineage
from autorl.types import ProposalId, SegmentId


class Charges:
    """The nominal steps that a search was charged for.

    Every (proposal, seed) is charged once, when it is first known that it will be trained.

    Attributes:
        steps: nominal tuning steps charged so far.
        anew: proposals that continue a run without a checkpoint: charged from step 0.
    """

    def __init__(self, lineage: Lineage) -> None:
        self.steps = 0
        self.anew: set[ProposalId] = set()
        self._lineage = lineage
        self._charged: set[tuple[ProposalId, int]] = set()
        self._beyond: set[tuple[ProposalId, int]] = set()

    def of(self, proposal: ProposalId) -> int:
        """Return the nominal steps charged for one seed of a proposal."""
        if proposal in self.anew:
            return self._lineage[proposal].until
        return self._lineage.length(proposal)

    def add(self, proposals: Sequence[ProposalId], seeds: Sequence[int]) -> None:
        """Charge for every (proposal, seed) that was not charged before."""
        for proposal in proposals:
            for seed in seeds:
                if (proposal, seed) not in self._charged:
                    self._charged.add((proposal, seed))
                    self.steps += self.of(proposal)

    def covers(self, segment: SegmentId) -> bool:
        """Say whether a segment is part of what was charged so far.

        Further seeds of a race or a confirmation are charged when they are in, a baseline never.
        """
        return (segment.proposal, segment.seed) in self._charged

    def beyond(self, proposal: ProposalId, seeds: Sequence[int]) -> int:
        """Return the steps of a chain that nobody paid for.

        Neither the budget nor an earlier baseline has.
        """
        return sum(self.of(link) for link, _ in self._unpaid(proposal, seeds))

    def add_beyond(self, proposal: ProposalId, seeds: Sequence[int]) -> None:
        """Note that a baseline trained what nobody had paid for."""
        self._beyond.update(self._unpaid(proposal, seeds))

    def _unpaid(self, proposal: ProposalId, seeds: Sequence[int]) -> list[tuple[ProposalId, int]]:
        links = [(link, seed) for link in self._lineage.chain(proposal) for seed in seeds]
        return [pair for pair in links if pair not in self._charged and pair not in self._beyond]
