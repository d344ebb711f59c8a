"""The test phase: frozen candidates are trained on unseen seeds.

No optimizer has seen these. The incumbent, the default configuration and the top k are trained from
scratch on the test seeds, same chain, same cuts. With several objectives members of the front take
the place of the top k. Test scores never re-rank anything. With `reduce: best` they are read at the
step chosen on tuning seeds, and training ends there, so that the model that is kept is the one
scored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from autorl.core.types import ProposalId, SeedRole, Segment, StudyError
from autorl.store.events import (
    BudgetExtended,
    Candidate,
    CandidatesFrozen,
    CandidateTested,
    ModelsNamed,
    StudyEvent,
    TestScore,
)
from autorl.study.driver import Driver
from autorl.study.journal import Journal
from autorl.study.spec import Spec
from autorl.study.work import Work

Run: TypeAlias = tuple[ProposalId, int, int | None]
"""A proposal, a seed, and the step it is trained to; None: where the proposal ends."""


def runs_of(
    candidates: Sequence[Candidate], seeds_of: Callable[[ProposalId], Sequence[int]]
) -> list[Run]:
    """List the runs that candidates are trained in."""
    return [
        (candidate.proposal, seed, candidate.end)
        for candidate in candidates
        for seed in seeds_of(candidate.proposal)
    ]


def trained(work: Work, runs: Sequence[Run]) -> tuple[int, int]:
    """Count the runs that are trained, and all of them."""
    return sum(work.known(*run) for run in runs), len(runs)


class Phase(ABC):
    """A phase after the search: candidates are named, and trained.

    Attributes:
        named: the candidates; None while the search is open.
    """

    role: SeedRole

    def __init__(self, spec: Spec, journal: Journal, driver: Driver) -> None:
        self.named: tuple[Candidate, ...] | None = None
        self._spec = spec
        self._journal = journal
        self._driver = driver
        journal.subscribe(self.apply)

    @abstractmethod
    def apply(self, event: StudyEvent) -> None:
        """Take note of an event that is in the log."""

    @abstractmethod
    def _seeds_of(self, proposal: ProposalId) -> Sequence[int]:
        """Return the seeds a candidate is trained with."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates, the incumbent first.

        There are none while the search is open.
        """
        return self.named or ()

    @property
    def runs(self) -> list[Run]:
        """The runs that candidates are trained in."""
        return runs_of(self.candidates, self._seeds_of)

    @property
    def progress(self) -> tuple[int, int]:
        """Runs that are trained, and all of them."""
        return trained(self._driver.work, self.runs)

    def _request(self) -> None:
        for run in self.runs:
            self._driver.work.request(*run, self.role)


class TestPhase(Phase):
    """Freezes the candidates when the search is over.

    It has them trained on the test seeds.

    Attributes:
        latest: the latest candidate of every proposal that was one. An extended study freezes anew.
    """

    __test__ = False  # for pytest: not a test class
    role = "test"

    def __init__(self, spec: Spec, journal: Journal, driver: Driver) -> None:
        self.latest: dict[ProposalId, Candidate] = {}
        self._tested: dict[tuple[ProposalId, int | None], set[int]] = {}
        super().__init__(spec, journal, driver)

    def apply(self, event: StudyEvent) -> None:
        match event:
            case CandidatesFrozen(candidates=candidates):
                self.named = candidates
                self.latest.update({candidate.proposal: candidate for candidate in candidates})
            case CandidateTested(proposal=proposal, scores=scores):
                candidate = self.latest[proposal]
                tested = self._tested.setdefault((proposal, candidate.step), set())
                tested.update(score.seed for score in scores)
            case BudgetExtended():
                # The search is open again and may choose others.
                self.named = None

    def _seeds_of(self, proposal: ProposalId) -> Sequence[int]:
        return self._spec.plan.test

    def tested_on(self, candidate: Candidate) -> Collection[int]:
        """Return the test seeds a candidate has a score on.

        The score is at its step.
        """
        return self._tested.get((candidate.proposal, candidate.step), ())

    def advance(self) -> list[Segment]:
        """Freeze the candidates unless they are frozen.

        Returns:
            Every segment that can start.

        Raises:
            StudyError: nothing was scored, so there is nothing to test.
        """
        if self.named is None:
            chosen = tuple(self._candidate(label, number) for label, number in self._choose())
            seeds = tuple(self._spec.plan.test)
            self._journal.record(CandidatesFrozen(chosen, seeds, self._driver.end_search()))
        self._request()
        self._settle()
        return self._driver.work.drain()

    def _candidate(self, label: str, proposal: ProposalId) -> Candidate:
        """Return a proposal as a candidate, with its step.

        Its score is read at that step.
        """
        step = self._driver.chosen_step(proposal)
        before = self.latest.get(proposal)
        if before is not None and before.end is None and self.tested_on(before):
            # Whole test runs that are there already are read at the step, not trained again.
            return Candidate(label, proposal, step)
        return Candidate(label, proposal, step, self._driver.end_at(proposal, step))

    def _choose(self) -> list[tuple[str, ProposalId]]:
        """List what is tested, by label: one proposal for each run.

        Raises:
            StudyError: nothing was scored.
        """
        ranking = self._driver.ranking
        best = ranking.best()
        if best is None:
            why = ""
            if self._driver.last_failure:
                why = f"; the last failed with: {self._driver.last_failure}"
            raise StudyError(f"no proposal was scored: there is no incumbent{why}")
        chosen = [("incumbent", best)]
        # Trained the furthest without a change.
        defaults = self._driver.default_runs.longest()
        default = next(filter(self._driver.settled, defaults), None)
        if default is not None:
            chosen.append(("default", default))
        for number, proposal in self._driver.named_baselines(best):
            if number is not None and self._driver.settled(number):
                chosen.append((proposal.origin, number))
        # Proposals of one run share their test segments: it is tested once.
        by_root: dict[ProposalId, tuple[str, ProposalId]] = {}
        for label, number in (*chosen, *self._others(best)):
            by_root.setdefault(self._driver.lineage.root(number), (label, number))
        return list(by_root.values())

    def _others(self, best: ProposalId) -> list[tuple[str, ProposalId]]:
        """List what is tested beside the incumbent.

        The next by rank; of a front both ends and what lies between.
        """
        ranking = self._driver.ranking
        top = self._spec.test.top
        kind = "rank"
        numbers = ranking.ordered(top)
        if len(self._spec.objective) > 1:
            kind = "front"
            # The incumbent first, so that it is one of the ends that `spread` keeps.
            front = sorted(
                ranking.front(),
                key=lambda number: (number != best, -ranking[number].values[0], number),
            )
            numbers = spread(front, top)
        beside = [number for number in numbers if number != best]
        return [(f"{kind} {place}", number) for place, number in enumerate(beside, start=2)]

    def _settle(self) -> None:
        """Record the candidates whose test runs are all in."""
        work = self._driver.work
        for candidate in self.candidates:
            done = self.tested_on(candidate)
            seeds = [seed for seed in self._spec.plan.test if seed not in done]
            if seeds and all(work.known(candidate.proposal, seed, candidate.end) for seed in seeds):
                scores = [score for seed in seeds for score in self._scores(candidate, seed)]
                self._journal.record(
                    CandidateTested(candidate.proposal, candidate.label, tuple(scores))
                )

    def _scores(self, candidate: Candidate, seed: int) -> list[TestScore]:
        """Return a candidate's scores on one test seed, by objective."""
        run = (candidate.proposal, seed, candidate.end)
        judge = self._driver.judge
        result = self._driver.work.value(*run)
        if not result.status.failed:
            result = judge.at_step(seed, self._driver.work.curve(*run), candidate.step)
        status = result.status
        # No value of a run that failed: a penalty is made of tuning scores, and is no test score.
        scores = [None] * len(judge.objectives) if status.failed else judge.raw(result.values)
        return [TestScore(index, seed, value, status) for index, value in enumerate(scores)]


