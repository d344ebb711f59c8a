"""Which checkpoints somebody may still need.

What the queue needs is counted, not looked for: a study may have ten thousand proposals open and
save a checkpoint with every outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from autorl.evaluation import Racing
from autorl.study.queue import Changes, Item, Queue
from autorl.types import Optimizer, ProposalId, SegmentId

if TYPE_CHECKING:
    from autorl.study.driver import Driver


class Heads:
    """The segments that items of the queue go on from, counted.

    It is work under way, or seeds that a race may still add.

    Args:
        driver: the search.
        queue: its items, all of which count at the first look.
    """

    def __init__(self, driver: Driver, queue: Queue) -> None:
        self._driver = driver
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
        if isinstance(self._driver.policy, Racing):
            seeds.update(self._driver.policy.full)
        heads = (self._driver.work.head(item.proposal, seed) for seed in seeds)
        return tuple(segment for segment in heads if segment is not None)


class Retention:
    """Deletes the checkpoints of a search that nobody can need any more.

    Args:
        driver: the search.
        queue: its proposals under evaluation.
        optimizer: says what it may still resume.
    """

    def __init__(self, driver: Driver, queue: Queue, optimizer: Optimizer) -> None:
        self._driver = driver
        self._queue = queue
        self._optimizer = optimizer
        self._heads: Heads | None = None  # nobody counts in a study that is only read

    def collect(self, models: Collection[SegmentId], *, over: bool, at_once: bool) -> None:
        """Delete them: `Driver.collect` says which."""
        driver = self._driver
        work = driver.work
        keep = driver.spec.keep.checkpoints
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
        """List the segments whose checkpoints can go, in the order they were saved.

        Args:
            models: segments whose checkpoints stay besides.
            tests: those of test runs can go too.
        """
        driver = self._driver
        if self._heads is None:
            self._heads = Heads(driver, self._queue)
        heads = self._heads()
        needed = self.needed()
        stay = {*models, *self._race(), *driver.work.continued()}
        spared_seeds = () if tests else set(driver.spec.plan.test)
        return [
            segment
            for segment in driver.work.saved
            if segment.proposal not in needed
            and segment not in heads
            and segment not in stay
            and segment.seed not in spared_seeds
        ]

    def needed(self) -> set[ProposalId]:
        """Return the proposals whose checkpoints stay whatever goes on from them.

        What the optimizer may still resume outlives the search: the budget can be extended.
        """
        driver = self._driver
        keep = driver.spec.keep.checkpoints
        needed: set[ProposalId] = set()
        if keep != "none" or not driver.finished:
            needed.update(self._optimizer.keeps())
        if keep == "incumbent":
            needed.update(driver.ranking.ordered(1))
        elif keep == "top":
            needed.update(driver.ranking.ordered(max(1, driver.spec.test.top)))
        # `add_baseline` goes on from it when the search is over.
        if driver.spec.adds_baseline and not driver.finished:
            needed.update(driver.default_runs.longest()[:1])
        return needed

    def _race(self) -> set[SegmentId]:
        """Return the segments of scored proposals that a race may go on from.

        A race adds seeds to what is in the queue and to the incumbent. Where there are constraints,
        a further seed can make the incumbent infeasible, and then any other scored proposal takes
        its place.
        """
        driver = self._driver
        if not isinstance(driver.policy, Racing):
            return set()
        count = None if driver.judge.constraints else 1
        heads = (
            driver.work.head(proposal, seed)
            for proposal in driver.ranking.ordered(count)
            for seed in driver.policy.full
        )
        return {segment for segment in heads if segment is not None}
