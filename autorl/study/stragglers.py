"""Backup copies: which running segments idle workers train once more.

A segment is bitwise repeatable, so whichever attempt ends first gives the same result, and a copy
cannot change a table: a real clock is read here, and for nothing but this. A segment that is slow
because of its machine, not because of its training, is fast elsewhere (Dean and Ghemawat,
"MapReduce: simplified data processing on large clusters", OSDI 2004).

Only executors that say so get copies (`copies = True`): those whose workers are other machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from autorl.core.types import Executor, Outcome, Segment, SegmentId
from autorl.study.spec import Spec
from autorl.study.work import Work

OVERDUE = 1.5
"""A segment is copied when it has run so many times longer than predicted."""

LEAST_SECONDS = 5.0
"""So much longer than predicted, too: starting a copy of less costs more than it can save."""


class BackupCopies:
    """The backup copies of a running study.

    Args:
        spec: whose trainers predict costs.
        work: hands out copies.
        executor: that may take them, by its attribute `copies`.
    """

    def __init__(self, spec: Spec, work: Work, executor: Executor) -> None:
        self._spec = spec
        self._work = work
        self._executor = executor
        self._wanted = bool(getattr(executor, "copies", False))
        # An executor on a virtual clock has its own.
        self._clock: Callable[[], float] = getattr(executor, "clock", time.monotonic)
        self._begun: dict[SegmentId, float] = {}
        self._copied: set[SegmentId] = set()
        self._paces: list[float] = []  # seconds per unit of cost

    def after(self, submitted: Sequence[Segment]) -> list[Segment]:
        """Return the copies to be handed to the executor after these segments.

        The most overdue come first, with at most one copy of each. None while segments wait for a
        worker, and before any has ended.
        """
        if not self._wanted:
            return []
        now = self._clock()
        for segment in submitted:
            self._begun.setdefault(segment.id, now)
        running = self._work.in_flight
        idle = self._executor.slots - len(running) - len(self._copied.intersection(running))
        if idle <= 0 or not self._paces:
            return []
        pace = median(self._paces)
        overdue: dict[SegmentId, float] = {}
        for name, segment in running.items():
            seconds = now - self._begun.get(name, now)
            predicted = pace * self._cost(segment)
            is_late = seconds > OVERDUE * predicted and seconds - predicted > LEAST_SECONDS
            if is_late and name not in self._copied:
                overdue[name] = seconds / predicted
        chosen = sorted(overdue, key=lambda name: -overdue[name])[:idle]
        self._copied.update(chosen)
        return [self._work.copy(name) for name in chosen]

    def ended(self, outcome: Outcome) -> None:
        """Take note of an outcome, before it is recorded."""
        segment = self._work.in_flight.get(outcome.segment)
        if not self._wanted or segment is None:
            return
        self._begun.pop(segment.id, None)
        self._copied.discard(segment.id)
        seconds = outcome.cost.get("wall_seconds", 0.0)
        if seconds > 0:
            self._paces.append(seconds / self._cost(segment))

    def _cost(self, segment: Segment) -> float:
        info = self._spec.info(segment.trainer)
        return info.relative_cost(
            segment.trainer, segment.environment, segment.config, segment.start, segment.until
        )