def spread(front: Sequence[ProposalId], k: int) -> list[ProposalId]:
    """Choose at most `k` of a front: both ends, and evenly between.

    The front is ordered by one objective.
    """
    if k < 2 or len(front) < 2:
        return list(front[: max(k, 0)])
    # A set: where k is larger than the front, places coincide.
    places = {round(place * (len(front) - 1) / (k - 1)) for place in range(k)}
    return [front[place] for place in sorted(places)]


class KeptModels(Phase):
    """Names the proposals whose models are kept.

    It has them trained to their step.
    """

    role = "tuning"

    def apply(self, event: StudyEvent) -> None:
        match event:
            case ModelsNamed(candidates=candidates):
                self.named = candidates
            case BudgetExtended():
                self.named = None

    def _seeds_of(self, proposal: ProposalId) -> Sequence[int]:
        return self._driver.tuning_seeds(proposal)

    def advance(self) -> list[Segment]:
        """Name the proposals unless they are named.

        Returns:
            Every segment that can start.
        """
        if self.named is None:
            # The checkpoint a run goes on from depends on decisions, not on their time.
            self._driver.retention.collect()
            keep = self._spec.keep.checkpoints
            count = 1 if keep == "incumbent" else max(1, self._spec.test.top)
            if keep == "none" or not self._spec.ends_at_chosen_step:
                count = 0
            candidates = map(self._candidate, self._driver.ranking.ordered(count))
            named = tuple(candidate for candidate in candidates if candidate is not None)
            if named:
                self._journal.record(ModelsNamed(named, self._driver.end_search()))
            else:
                self.named = ()  # no event: the answer is the same whenever it is asked
        self._request()
        return self._driver.work.drain()

    def _candidate(self, proposal: ProposalId) -> Candidate | None:
        """Return a proposal with its step.

        None: its model is of that step already, or cannot be trained to it.
        """
        driver = self._driver
        step = driver.chosen_step(proposal)
        end = driver.end_at(proposal, step)
        saved = any(
            driver.work.head(proposal, seed) in driver.work.saved
            for seed in driver.tuning_seeds(proposal)
        )
        # The donors' checkpoints of earlier steps are gone unless the lineage is kept.
        copied = (
            not driver.lineage.unchanged(proposal) and len(driver.lineage.path(proposal, end)) > 1
        )
        if end is None or not saved or (copied and self._spec.keep.checkpoints != "lineage"):
            return None
        return Candidate("kept", proposal, step, end)
