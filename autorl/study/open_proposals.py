"""The order in which outcomes are observed: a clock of predicted costs.

There are `parallelism` virtual workers. A proposal begins at the virtual time of its ask and ends
after its predicted cost. An ask that finds all virtual workers busy first observes the outcome with
the smallest predicted end, and the virtual time moves there. `Wait` does the same, and an ended
search observes the rest in that order.
Equal ends are observed in the order of the proposals.

No measured time enters. Costs are recorded with their proposals, and everything here is a fold over
proposals made and outcomes observed, so neither the number of workers nor a kill changes the order.

A blind ask (`BaseOptimizer.blind`) does not wait for the outcomes that are observed before it. They
stay due, and are observed in the same order, before the next ask that may read them.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from autorl.core.types import Config, InputError, ProposalId
from autorl.statistics.evaluation import SeedValue
from autorl.study.spec import Spec


@dataclass(frozen=True, order=True)
class _Open:
    """A proposal under evaluation on the virtual clock.

    Attributes:
        end: predicted, in units of cost.
        place: among all that have begun; decides between equal ends.
        occupies: whether it holds a virtual worker. More seeds of an earlier proposal do not.
    """

    end: float
    place: int
    proposal: ProposalId
    occupies: bool


class Order:
    """The order in which the outcomes of a study are observed.

    Args:
        parallelism: number of virtual workers.

    Attributes:
        now: virtual time, the predicted end of the last outcome that became due.
        asked: number of asks so far.
    """

    def __init__(self, parallelism: int) -> None:
        self.now = 0.0
        self.asked = 0
        self._parallelism = parallelism
        self._begun = 0
        self._occupied = 0
        self._open: list[_Open] = []  # a heap
        # With the number of asks before each became due.
        self._due: deque[tuple[ProposalId, int]] = deque()

    @property
    def due(self) -> int:
        """Number of outcomes that are due.

        They are to be observed before an ask that may read them.
        """
        return len(self._due)

    def begin(self, proposal: ProposalId, cost: float, *, occupies: bool = True) -> None:
        """Have a proposal begin now.

        Args:
            proposal: not open and not due.
            cost: how long it takes on the clock.
            occupies: False of more seeds of an earlier proposal, which no ask waits for.
        """
        if occupies:
            self.make_room()
        heapq.heappush(self._open, _Open(self.now + cost, self._begun, proposal, occupies))
        self._begun += 1
        self._occupied += occupies
        self.asked += occupies

    def begin_last(self, proposal: ProposalId) -> None:
        """Have a proposal observed as soon as it is complete.

        The clock does not move. This is for the baseline, whose evaluation a resumed study begins
        anew.
        """
        self._due.append((proposal, self.asked))

    def next(self, *, demanded: bool) -> ProposalId | None:
        """Return the proposal whose outcome is observed next.

        None: it is time to ask. `demanded` says that nothing is asked before an outcome.
        """
        if not self._due and self._open and (demanded or self._occupied >= self._parallelism):
            self._pop()
        return self._due[0][0] if self._due else None

    def make_room(self) -> None:
        """Make the outcomes due that are observed before an ask."""
        while self._occupied >= self._parallelism:
            self._pop()

    def observed(self, proposal: ProposalId) -> int:
        """Take note that the outcome of a proposal was observed.

        Returns:
            The number of asks before it became due, however many went ahead since.
        """
        if not self._due and self._open and self._open[0].proposal == proposal:
            self._pop()
        for entry in self._due:
            if entry[0] == proposal:
                self._due.remove(entry)
                return entry[1]
        raise ValueError(f"proposal {proposal} is observed out of its turn")

    def end_baseline(self, proposal: ProposalId) -> None:
        """Take note that the baseline was observed.

        A resumed study has not begun it.
        """
        self._due = deque(entry for entry in self._due if entry[0] != proposal)

    def _pop(self) -> None:
        first = heapq.heappop(self._open)
        self._occupied -= first.occupies
        self.now = max(self.now, first.end)
        self._due.append((first.proposal, self.asked))


class AsTheyCome(Order):
    """The order of an asynchronous study.

    There is none, and nothing is ever due.
    """

    def __init__(self) -> None:
        super().__init__(parallelism=1)

    def begin(self, proposal: ProposalId, cost: float, *, occupies: bool = True) -> None:
        self.asked += occupies

    def begin_last(self, proposal: ProposalId) -> None:
        pass

    def observed(self, proposal: ProposalId) -> int:
        return self.asked


def predicted_cost(spec: Spec, config: Config, start: int, until: int) -> float:
    """Predict the cost of training one seed from `start` to `until`.

    Both are steps. The cost is a function of the arguments and the study file alone, in units that
    only compare within a study.

    Raises:
        InputError: the trainer predicts something that is no positive number.
    """
    trainer, hyperparameters = spec.trainer_for(config)
    environment = spec.environment.resolve()
    cost = spec.info(trainer).relative_cost(trainer, environment, hyperparameters, start, until)
    if not (isinstance(cost, int | float) and math.isfinite(cost) and cost > 0):
        message = f"relative_cost of trainer {trainer.name!r} is {cost!r}: expected a number > 0"
        raise InputError(message, key="trainer")
    return float(cost)


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

        Items before it are forgotten until they change again; it is found again itself.
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
        chain: lists the proposals that one is made of, itself the last.
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
