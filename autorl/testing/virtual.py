"""An executor on a virtual clock: real studies, simulated durations.

Segments take as long as a function says, in no real time. It shows how busy workers are, and that
the table of a study does not depend on how long anything takes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from autorl.core.types import Outcome, Report, Segment, SegmentId

Duration: TypeAlias = Callable[[Segment], float]
"""Gives the virtual seconds a segment takes, more than 0."""


class VirtualWorkers:
    """An executor whose workers run on a virtual clock.

    Args:
        train: runs a segment and returns its outcome; called when the segment starts.
        workers: how many segments run at once.
        duration: of a segment, or of one attempt at it.
        copies: whether idle workers train segments that are overdue once more.

    Attributes:
        now: virtual seconds since the beginning.
        spans: start and end of every segment, in the order of their starts.
        order: segments in the order of their ends.
    """

    def __init__(
        self,
        train: Callable[[Segment], Outcome],
        workers: int,
        duration: Duration,
        *,
        copies: bool = False,
    ) -> None:
        self.slots = workers
        self.copies = copies
        self.now = 0.0
        self.spans: list[tuple[float, float]] = []
        self.order: list[SegmentId] = []
        self._train = train
        self._duration = duration
        self._waiting: deque[Segment] = deque()
        # End, place among the starts (which decides between equal ends), outcome.
        self._running: list[tuple[float, int, Outcome]] = []

    def clock(self) -> float:
        """Return the virtual time."""
        return self.now

    def submit(self, segments: Sequence[Segment]) -> None:
        self._waiting.extend(segments)
        self._fill()

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Go on to the next end, in no real time."""
        self._fill()
        if not self._running:
            return []
        self.now, _, outcome = heapq.heappop(self._running)
        self.order.append(outcome.segment)
        # Before the driver hears of it: what already waits starts at once.
        self._fill()
        return [outcome]

    def cancel(self, segment: Segment) -> None:
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != segment.key)
        self._running = [entry for entry in self._running if entry[2].key != segment.key]
        heapq.heapify(self._running)
        self._fill()

    def close(self) -> None:
        self._waiting.clear()
        self._running.clear()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            segment = self._waiting.popleft()
            seconds = self._duration(segment)
            end = self.now + seconds
            self.spans.append((self.now, end))
            outcome = self._train(segment)
            cost = {**outcome.cost, "wall_seconds": seconds}
            outcome = replace(outcome, cost=cost, fence=segment.fence)
            heapq.heappush(self._running, (end, len(self.spans), outcome))
