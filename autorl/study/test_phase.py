"""The test phase: after the search is over, the frozen incumbent is trained on seeds no optimizer has seen.

The incumbent, the default configuration and the top k are trained from scratch on the test seeds, same chain, same
cuts; with several objectives members of the front take the place of the top k. Test scores never re-rank anything.
With `reduce: best` they are read at the step chosen on tuning seeds, and training ends there: the model kept is the one
scored.
"""

from __future__ import annotations

from dataclasses import dataclass

from autorl.spec import Spec
from autorl.store import Store
from autorl.study.driver import Driver
from autorl.study.front import spread
from autorl.types import FrozenMap, ProposalId, Segment, StudyError


@dataclass(frozen=True)
class Candidate:
    """A proposal to be tested, and why.

    Attributes:
        step: its test score is read at; None: by the study's reduction.
        end: its runs are trained to; None: as far as the proposal.
    """

    label: str
    proposal: ProposalId
    step: int | None
    end: int | None = None


class Frozen:
    """The candidates of a study, and the seeds each is tested on: a fold over its events.

    Attributes:
        frozen: the candidates; None while the search is open.
        latest: of every proposal that was a candidate once, the latest.
    """

    def __init__(self) -> None:
        self.frozen: tuple[Candidate, ...] | None = None
        self.latest: dict[ProposalId, Candidate] = {}
        self._tested: dict[tuple[ProposalId, int | None], set[int]] = {}

    def replay(self, kind: str, body: FrozenMap) -> None:
        """Take a stored event: `frozen`, `tested`, or `budget`, which opens the search again."""
        if kind == "frozen":
            self.freeze(tuple(Candidate(*entry) for entry in body["candidates"]))
        elif kind == "tested":
            candidate = self.latest[body["proposal"]]
            self.tested_on(candidate).update(row[1] for row in body["rows"])
        elif kind == "budget":
            self.frozen = None

    def freeze(self, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        self.frozen = candidates
        self.latest.update({candidate.proposal: candidate for candidate in candidates})
        return candidates

    def tested_on(self, candidate: Candidate) -> set[int]:
        """The test seeds a candidate's score at its step is known of."""
        return self._tested.setdefault((candidate.proposal, candidate.step), set())

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return self.frozen or ()


class TestPhase(Frozen):
    """Trains the frozen candidates on the test seeds; knows which are tested. Created from the search's final state."""

    __test__ = False  # for pytest: not a test class

    def __init__(self, spec: Spec, store: Store, driver: Driver) -> None:
        super().__init__()
        self._spec = spec
        self._store = store
        self._driver = driver

    def advance(self) -> list[Segment]:
        """Freeze the candidates if that was not done, and hand out every test segment that can start.

        Raises:
            StudyError: nothing was scored, so there is nothing to test.
        """
        work = self._driver.work
        for candidate in self._candidates():
            for seed in self._spec.plan.test:
                work.request(candidate.proposal, seed, "test", candidate.end)
        self._settle()
        return work.drain()

    @property
    def finished(self) -> bool:
        """Every candidate is tested on every test seed."""
        if self.frozen is None:
            return False
        wanted = set(self._spec.plan.test)
        return all(wanted <= self.tested_on(candidate) for candidate in self.frozen)

    @property
    def progress(self) -> tuple[int, int]:
        """(Candidate, seed) trained so far, and all of them."""
        runs = [
            (one.proposal, seed, one.end)
            for one in self.candidates
            for seed in self._spec.plan.test
        ]
        return sum(self._driver.work.known(*run) for run in runs), len(runs)

    def _candidates(self) -> tuple[Candidate, ...]:
        if self.frozen is None:
            chosen = tuple(self._candidate(label, number) for label, number in self._choose())
            rows = [[one.label, one.proposal, one.step, one.end] for one in chosen]
            self._store.append("frozen", {"candidates": rows, "seeds": self._spec.plan.test})
            return self.freeze(chosen)
        return self.frozen

    def _candidate(self, label: str, proposal: ProposalId) -> Candidate:
        """The candidate with its step; whole test runs that are there already are read at it, not trained again."""
        step = self._driver.chosen_step(proposal)
        before = self.latest.get(proposal)
        whole = before is not None and before.end is None and bool(self.tested_on(before))
        return Candidate(
            label, proposal, step, None if whole else self._driver.end_at(proposal, step)
        )

    def _choose(self) -> list[tuple[str, ProposalId]]:
        ranking, lineage = self._driver.ranking, self._driver.lineage
        best = ranking.best()
        if best is None:
            why = (
                f"; the last failed with: {self._driver.last_failure}"
                if self._driver.last_failure
                else ""
            )
            raise StudyError(f"no proposal was scored: there is no incumbent{why}")
        chosen = [("incumbent", best)]
        default = self._longest_of_default()
        if default is not None and lineage.root(default) != lineage.root(best):
            chosen.append(("default", default))
        roots = {lineage.root(number) for _, number in chosen}
        for label, number in self._others(best):
            if lineage.root(number) not in roots:
                roots.add(lineage.root(number))
                chosen.append((label, number))
        return chosen

    def _others(self, best: ProposalId) -> list[tuple[str, ProposalId]]:
        """What is tested beside the incumbent: the next by rank, or of a front both ends and what lies between."""
        ranking, top = self._driver.ranking, self._spec.test.top
        if len(self._spec.objective) > 1:
            front = sorted(
                ranking.front(),
                key=lambda number: (number != best, -ranking[number].values[0], number),
            )
            found = [number for number in spread(front, top) if number != best]
            return [(f"front {place}", number) for place, number in enumerate(found, start=2)]
        found = [number for number in ranking.ordered() if number != best][: max(top - 1, 0)]
        return [(f"rank {place}", number) for place, number in enumerate(found, start=2)]

    def _longest_of_default(self) -> ProposalId | None:
        """The default configuration trained the furthest without a change; None when it was never trained."""
        return next(
            (
                number
                for number in self._driver.longest_of_default()
                if self._driver.settled(number)
            ),
            None,
        )

    def _settle(self) -> None:
        """Record the candidates whose test runs are all in."""
        work = self._driver.work
        for candidate in self._candidates():
            done = self.tested_on(candidate)
            seeds = [seed for seed in self._spec.plan.test if seed not in done]
            if seeds and all(work.known(candidate.proposal, seed, candidate.end) for seed in seeds):
                rows = [row for seed in seeds for row in self._rows(candidate, seed)]
                self._store.append(
                    "tested",
                    {"proposal": candidate.proposal, "label": candidate.label, "rows": rows},
                )
                done.update(seeds)

    def _rows(self, candidate: Candidate, seed: int) -> list[list[object]]:
        """(objective, seed, value in the metric's own direction, status), one per objective.

        A run that failed has no value: a penalty is made of tuning scores, and is no test score.
        """
        work, judge = self._driver.work, self._driver.judge
        found = work.value(candidate.proposal, seed, candidate.end)
        if not found.status.failed:
            found = judge.at_step(
                seed, work.curve(candidate.proposal, seed, candidate.end), candidate.step
            )
        if found.status.failed:
            return [
                [index, seed, None, found.status.value] for index in range(len(judge.objectives))
            ]
        return [
            [index, seed, objective.sign * value, found.status.value]
            for index, (objective, value) in enumerate(
                zip(judge.objectives, found.values, strict=True)
            )
        ]
