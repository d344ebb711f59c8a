"""The next proposal of a search, and the budget for it.

An adaptive study explores with a part of the budget, and confirms its best proposals with the rest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from autorl.core import seeds as streams
from autorl.core.plain_text import counted
from autorl.core.types import (
    Config,
    Continue,
    Done,
    Optimizer,
    Proposal,
    ProposalId,
    Proposed,
    Scored,
    SearchEnd,
    SegmentId,
    Status,
    Wait,
)
from autorl.statistics.evaluation import Adaptive
from autorl.statistics.noise import standard_errors
from autorl.store.events import ENQUEUED, SeedsGranted
from autorl.study.budget import MEASURED_BY_SEGMENT, Spent
from autorl.study.more_seeds import Confirmation
from autorl.study.search import Search


class SearchBudget:
    """The budget of one search, and what ends it early.

    Args:
        search: that spends it.
        elapsed: hours the study has used so far, for `budget.hours`.

    Attributes:
        extra_runs: added to the budget.
        begun: configurations that have begun.
        confirmation: gives the best proposals of an adaptive study more seeds; None of any other.
    """

    def __init__(self, search: Search, elapsed: Callable[[], float]) -> None:
        self.extra_runs = 0.0
        self.begun = 0
        self.confirmation: Confirmation | None = None
        self._search = search
        self._spec = search.spec
        self._policy = search.policy
        self._charges = search.charges
        self._elapsed = elapsed
        if isinstance(search.policy, Adaptive):
            self.confirmation = Confirmation(search)

    # -- what was spent ----------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """The amounts the search has used so far."""
        usage = self._search.usage
        amounts = (self._charges.steps, self.begun, self.extra_runs, self._elapsed())
        return Spent(*amounts, used=usage.used, rate=usage.rate)

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

    # -- what that allows --------------------------------------------------------------------------

    def pays_for(self, proposal: Proposal, begin: int) -> bool:
        """Say whether the first seeds of a proposal can be trained.

        They are trained from step `begin`.
        """
        configurations = self._spec.budget.configurations
        if configurations is not None:
            return proposal.resume_from is not None or self.begun < configurations + self.extra_runs
        cost = (proposal.until - begin) * len(self._policy.first)
        if self._spec.budget.measured in MEASURED_BY_SEGMENT:
            # With what is open, at the rate of what is settled.
            cost += sum(self._charges.of(it.proposal) * len(it.seeds) for it in self._search.queue)
            return self.spent.after(cost).budget_used(self._spec) <= self._explored_share
        return self._charges.steps + cost <= self._exploration_steps

    @property
    def explored(self) -> bool:
        """Say whether nothing new may begin."""
        if self.early is not None:
            return True
        if self.confirmation is not None:
            if self.confirmation.under_way:
                return True
            if self._spec.budget.measured is None:
                return self._charges.steps >= self._exploration_steps
        # Configurations that have begun go on to their end: `pays_for` refuses only new ones.
        return self.used >= self._explored_share and self._spec.budget.configurations is None

    @property
    def early(self) -> SearchEnd | None:
        """Why nothing new should begin although the budget would pay for it."""
        section = self._spec.budget
        if section.target is None and section.converged is None:
            return None
        ranking = self._search.ranking
        best = ranking.best()
        if best is None or not self._search.contends(best):
            return None
        # A racing incumbent whose further seeds are not in may still fall.
        if ranking[best].reached < self._spec.fidelity.steps or self._search.queue.holds(best):
            return None
        if section.target is not None:
            goal = section.target * self._search.judge.objectives[0].sign
            if ranking[best].values[0] >= goal:
                return SearchEnd.TARGET
        if section.converged is None:
            return None
        scores = self._search.contenders().values()
        return SearchEnd.CONVERGED if converged(scores, section.converged) else None

    @property
    def search_end(self) -> SearchEnd:
        """Why a search is over that may begin nothing new."""
        if (early := self.early) is not None:
            return early
        if self._spec.budget.hours is None:
            return SearchEnd.BUDGET
        # The only other reason to confirm before the time to explore is up.
        return SearchEnd.HOURS if self.used >= self._explored_share else SearchEnd.OPTIMIZER

    def next_level(self) -> SeedsGranted | None:
        """Decide what follows when every outcome is in.

        None: the search is over.
        """
        if self.confirmation is None or (self._spec.budget.measured is not None and self.used >= 1):
            return None
        if self.early is not None:
            # The part of the budget that confirms, of as much as was explored.
            return self.confirmation.next_level(math.inf, may_explore=False)
        most = self._spec.budget.configurations
        may_explore = most is not None and self.begun < most + self.extra_runs
        return self.confirmation.next_level(self.steps, may_explore=may_explore)

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


def converged(scores: Iterable[Scored], patience: int) -> bool:
    """Say whether the latest proposals improved no more than seed noise does.

    The best of all scores is then above the best of those before the last `patience` by at most the
    standard error of a score.

    Args:
        scores: of proposals of one length, in their order.
        patience: how many of the latest are looked at.
    """
    values, spreads, seeds = (
        np.array(column)
        for column in zip(*((s.values[0], s.spread[0], s.n_seeds) for s in scores), strict=True)
    )
    if len(values) <= patience + 1:
        return False
    before = int(values[:-patience].argmax())
    error = standard_errors(values, spreads, seeds)[before]
    return bool(values.max() - values[before] <= error)


BASELINE = "default, as far as the incumbent"


class DefaultRuns:
    """The proposals of the default configuration.

    Args:
        search: whose proposals they are.
    """

    def __init__(self, search: Search) -> None:
        self._default = search.spec.search_space.default()
        self._search = search
        self._lineage = search.lineage
        # Apart from the others, because it is looked through at every poll.
        self._numbers: list[ProposalId] = []

    def observe(self, event: Proposed) -> None:
        """Take note of a proposal."""
        if event.proposal.config == self._default and not event.proposal.named:
            self._numbers.append(event.id)

    def longest(self) -> list[ProposalId]:
        """List the proposals of the default configuration, the longest first.

        Only those whose configuration never changed. Proposals that have no score and no failure
        are left out, but for the baseline.
        """
        trained = [
            number
            for number in self._numbers
            if self._lineage[number].baseline or self._search.settled(number)
        ]
        unchanged = [number for number in trained if self._lineage.unchanged(number)]
        # The first proposed of two of one length.
        return sorted(unchanged, key=lambda number: (-self._lineage[number].until, number))

    def baseline(self, longest: ProposalId | None, best: ProposalId) -> Proposal:
        """Propose the default configuration to the incumbent's length.

        It goes on from where the search left it, or begins from scratch.
        """
        incumbent = self._lineage[best]
        proposal = Proposal(
            self._default,
            incumbent.until,
            origin=BASELINE,
            provisional=incumbent.provisional,
            baseline=True,
        )
        if longest is None:
            return proposal
        before = self._lineage[longest]
        return replace(
            proposal, parent=Continue(longest), member=before.member, retain=before.retain
        )


class NextProposal:
    """Asks the optimizer, and puts what was enqueued before its answers.

    Args:
        search: whose next proposal it is.
        budget: pays for it.
        optimizer: is asked. Asking changes none (`optimizers/base.py`).

    Attributes:
        blind: says whether an ask of a number reads no outcome.
        number: of the next ask. Its random numbers follow from it: they are the same after a kill
            and after `Wait`.
    """

    def __init__(self, search: Search, budget: SearchBudget, optimizer: Optimizer) -> None:
        self.number = 0
        self._search = search
        self._spec = search.spec
        self._budget = budget
        self._optimizer = optimizer
        self.blind: Callable[[int], bool] = getattr(optimizer, "blind", lambda number: False)
        self._enqueued: deque[Config] = deque()

    def enqueue(self, config: Config) -> None:
        """Have a configuration proposed as soon as a new one is."""
        self._enqueued.append(config)

    def observe(self, event: Proposed) -> None:
        """Take note of a proposal: the next ask is another."""
        self.number += 1
        if event.proposal.origin == ENQUEUED and self._enqueued:
            self._enqueued.popleft()

    def answer(self) -> Proposal | Wait | Done:
        """Ask the optimizer for its answer, or an enqueued configuration.

        That takes the place of a new one. The default configuration and the warm starts come
        before.
        """
        answer = self._ask()
        if not isinstance(answer, Proposal) or answer.parent is not None:
            return answer
        if not self._enqueued or self._budget.begun <= len(self._spec.starts):
            return answer
        return replace(answer, config=self._enqueued[0], origin=ENQUEUED, informed=False)

    def is_affordable(self, proposal: Proposal) -> bool:
        """Say whether the budget pays for the first seeds of a proposal."""
        parent = None if self.starts_anew(proposal) else proposal.resume_from
        begin = 0 if parent is None else self._search.lineage[parent].until
        return self._budget.pays_for(proposal, begin)

    def starts_anew(self, proposal: Proposal) -> bool:
        """Say whether the run that a proposal continues left no checkpoint.

        That is known, and the same after a kill, once the outcome of that run was observed.
        """
        parent = proposal.resume_from
        if parent is None or not self._search.settled(parent):
            return False
        segments = [SegmentId(parent, seed) for seed in self._search.policy.first]
        outcomes = map(self._search.work.outcome_of, segments)
        return any(
            outcome is not None and outcome.status is Status.DONE and outcome.checkpoint is None
            for outcome in outcomes
        )

    def idle(self) -> str:
        """Say why the budget would train nothing more.

        It is empty if it would train something. Every outcome is in.
        """
        if self._budget.early is not None:
            return f"would train nothing: budget.{self._budget.early} has ended the search"
        more_seeds = self._budget.next_level()
        if more_seeds is not None and more_seeds.proposals:
            return ""
        answer = self._ask()
        if isinstance(answer, Done):
            name = self._spec.optimizer.name
            return (
                f"would train nothing: {name} has nothing more to propose; "
                "a larger plan needs a new study"
            )
        # An adaptive study that has confirmed explores with what is added.
        if more_seeds is None and (
            self._budget.explored
            or (isinstance(answer, Proposal) and not self.is_affordable(answer))
        ):
            steps_left = max(0.0, self._budget.steps - self._search.charges.steps)
            runs_left = round(steps_left / self._spec.fidelity.steps, 6)
            return (
                "would train nothing: the next proposal costs more than the "
                f"{counted(runs_left, 'full run')} left; add more"
            )
        return ""

    def _ask(self) -> Proposal | Wait | Done:
        return self._optimizer.ask(streams.generator(self._spec.seed, "ask", self.number))
