"""Without test seeds: the tuning runs whose models are kept, trained once more to the step their score is of.

`reduce: best` reads a score before the end of a run, and the search trains to the end. What `keep` names is trained to
that step again with the tuning seeds, after the search and beyond the budget, so that the model kept is the one scored.
"""

from __future__ import annotations

from autorl.spec import Spec
from autorl.store.events import BudgetExtended, Candidate, ModelsNamed, StudyEvent
from autorl.study.driver import Driver
from autorl.study.journal import Journal
from autorl.types import ProposalId, Segment


class KeptModels:
    """The proposals whose models are kept, and the runs that train them to their step. A fold over `models` events."""

    def __init__(self, spec: Spec, journal: Journal, driver: Driver) -> None:
        self._spec = spec
        self._journal = journal
        self._driver = driver
        self._named: tuple[Candidate, ...] | None = None
        journal.keep(self.apply)

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log, if it names models or opens the search again."""
        match event:
            case ModelsNamed(candidates=candidates):
                self._named = candidates
            case BudgetExtended():
                self._named = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return self._named or ()

    @property
    def progress(self) -> tuple[int, int]:
        """Runs trained so far, and all of them."""
        runs = [
            (one.proposal, seed, one.end)
            for one in self.candidates
            for seed in self._seeds(one.proposal)
        ]
        return sum(self._driver.work.known(*run) for run in runs), len(runs)

    def advance(self) -> list[Segment]:
        """Name the proposals if that was not done, and hand out every segment that can start."""
        if self._named is None:
            self._driver.collect()  # what a run can go on from depends on what was decided, not on when
            named = tuple(one for one in map(self._candidate, self._kept()) if one is not None)
            if named:
                self._journal.record(ModelsNamed(named))
            else:
                self._named = ()  # the same whenever it is asked: no event is needed
        for one in self.candidates:
            for seed in self._seeds(one.proposal):
                self._driver.work.request(one.proposal, seed, "tuning", one.end)
        return self._driver.work.drain()

    def _kept(self) -> list[ProposalId]:
        keep, ordered = self._spec.keep.checkpoints, self._driver.ranking.ordered()
        if keep == "none" or not self._spec.ends_at_chosen_step:
            return []
        return ordered[: 1 if keep == "incumbent" else max(1, self._spec.test.top)]

    def _candidate(self, proposal: ProposalId) -> Candidate | None:
        """The proposal with its step; None: its model is of that step already, or cannot be trained to it."""
        driver = self._driver
        step = driver.chosen_step(proposal)
        end = driver.end_at(proposal, step)
        saved = any(
            driver.work.head(proposal, seed) in driver.work.saved for seed in self._seeds(proposal)
        )
        copied = (
            not driver.lineage.unchanged(proposal) and len(driver.lineage.path(proposal, end)) > 1
        )
        if end is None or not saved or (copied and self._spec.keep.checkpoints != "lineage"):
            return None
        return Candidate("kept", proposal, step, end)

    def _seeds(self, proposal: ProposalId) -> tuple[int, ...]:
        return self._driver.tuning_seeds(proposal)
