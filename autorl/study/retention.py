"""Which checkpoints somebody may still need.

Checkpoints that the queue needs are counted, not looked for: a study may have ten thousand
proposals open and save a checkpoint with every outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Protocol

from autorl.core.types import Optimizer, ProposalId, SegmentId
from autorl.statistics.evaluation import Judge, Racing, Ranking, SeedPolicy
from autorl.study.open_proposals import Changes, Item, Queue
from autorl.study.proposing import DefaultRuns
from autorl.study.spec import Spec
from autorl.study.work import Work


class Search(Protocol):
    """The parts of a search that tell which checkpoints it needs.

    `Driver` has them.

    Attributes:
        spec: the study file.
        judge: scores the proposals.
        policy: says which seeds a proposal is trained with.
        ranking: the scored proposals.
        work: the segments, and their checkpoints.
        default_runs: the proposals of the default configuration.
    """

    spec: Spec
    judge: Judge
    policy: SeedPolicy
    ranking: Ranking
    work: Work
    default_runs: DefaultRuns

    @property
    def finished(self) -> bool:
        """Say whether nothing more will be proposed and nothing is unsettled."""
        ...


class Heads:
    """The segments that items of the queue go on from, counted.

    It is work under way, or seeds that a race may still add.

    Args:
        search: what is proposed, trained and scored.
        queue: its items, all of which count at the first look.
    """

    def __init__(self, search: Search, queue: Queue) -> None:
        self._search = search
        self._changes: Changes = queue.follow()
        self._of_item: dict[int, tuple[SegmentId, ...]] = {}
        self._count: Counter[SegmentId] = Counter()

    def __call__(self) -> Collection[SegmentId]:
        """Bring the counts up to date, and return the segments."""
        for number, item in self._changes.take():
            for segment in self._of_item.pop(number, ()):
                self._count[segment] -= 1
                if not self._count[segment]:
                    del self._count[segment]
            if item is not None:
                self._of_item[number] = self._segments(item)
                self._count.update(self._of_item[number])
        return self._count.keys()

    def _segments(self, item: Item) -> tuple[SegmentId, ...]:
        seeds = set(item.seeds)
        if isinstance(self._search.policy, Racing):
            seeds.update(self._search.policy.full)
        heads = (self._search.work.head(item.proposal, seed) for seed in seeds)
        return tuple(segment for segment in heads if segment is not None)


class Retention:
    """Deletes the checkpoints of a search that nobody can need any more.

    Args:
        search: what is proposed, trained and scored.
        queue: its proposals under evaluation.
        optimizer: says what it may still resume.
    """

    def __init__(self, search: Search, queue: Queue, optimizer: Optimizer) -> None:
        self._search = search
        self._queue = queue
        self._optimizer = optimizer
        self._heads: Heads | None = None  # nobody counts in a study that is only read

    def collect(self, models: Collection[SegmentId], *, over: bool, at_once: bool) -> None:
        """Delete them: `Driver.collect` says which."""
        search = self._search
        work = search.work
        keep = search.spec.keep.checkpoints
        if keep == "lineage" or not work.saved:
            return
        # Looking through all of n checkpoints after each of n segments is quadratic, so a
        # sixteenth of them may lie there longer.
        if not over and not at_once and work.fresh < len(work.saved) // 16:
            return
        work.fresh = 0
        gone = self.unneeded(models, tests=over and keep != "top")
        if gone:
            work.collect(gone)

    def unneeded(self, models: Collection[SegmentId], *, tests: bool) -> list[SegmentId]:
        """List the segments whose checkpoints can go.

        They are in the order they were saved.

        Args:
            models: segments whose checkpoints stay besides.
            tests: those of test runs can go too.
        """
        search = self._search
        if self._heads is None:
            self._heads = Heads(search, self._queue)
        heads = self._heads()
        needed = self.needed()
        stay = {*models, *self._race(), *search.work.continued()}
        spared_seeds = () if tests else set(search.spec.plan.test)
        return [
            segment
            for segment in search.work.saved
            if segment.proposal not in needed
            and segment not in heads
            and segment not in stay
            and segment.seed not in spared_seeds
        ]

    def needed(self) -> set[ProposalId]:
        """Return the proposals whose checkpoints stay whatever goes on from them.

        Checkpoints that the optimizer may still resume outlive the search: the budget can be
        extended.
        """
        search = self._search
        keep = search.spec.keep.checkpoints
        needed: set[ProposalId] = set()
        if keep != "none" or not search.finished:
            needed.update(self._optimizer.keeps())
        if keep == "incumbent":
            needed.update(search.ranking.ordered(1))
        elif keep == "top":
            needed.update(search.ranking.ordered(max(1, search.spec.test.top)))
        # `add_baseline` goes on from it when the search is over.
        if search.spec.adds_baseline and not search.finished:
            needed.update(search.default_runs.longest()[:1])
        return needed

    def _race(self) -> set[SegmentId]:
        """Return the segments that a race may go on from.

        They are those of scored proposals. A race adds seeds to what is in the queue and to the
        incumbent. If there are constraints, a further seed can make the incumbent infeasible, and
        then any other scored proposal takes its place.
        """
        search = self._search
        if not isinstance(search.policy, Racing):
            return set()
        count = None if search.judge.constraints else 1
        heads = (
            search.work.head(proposal, seed)
            for proposal in search.ranking.ordered(count)
            for seed in search.policy.full
        )
        return {segment for segment in heads if segment is not None}
