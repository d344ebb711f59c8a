"""The proposals under evaluation, in the order they were asked for.

There may be ten thousand of them, and an outcome concerns few: those whose chain has its segment.
Whoever does something for every item follows the queue, and does it for the items that changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from autorl.evaluation import SeedValue
from autorl.types import ProposalId


@dataclass
class Item:
    """A proposal under evaluation.

    Attributes:
        seeds: those it is trained with; racing adds to them.
        reference: the seeds of the incumbent at this proposal's own ask, which it races against.
        upgrade: an incumbent that is brought to all seeds, without a race.
        baseline: the default configuration, brought to the length and seeds of the incumbent,
            beyond the budget; the optimizer is not told.
        number: given by the queue, ascending.
    """

    proposal: ProposalId
    seeds: list[int]
    reference: tuple[SeedValue, ...] = ()
    upgrade: bool = False
    baseline: bool = False
    number: int = field(default=-1, compare=False)


class Changes:
    """The items that changed since the last look.

    They were added, removed or concerned by an outcome.

    Args:
        queue: whose items they are.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._numbers: set[int] = {item.number for item in queue}

    def add(self, number: int) -> None:
        self._numbers.add(number)

    def add_all(self) -> None:
        """Take every item for changed."""
        self._numbers.update(item.number for item in self._queue)

    def take(self) -> list[tuple[int, Item | None]]:
        """Return the numbers in order, each with its item, and forget them.

        None in place of an item: it is in the queue no more.
        """
        numbers = sorted(self._numbers)
        self._numbers.clear()
        return [(number, self._queue.get(number)) for number in numbers]

    def first(self, holds: Callable[[Item], bool]) -> Item | None:
        """Return the first changed item for which something holds.

        Those before it are forgotten until they change again; it is found again itself.
        """
        for number in sorted(self._numbers):
            item = self._queue.get(number)
            # Before it is asked: that may change it, and then it is asked again.
            self._numbers.discard(number)
            if item is not None and holds(item):
                self._numbers.add(number)
                return item
        return None


class Queue:
    """Items in the order they were added.

    Args:
        chain: lists the proposals that are trained to reach one, itself the last.
    """

    def __init__(self, chain: Callable[[ProposalId], Sequence[ProposalId]]) -> None:
        self._chain = chain
        # Ordered: the first of a plain dict is looked for behind all that were removed before it.
        self._items: OrderedDict[int, Item] = OrderedDict()
        self._of: dict[ProposalId, list[int]] = {}
        self._by_link: dict[ProposalId, set[int]] = {}
        self._changes: list[Changes] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def __getitem__(self, place: int) -> Item:
        """Return the item at a place from 0, the first at once."""
        try:
            return next(islice(self._items.values(), place, None))
        except StopIteration:
            raise IndexError(place) from None

    def get(self, number: int) -> Item | None:
        return self._items.get(number)

    def first_of(self, proposal: ProposalId) -> Item:
        """Return the first item of a proposal, which is under evaluation."""
        return self._items[self._of[proposal][0]]

    def holds(self, proposal: ProposalId) -> bool:
        """Say whether a proposal is under evaluation."""
        return proposal in self._of

    def append(self, item: Item) -> None:
        item.number = self._added
        self._added += 1
        self._items[item.number] = item
        self._of.setdefault(item.proposal, []).append(item.number)
        for link in self._chain(item.proposal):
            self._by_link.setdefault(link, set()).add(item.number)
        self._note(item.number)

    def remove(self, proposal: ProposalId) -> None:
        """Take out the first item of a proposal.

        Nothing happens where there is none.
        """
        numbers = self._of.get(proposal)
        if numbers is None:
            return
        number = numbers.pop(0)
        if not numbers:
            del self._of[proposal]
        del self._items[number]
        for link in self._chain(proposal):
            self._by_link[link].discard(number)
            if not self._by_link[link]:
                del self._by_link[link]
        self._note(number)

    def changed(self, item: Item) -> None:
        """Note that an item changed itself."""
        self._note(item.number)

    def touch(self, links: Iterable[ProposalId]) -> None:
        """Note that segments of proposals changed.

        All items whose chains have them may have changed too.
        """
        for link in links:
            for number in self._by_link.get(link, ()):
                self._note(number)

    def follow(self) -> Changes:
        """Return the changes from now on, at first every item there is."""
        changes = Changes(self)
        self._changes.append(changes)
        return changes

    def _note(self, number: int) -> None:
        for changes in self._changes:
            changes.add(number)


class Incomplete:
    """The items that lack outcomes, counted.

    None that has all comes to lack one again. The queue is followed from the first count on.

    Args:
        queue: whose items they are.
        complete: says whether every outcome of an item is in.
    """

    def __init__(self, queue: Queue, complete: Callable[[Item], bool]) -> None:
        self._queue = queue
        self._complete = complete
        self._changes: Changes | None = None
        self._numbers: set[int] = set()

    def count(self) -> int:
        """Count them."""
        if self._changes is None:
            self._changes = self._queue.follow()
        for number, item in self._changes.take():
            if item is None or self._complete(item):
                self._numbers.discard(number)
            else:
                self._numbers.add(number)
        return len(self._numbers)
