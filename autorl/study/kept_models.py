"""Models of studies without test seeds.

Tuning runs are trained once more, to the step of their score. `reduce: best` reads a score before
the end of a run, and the search trains to the end. What `keep` names is trained to that step again
with the tuning seeds, after the search and beyond the budget, so that the model that is kept is the
one scored.
"""

from __future__ import annotations

from autorl.spec import Spec
from autorl.store.events import BudgetExtended, Candidate, ModelsNamed, StudyEvent
from autorl.study.driver import Driver
from autorl.study.journal import Journal
from autorl.types import ProposalId, Segment


class KeptModels:
    """Names the proposals whose models are kept.

    It has them trained to their step.
    """

    def __init__(self, spec: Spec, journal: Journal, driver: Driver) -> None:
        self._spec = spec
        self._journal = journal
        self._driver = driver
        self._named: tuple[Candidate, ...] | None = None
        journal.subscribe(self.apply)

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log.

        Those of other kinds say nothing about models.
        """
        match event:
            case ModelsNamed(candidates=candidates):
                self._named = candidates
            case BudgetExtended():
                self._named = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The proposals whose models are kept.

        There are none while the search is open.
        """
        return self._named or ()

    @property
    def progress(self) -> tuple[int, int]:
        """Runs that are trained, and all of them."""
        runs = [
            (candidate.proposal, seed, candidate.end)
            for candidate in self.candidates
            for seed in self._seeds(candidate.proposal)
        ]
        return sum(self._driver.work.known(*run) for run in runs), len(runs)

    def advance(self) -> list[Segment]:
        """Name the proposals unless they are named.

        Returns:
            Every segment that can start.
        """
        if self._named is None:
            # What a run can go on from depends on what was decided, not on when.
            self._driver.collect()
            candidates = map(self._candidate, self._to_keep())
            named = tuple(candidate for candidate in candidates if candidate is not None)
            if named:
                self._journal.record(ModelsNamed(named, self._driver.end_search()))
            else:
                self._named = ()  # no event: the answer is the same whenever it is asked
        for candidate in self.candidates:
            for seed in self._seeds(candidate.proposal):
                self._driver.work.request(candidate.proposal, seed, "tuning", candidate.end)
        return self._driver.work.drain()

    def _to_keep(self) -> list[ProposalId]:
        """List the proposals whose models `keep` asks for, the best first."""
        keep = self._spec.keep.checkpoints
        ordered = self._driver.ranking.ordered()
        if keep == "none" or not self._spec.ends_at_chosen_step:
            return []
        return ordered[: 1 if keep == "incumbent" else max(1, self._spec.test.top)]

    def _candidate(self, proposal: ProposalId) -> Candidate | None:
        """Return a proposal with its step.

        None: its model is of that step already, or cannot be trained to it.
        """
        driver = self._driver
        step = driver.chosen_step(proposal)
        end = driver.end_at(proposal, step)
        saved = any(
            driver.work.head(proposal, seed) in driver.work.saved for seed in self._seeds(proposal)
        )
        # The donors' checkpoints of earlier steps are gone unless the lineage is kept.
        copied = (
            not driver.lineage.unchanged(proposal) and len(driver.lineage.path(proposal, end)) > 1
        )
        if end is None or not saved or (copied and self._spec.keep.checkpoints != "lineage"):
            return None
        return Candidate("kept", proposal, step, end)

    def _seeds(self, proposal: ProposalId) -> tuple[int, ...]:
        """Return the seeds the score of a proposal is of."""
        return self._driver.tuning_seeds(proposal)
