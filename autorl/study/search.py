"""The state of a search that its parts share."""

from __future__ import annotations

from autorl.core.types import ProposalId, Scored
from autorl.statistics.evaluation import Ranking
from autorl.study.budget import Charges, Usage
from autorl.study.journal import Journal
from autorl.study.lineage import Lineage
from autorl.study.open_proposals import Queue
from autorl.study.spec import Spec
from autorl.study.work import Work


class Search:
    """Proposals, how they are trained, and their scores.

    Args:
        spec: the study file.
        journal: records every event before anything depends on it.

    Attributes:
        judge: scores the proposals.
        policy: says which seeds a proposal is trained with.
        ranking: the scored proposals.
        lineage: the chains of proposals.
        charges: what the budget was charged.
        usage: GPU-hours, tokens or completions of it that outcomes used.
        work: the segments, and how they ended.
        queue: the proposals under evaluation.
        costs: predicted of one seed of each proposal.
        ended: nothing more is proposed: by the budget or the optimizer, by `end_search`, or because
            the log says what is tested. More budget opens the search again.
    """

    def __init__(self, spec: Spec, journal: Journal) -> None:
        self.spec = spec
        self.judge = spec.judge()
        self.policy = spec.policy()
        self.ranking = Ranking()
        self.lineage = Lineage(spec.plan)
        self.charges = Charges(self.lineage)
        self.usage = Usage(spec, self.lineage)
        self.work = Work(spec, journal, self.lineage, self.judge)
        self.queue = Queue(self.lineage.ancestors)
        self.costs: dict[ProposalId, float] = {}
        self.ended = False
        self._seeds_of: dict[ProposalId, tuple[int, ...]] = {}

    @property
    def finished(self) -> bool:
        """Say whether nothing more will be proposed and nothing is unsettled."""
        return self.ended and not self.queue

    def settled(self, proposal: ProposalId) -> bool:
        """Say whether an outcome of a proposal was observed."""
        return proposal in self._seeds_of

    def tuning_seeds(self, proposal: ProposalId) -> tuple[int, ...]:
        """Return the tuning seeds a scored proposal was last scored with."""
        return self._seeds_of[proposal]

    def contenders(self) -> dict[ProposalId, Scored]:
        """Return the proposals that the incumbent is one of, in their order.

        They are feasible and as long as it, and no agent of theirs was picked on the way.
        """
        eligible = [self.ranking[n] for n in sorted(self.ranking.ordered()) if self.contends(n)]
        top = max((event.reached for event in eligible), default=0)
        return {event.proposal: event for event in eligible if event.reached == top}

    def contends(self, number: ProposalId) -> bool:
        """Tell whether a scored proposal is one, if it is long enough."""
        feasible = not any(violation > 0 for violation in self.ranking[number].constraints)
        proposal = self.lineage[number]
        return feasible and not proposal.provisional and not proposal.baseline
