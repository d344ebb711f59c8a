"""Amounts that a search spends, is charged and gets back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autorl.core.plain_text import counted
from autorl.core.types import Outcome, ProposalId, SegmentId, Status
from autorl.store.events import (
    BudgetExtended,
    ProposalFailed,
    ProposalScored,
    SegmentEnded,
    SessionBegun,
    StudyEvent,
)
from autorl.study.lineage import Lineage
from autorl.study.spec import Spec
from autorl.study.spec.sections import COUNTED

MEASURED_BY_SEGMENT = ("gpu_hours", *COUNTED)
"""Budgets that outcomes use up."""
MEASURED_NOUNS = {"hours": "hour", "gpu_hours": "GPU-hour"} | {name: name[:-1] for name in COUNTED}
"""The unit of each budget that a clock or outcomes use up."""


@dataclass(frozen=True)
class Spent:
    """Amounts a study has used so far.

    Attributes:
        charged_steps: nominal tuning steps.
        begun: configurations that started from scratch.
        extra_runs: what was added to the budget.
        hours: of driver time, earlier sessions included.
        used: GPU-hours, tokens or completions, where the budget counts them.
        rate: the same per nominal step, 0 before any proposal was settled.
    """

    charged_steps: int
    begun: int
    extra_runs: float
    hours: float
    used: float = 0.0
    rate: float = 0.0

    def after(self, steps: int) -> Spent:
        """Return the amounts after so many nominal steps more."""
        return replace(self, used=round(self.used + self.rate * steps, 6))

    def budget_steps(self, spec: Spec) -> float:
        """The budget in nominal tuning steps, infinite if not counted in them."""
        budget = spec.budget
        if budget.environment_steps is not None:
            return float(budget.environment_steps)
        if budget.runs is not None:
            # 2.3 runs of 100 are 230.
            return round((budget.runs + self.extra_runs) * spec.fidelity.steps, 6)
        return float("inf")

    def budget_used(self, spec: Spec) -> float:
        """Share of the budget used, in [0, 1].

        Racing may end a little above.
        """
        budget = spec.budget
        # Each budget is counted in one thing alone: `BudgetSection` refuses two.
        if budget.hours is not None:
            return self.hours / budget.hours
        if budget.configurations is not None:
            return self.begun / (budget.configurations + self.extra_runs)
        if budget.measured is not None:
            return self.used / float(getattr(budget, budget.measured))
        return self.charged_steps / self.budget_steps(spec)


class Charges:
    """The nominal steps that a search was charged for.

    Every (proposal, seed) is charged once, when it is first known that it will be trained.

    Attributes:
        steps: nominal tuning steps charged so far.
        ever: the same, with steps that were given back.
        anew: proposals that continue a run without a checkpoint: charged from step 0.
    """

    def __init__(self, lineage: Lineage) -> None:
        self.steps = 0
        self.ever = 0
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
                    self.ever += self.of(proposal)

    def refund(self, proposals: Sequence[ProposalId], seeds: Sequence[int]) -> None:
        """Give back what was charged for every (proposal, seed)."""
        self.steps -= sum(map(self.of, proposals)) * len(seeds)

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


class Usage:
    """GPU-hours, tokens or completions of a search, where its budget counts them.

    Segments count once their proposal is settled, so that what is asked next depends on no timing.

    Args:
        spec: the study file.
        lineage: knows every proposal that is settled.

    Attributes:
        used: the amount so far.
    """

    def __init__(self, spec: Spec, lineage: Lineage) -> None:
        self.used = 0.0
        self._spec = spec
        self._lineage = lineage
        self._steps = 0
        # Of segments whose proposal is not settled: the amount, None where they told none.
        self._ended: dict[SegmentId, tuple[float | None, int]] = {}
        self._counts: dict[SegmentId, float] = {}  # of the run, where a segment ended

    @property
    def rate(self) -> float:
        """The amount per nominal step, 0 before any proposal was settled."""
        return self.used / self._steps if self._steps else 0.0

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log."""
        if self._spec.budget.measured not in MEASURED_BY_SEGMENT:
            return
        match event:
            case SegmentEnded(segment=segment, place=place) if segment.end is None:
                steps = self._lineage[segment.proposal].until - place.from_step
                self._ended[segment] = self._amount(event), steps
            case (
                ProposalScored(scored=result, beyond=None)
                | ProposalFailed(failed=result, beyond=None)
            ):
                for link in self._lineage.chain(result.proposal):
                    for seed in event.seeds:
                        self._count(SegmentId(link, seed))

    def _count(self, segment: SegmentId) -> None:
        amount, steps = self._ended.pop(segment, (0.0, 0))
        # A failure without a number counts as its length: else failures would never end a search.
        self.used += self.rate * steps if amount is None else amount
        self._steps += steps

    def _amount(self, event: SegmentEnded) -> float | None:
        outcome = event.outcome
        name = self._spec.budget.counted
        if name is None:
            needs = self._spec.resources_for(self._lineage[event.segment.proposal].config)
            seconds = outcome.cost.get("wall_seconds")
            return None if seconds is None else seconds * needs.gpu * needs.nodes / 3600
        if name in outcome.cost:
            return outcome.cost[name]
        counts = [report.metrics[name] for report in outcome.reports if name in report.metrics]
        if not counts:
            return None
        self._counts[event.segment] = counts[-1]
        before = 0.0 if event.place.parent is None else self._counts.get(event.place.parent, 0.0)
        return counts[-1] - before if counts[-1] >= before else counts[-1]  # it began from 0 again


def refunded_text(count: int) -> str:
    """Say in one line that failed proposals are not charged."""
    return f"not charged: {counted(count, 'failed proposal')} of other code"


class Refunds:
    """Crashed proposals, with the user's code that crashed.

    Args:
        spec: the study file.
        charges: what the budget was charged.
    """

    def __init__(self, spec: Spec, charges: Charges) -> None:
        self._first = frozenset(spec.policy().first)
        self._charges = charges
        self._files: Mapping[str, str] = {}  # of the session, by hash
        self._crashed: dict[ProposalId, dict[int, Mapping[str, str]]] = {}

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log."""
        match event:
            case SessionBegun(facts=facts):
                self._files = facts.get("files", {})
            case SegmentEnded(segment=segment, outcome=Outcome(status=Status.CRASH)):
                # A run that is trained once more, for its model, was charged before.
                if segment.end is None and self._charges.covers(segment):
                    by_seed = self._crashed.setdefault(segment.proposal, {})
                    by_seed[segment.seed] = self._files
            case BudgetExtended(refunded=refunded):
                for proposal in refunded:
                    del self._crashed[proposal]

    def due(self, files: Mapping[str, str]) -> tuple[ProposalId, ...]:
        """List proposals whose first seeds all crashed with other code than `files`."""
        return tuple(
            proposal
            for proposal, by_seed in sorted(self._crashed.items())
            if by_seed.keys() >= self._first and files not in by_seed.values()
        )
