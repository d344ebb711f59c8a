"""What a search may still spend of its budget.

An adaptive study explores with a part of it, and confirms its best proposals with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autorl.evaluation import Adaptive, Ranking
from autorl.spec import Spec
from autorl.store.events import SeedsGranted
from autorl.study.budget import Spent, is_extension
from autorl.study.charges import Charges
from autorl.study.confirming import Confirmation, Funds
from autorl.study.lineage import Lineage
from autorl.types import Proposal, SearchEnd


class Purse:
    """The budget of one search, and what is left of it.

    Args:
        spec: the study file.
        ranking: the scored proposals.
        lineage: the chains of proposals.
        charges: what the budget was charged.
        elapsed: hours the study has used so far, for `budget.hours`.

    Attributes:
        extra_runs: added to the budget.
        begun: configurations that have begun.
        confirmation: gives the best proposals of an adaptive study more seeds; None of any other.
    """

    def __init__(
        self,
        spec: Spec,
        ranking: Ranking,
        lineage: Lineage,
        charges: Charges,
        elapsed: Callable[[], float],
    ) -> None:
        self.extra_runs = 0.0
        self.begun = 0
        self.confirmation: Confirmation | None = None
        self._spec = spec
        self._policy = spec.policy()
        self._charges = charges
        self._elapsed = elapsed
        if isinstance(self._policy, Adaptive):
            self.confirmation = Confirmation(
                self._policy, spec.fidelity.steps, ranking, lineage, charges
            )

    def extend(self, runs: float) -> None:
        """Add to the budget."""
        # Earlier versions recorded NaN, which no budget comes back from.
        if is_extension(runs):
            self.extra_runs += runs

    @contextmanager
    def extended(self, more: float) -> Iterator[None]:
        """Have so many runs more in a block."""
        before = self.extra_runs
        self.extra_runs += more
        try:
            yield
        finally:
            self.extra_runs = before

    # -- what was spent ----------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """The amounts the search has used so far."""
        return Spent(self._charges.steps, self.begun, self.extra_runs, self._elapsed())

    @property
    def steps(self) -> float:
        """The budget in nominal tuning steps.

        It is infinite when it is not counted in steps.
        """
        return self.spent.budget_steps(self._spec)

    @property
    def used(self) -> float:
        """The share of the budget used, in [0, 1].

        Racing may end a little above.
        """
        return self.spent.budget_used(self._spec)

    @property
    def left(self) -> float:
        """Nominal tuning steps that are left.

        They are infinite when the budget is not counted in steps.
        """
        return max(0.0, self.steps - self._charges.steps)

    # -- what that allows --------------------------------------------------------------------------

    def pays_for(self, proposal: Proposal, begin: int) -> bool:
        """Say whether the first seeds of a proposal can be trained.

        They are trained from step `begin`.
        """
        configurations = self._spec.budget.configurations
        if configurations is not None:
            most = configurations + self.extra_runs
            return proposal.resume_from is not None or self.begun < most
        cost = (proposal.until - begin) * len(self._policy.first)
        return self._charges.steps + cost <= self._exploration_steps

    @property
    def explored(self) -> bool:
        """Say whether nothing new may begin."""
        if self.confirmation is not None:
            if self.confirmation.under_way:
                return True
            if self._spec.budget.hours is None:
                return self._charges.steps >= self._exploration_steps
        # Configurations that have begun go on to their end: `pays_for` refuses only new ones.
        return self.used >= self._explored_share and self._spec.budget.configurations is None

    @property
    def search_end(self) -> SearchEnd:
        """Why a search is over that may begin nothing new."""
        if self._spec.budget.hours is None:
            return SearchEnd.BUDGET
        # The only other reason to confirm before the time to explore is up.
        return SearchEnd.HOURS if self.used >= self._explored_share else SearchEnd.OPTIMIZER

    @property
    def asked_to_end(self) -> SearchEnd:
        """Why a search is over that somebody has ended."""
        return self.search_end if self.used >= 1 else SearchEnd.TEST

    def next_level(self) -> SeedsGranted | None:
        """Decide what follows when every outcome is in.

        None: the search is over.
        """
        if self.confirmation is None or (self._spec.budget.hours is not None and self.used >= 1):
            return None
        most = self._spec.budget.configurations
        may_explore = most is not None and self.begun < most + self.extra_runs
        return self.confirmation.next_level(Funds(self.steps, self._charges.steps, may_explore))

    @property
    def _explored_share(self) -> float:
        """The share of the budget that the search may explore with."""
        return 1 - self._policy.share if isinstance(self._policy, Adaptive) else 1.0

    @property
    def _exploration_steps(self) -> float:
        """The charged steps at which the search explores no more."""
        if self.confirmation is None:
            return self.steps
        return self.confirmation.limit(self.steps)
