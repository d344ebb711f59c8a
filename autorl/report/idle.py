"""Predict how busy the workers of a study will be.

Its order of observation is simulated. An ask waits for outcomes that the study's order names, not
for those that happen to be there (`autorl.study.open_proposals`), so a slow segment leaves workers
idle. How long, follows from how far segments take longer or shorter than predicted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autorl.core.types import Optimizer, ProposalId
from autorl.optimizers import BaseOptimizer
from autorl.store.events import ProposalFailed, ProposalMade, ProposalScored, StudyEvent
from autorl.study.open_proposals import Order

UNEXPLAINED = 0.4
"""Assumed standard deviation of log time around what is predicted: a factor of 1.5."""
ACCEPTABLE = 0.15
"""Idle share at which no other parallelism is recommended."""
_MOST_ASKS = 1000
_REPEATS = 3
_MULTIPLES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # of what keeps all workers busy at one moment


class Ask(NamedTuple):
    """A proposal as the order of observation sees it.

    Attributes:
        cost: predicted of one seed; 0 where the order goes by proposals alone.
        steps: nominal, which take the place of costs that are 0.
        blind: whether it waits for no outcome.
        barrier: whether all proposals before it were observed first, as between generations.
    """

    cost: float
    steps: int
    blind: bool
    barrier: bool


@dataclass(frozen=True)
class IdleShare:
    """The share of time that workers are expected to be idle.

    Attributes:
        share: with the study's parallelism, in [0, 1].
        barriers: whether generations wait for all of their members.
        recommended: a parallelism with which the share is acceptable, or the least of those looked
            at; None where the study's own will do, or none is better.
        recommended_share: with that parallelism.
    """

    share: float
    barriers: bool
    recommended: int | None = None
    recommended_share: float | None = None


class Asks:
    """Collects the asks of a study from its events.

    Attributes:
        made: one for each proposal of the search, in order.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.made: list[Ask] = []
        self._optimizer = optimizer
        self._open: set[ProposalId] = set()

    def apply(self, event: StudyEvent) -> None:
        """Take note of an event of the study."""
        match event:
            case ProposalMade(proposed=proposed) if not proposed.proposal.baseline:
                number = len(self.made)
                optimizer = self._optimizer
                blind = isinstance(optimizer, BaseOptimizer) and optimizer.blind(number)
                barrier = not self._open and number > 0
                steps = proposed.proposal.until
                self.made.append(Ask(event.cost or 0.0, steps, blind, barrier))
                self._open.add(proposed.id)
            case ProposalScored(scored=result) | ProposalFailed(failed=result):
                self._open.discard(result.proposal)


def expected_idle(
    asks: Sequence[Ask], seeds: int, workers: int, parallelism: int
) -> IdleShare | None:
    """Simulate how busy workers are, and look for a better parallelism.

    The result is None where there are too few segments to keep all workers busy once.

    Args:
        asks: of the whole search.
        seeds: that each proposal is trained with, all at once.
        workers: how many segments run at once.
        parallelism: of the study.
    """
    if len(asks) * seeds <= workers or workers < 2:
        return None
    asks = asks[:_MOST_ASKS]
    share = _idle_share(asks, seeds, workers, parallelism)
    # With one proposal at a time every ask comes after all outcomes.
    barriers = parallelism > 1 and any(ask.barrier and not ask.blind for ask in asks)
    if barriers or share <= ACCEPTABLE:
        return IdleShare(share, barriers)
    least = math.ceil(workers / seeds)
    free = [ask._replace(barrier=False) for ask in asks]
    shares = {
        p: _idle_share(free, seeds, workers, p)
        for p in sorted({math.ceil(least * multiple) for multiple in _MULTIPLES})
        if parallelism < p <= len(asks)
    }
    if not shares or min(shares.values()) >= share:
        return IdleShare(share, barriers)
    enough = [p for p, idle in shares.items() if idle <= ACCEPTABLE]
    recommended = enough[0] if enough else min(shares, key=lambda p: shares[p])
    return IdleShare(share, barriers, recommended, shares[recommended])


def _idle_share(asks: Sequence[Ask], seeds: int, workers: int, parallelism: int) -> float:
    """Simulate the share of time that workers are idle.

    The time ends when the last segment starts. A segment takes its predicted cost times a lognormal
    factor. The noise is always the same: a second dry run says the same.
    """
    noise = (np.random.default_rng(repeat) for repeat in range(_REPEATS))
    drawn = [np.exp(UNEXPLAINED * rng.standard_normal((len(asks), seeds))) for rng in noise]
    return sum(_simulated(asks, factors, workers, parallelism) for factors in drawn) / _REPEATS


def _simulated(
    asks: Sequence[Ask], factors: npt.NDArray[np.float64], workers: int, parallelism: int
) -> float:
    order = Order(parallelism)
    free = [0.0] * workers  # when each worker is
    running: list[float] = []  # ends of proposals, earliest first
    ends: list[float] = []
    spans: list[tuple[float, float]] = []
    now = 0.0
    for number, ask in enumerate(asks):
        if ask.blind:
            while len(running) >= parallelism:
                now = max(now, heapq.heappop(running))
        else:
            while (due := order.next(demanded=ask.barrier)) is not None:
                now = max(now, ends[due])
                order.observed(due)
        order.begin(number, ask.cost)
        for factor in factors[number]:
            start = max(now, heapq.heappop(free))
            end = start + (ask.cost or ask.steps) * float(factor)
            heapq.heappush(free, end)
            spans.append((start, end))
        ends.append(max([now, *(end for _, end in spans[-len(factors[number]) :])]))
        heapq.heappush(running, ends[-1])
        while running and running[0] <= now:
            heapq.heappop(running)
    until = max(start for start, _ in spans)
    if until == 0:
        return 0.0
    busy = sum(min(end, until) - start for start, end in spans)
    return max(0.0, 1.0 - busy / (workers * until))  # by rounding it may be below 0


def idle_text(idle: IdleShare | None, workers: int, *, learns: bool) -> str:
    """Write the expected share, its assumption and what would be better."""
    if idle is None:
        return "no more segments than workers, or one worker: nothing waits"
    factor = math.exp(UNEXPLAINED)
    text = (
        f"about {idle.share:.0%} idle of {workers}, if segments take up to {factor:.1f} times more "
        "or less than predicted, two in three"
    )
    if idle.barriers:
        return f"{text}; generations wait for the last of their members"
    if idle.recommended is None or idle.recommended_share is None:
        return text
    text += f"; `parallelism: {idle.recommended}` leaves {idle.recommended_share:.0%} idle"
    return f"{text}, and a model knows less at each ask" if learns else text
