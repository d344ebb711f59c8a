"""The asks of a search: what is proposed next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from autorl import seeds as streams
from autorl.plain_text import counted
from autorl.spec import Spec
from autorl.store.events import ENQUEUED
from autorl.study.lineage import Lineage
from autorl.study.purse import Purse
from autorl.study.work import Work
from autorl.types import (
    Config,
    Done,
    Optimizer,
    Proposal,
    ProposalId,
    Proposed,
    Status,
    Wait,
)


class Asks:
    """Asks the optimizer, and puts what was enqueued before its answers.

    Args:
        spec: the study file.
        optimizer: is asked. Asking changes none (`optimizers/base.py`).
        purse: what the budget still allows.
        lineage: the chains of proposals.
        work: the segments, and how they ended.
        settled: says whether an outcome of a proposal was observed.

    Attributes:
        number: of the next ask. Its random numbers follow from it: they are the same after a kill
            and after `Wait`.
    """

    def __init__(
        self,
        spec: Spec,
        optimizer: Optimizer,
        purse: Purse,
        lineage: Lineage,
        work: Work,
        settled: Callable[[ProposalId], bool],
    ) -> None:
        self.number = 0
        self._spec = spec
        self._first_seeds = spec.policy().first
        self._optimizer = optimizer
        self._purse = purse
        self._lineage = lineage
        self._work = work
        self._settled = settled
        self._blind: Callable[[int], bool] = getattr(optimizer, "blind", lambda number: False)
        self._enqueued: deque[Config] = deque()

    def enqueue(self, config: Config) -> None:
        """Have a configuration proposed as soon as a new one is."""
        self._enqueued.append(config)

    def observe(self, event: Proposed) -> None:
        """Take note of a proposal: the next ask is another."""
        self.number += 1
        if event.proposal.origin == ENQUEUED and self._enqueued:
            self._enqueued.popleft()

    def is_blind(self) -> bool:
        """Say whether the next ask reads no outcome."""
        return self._blind(self.number)

    def answer(self) -> Proposal | Wait | Done:
        """Ask the optimizer for its answer, or an enqueued configuration.

        That takes the place of a new one. The default configuration and the warm starts come
        before.
        """
        answer = self._ask()
        if not isinstance(answer, Proposal) or answer.parent is not None:
            return answer
        if not self._enqueued or self._purse.begun <= len(self._spec.starts):
            return answer
        return replace(answer, config=self._enqueued[0], origin=ENQUEUED, informed=False)

    def is_affordable(self, proposal: Proposal) -> bool:
        """Say whether the budget pays for the first seeds of a proposal."""
        parent = None if self.starts_anew(proposal) else proposal.resume_from
        begin = 0 if parent is None else self._lineage[parent].until
        return self._purse.pays_for(proposal, begin)

    def starts_anew(self, proposal: Proposal) -> bool:
        """Say whether the run that a proposal continues left no checkpoint.

        That is known, and the same after a kill, once the outcome of that run was observed.
        """
        parent = proposal.resume_from
        if parent is None or not self._settled(parent):
            return False
        outcomes = [self._work.outcome(parent, seed) for seed in self._first_seeds]
        return any(
            outcome is not None and outcome.status is Status.DONE and outcome.checkpoint is None
            for outcome in outcomes
        )

    def idle_with(self, more: float) -> str:
        """Say why `more` runs of budget would train nothing.

        Empty where something would be. Every outcome is in.
        """
        with self._purse.extended(more):
            more_seeds = self._purse.next_level()
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
                self._purse.explored
                or (isinstance(answer, Proposal) and not self.is_affordable(answer))
            ):
                runs_left = self._purse.left / self._spec.fidelity.steps
                return (
                    "would train nothing: the next proposal costs more than the "
                    f"{counted(round(runs_left, 6), 'full run')} left; add more"
                )
            return ""

    def _ask(self) -> Proposal | Wait | Done:
        return self._optimizer.ask(streams.generator(self._spec.seed, "ask", self.number))
