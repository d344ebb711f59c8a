"""The order in which outcomes are observed: a clock of predicted costs.

The rule of a study with `observation_order: predicted_end`. There are `parallelism` virtual
workers. A proposal begins at the virtual time of its ask and ends after its predicted cost. An ask
that finds all virtual workers busy first observes the outcome with the smallest predicted end, and
the virtual time moves there. So does `Wait`, and an ended search observes the rest in that order.
Equal ends are observed in the order of the proposals: where all costs are equal, that is the order
of `observation_order: proposal`, the rule of earlier versions, in which every cost counts as 0.

No measured time enters. Costs are recorded with their proposals, and everything here is a fold over
proposals made and outcomes observed, so neither the number of workers nor a kill changes the order.

A blind ask (`BaseOptimizer.blind`) does not wait for the outcomes that are observed before it. They
stay due, and are observed in the same order, before the next ask that may read them.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass

from autorl.spec import Spec
from autorl.types import Config, InputError, ProposalId


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
            cost: how long it takes on the clock; 0 under the rule of earlier versions.
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
        """Make due what is observed before an ask."""
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
