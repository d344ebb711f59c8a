"""Which checkpoints somebody may still need.

Checkpoints that the queue needs are counted, not looked for: a study may have ten thousand
proposals open and save a checkpoint with every outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from autorl.core.types import Optimizer, ProposalId, SegmentId
from autorl.statistics.evaluation import Racing
from autorl.study.open_proposals import Changes, Item
from autorl.study.proposing import DefaultRuns
from autorl.study.search import Search


class Retention:
    """Deletes the checkpoints of a search that nobody can need any more.

    Args:
        search: what is proposed, trained and scored.
        optimizer: says what it may still resume.
        default_runs: the proposals of the default configuration.
    """

    def __init__(self, search: Search, optimizer: Optimizer, default_runs: DefaultRuns) -> None:
        self._search = search
        self._optimizer = optimizer
        self._default_runs = default_runs
        self._changes: Changes | None = None  # nobody counts in a study that is only read
        self._of_item: dict[int, set[SegmentId]] = {}
        self._count: Counter[SegmentId] = Counter()

    def collect(
        self, models: Collection[SegmentId] = (), *, over: bool = False, at_once: bool = False
    ) -> None:
        """Delete the checkpoints nobody can need any more.

        Checkpoints that the optimizer may still resume outlive the search: the budget can be
        extended.

        Args:
            models: segments whose checkpoints are kept for the user besides.
            over: the test phase has ended too.
            at_once: look now; otherwise not every call does.
        """
        work = self._search.work
        keep = self._search.spec.keep.checkpoints
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
        work = self._search.work
        self._count_heads()
        needed = self.needed()
        stay = {*models, *self._race(), *work.continued()}
        spared_seeds = () if tests else set(self._search.spec.plan.test)
        return [
            segment
            for segment in work.saved
            if segment.proposal not in needed
            and segment not in self._count
            and segment not in stay
            and segment.seed not in spared_seeds
        ]

    def needed(self) -> set[ProposalId]:
        """Return the proposals whose checkpoints stay whatever goes on from them."""
        search = self._search
        keep = search.spec.keep.checkpoints
        needed: set[ProposalId] = set()
        if keep != "none" or not search.finished:
            needed.update(self._optimizer.keeps())
        if keep == "incumbent":
            needed.update(search.ranking.ordered(1))
        elif keep == "top":
            needed.update(search.ranking.ordered(max(1, search.spec.test.top)))
        # `add_baselines` goes on from it when the search is over.
        if search.spec.adds_baseline and not search.finished:
            needed.update(self._default_runs.longest()[:1])
        return needed

    def _count_heads(self) -> None:
        """Count the segments that items of the queue go on from.

        Only items that have changed are looked at.
        """
        if self._changes is None:
            self._changes = self._search.queue.follow()
        for number, item in self._changes.take():
            for segment in self._of_item.pop(number, ()):
                self._count[segment] -= 1
                if not self._count[segment]:
                    del self._count[segment]
            if item is not None:
                self._of_item[number] = self._heads_of_item(item)
                self._count.update(self._of_item[number])

    def _heads_of_item(self, item: Item) -> set[SegmentId]:
        seeds = set(item.seeds)
        if isinstance(self._search.policy, Racing):
            seeds.update(self._search.policy.full)  # which a race may still add
        return self._heads([item.proposal], seeds)

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
        return self._heads(search.ranking.ordered(count), search.policy.full)

    def _heads(self, proposals: Iterable[ProposalId], seeds: Collection[int]) -> set[SegmentId]:
        work = self._search.work
        return set().union(
            *(work.heads(proposal, seed) for proposal in proposals for seed in seeds)
        )
