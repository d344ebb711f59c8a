"""The attempts that a worker on a cluster has been given.

A worker takes as many as it runs at once, and more where they are short, so that it need not wait
for the driver between two. What it is told goes with the next call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from autorl.executors.ray_losses import LostSegment
from autorl.executors.ray_worker import WorkerInfo
from autorl.types import AttemptKey, Outcome, Report, Resources, Segment

_SHORT_SECONDS = 5.0  # a worker whose segments take less gets the next before one has ended
# Where even those are over before a call has been answered: four times as many, whose outcomes come
# in one answer (see `_GATHER_SECONDS` of `autorl.executors.ray_worker`).
_INSTANT_SECONDS = 0.1
_SMOOTHING = 0.3  # weight of the last segment in a worker's mean time


@dataclass(eq=False)
class ClusterWorker:
    """An actor, and the segments it has.

    Attributes:
        node: where it is, or is thought to be until it is placed; None = anywhere.
        placed: whether that is certain.
        call: what it was asked last, until it has answered; asked: when.
        running: what it has been given, in order: the first `slots` of them run.
        given_at: when.
        outbox, cancelled: what it is told with the next call.
        seconds: mean time of its segments.
        look: asks its node whether it was stopped; looked: when that was asked last.
    """

    handle: Any
    resources: Resources
    slots: int
    node: str | None
    placed: bool
    asked: float
    idle_since: float
    call: Any = None
    info: WorkerInfo | None = None
    running: dict[AttemptKey, Segment] = field(default_factory=dict)
    given_at: dict[AttemptKey, float] = field(default_factory=dict)
    outbox: list[Segment] = field(default_factory=list)
    cancelled: list[Segment] = field(default_factory=list)
    seconds: float | None = None
    look: Any = None
    looked: float | None = None

    @property
    def most(self) -> int:
        """How many segments it takes.

        Those that run, and more if they are short.
        """
        if self.seconds is None or self.seconds >= _SHORT_SECONDS:
            return self.slots
        return (2 if self.seconds >= _INSTANT_SECONDS else 4) * self.slots

    @property
    def has_news(self) -> bool:
        """Say whether it is to be told or to be heard."""
        return bool(self.outbox or self.cancelled or self.running)

    def give(self, segment: Segment, now: float) -> None:
        """Count an attempt among those it has.

        It is told with the next call.
        """
        self.running[segment.key] = segment
        self.given_at[segment.key] = now
        self.outbox.append(segment)

    def withdraw(self, segment: Segment) -> None:
        """Take an attempt back, if it has it.

        It is told with the next call, unless it has not heard of the attempt yet.
        """
        if self.running.pop(segment.key, None) is None:
            return
        del self.given_at[segment.key]
        unsent = [waiting for waiting in self.outbox if waiting.key != segment.key]
        if len(unsent) == len(self.outbox):
            self.cancelled.append(segment)
        self.outbox = unsent

    def drain(self) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        """Return the attempts it is to begin and those to stop."""
        segments = tuple(self.outbox)
        cancelled = tuple(self.cancelled)
        self.outbox = []
        self.cancelled = []
        return segments, cancelled

    def take(self, messages: Iterable[Report | Outcome], now: float) -> list[Report | Outcome]:
        """Take note of what it says.

        Returns:
            What is of attempts that it has.
        """
        of_running: list[Report | Outcome] = []
        for message in messages:
            if message.key not in self.running:
                continue
            of_running.append(message)
            if isinstance(message, Outcome):
                self._end(message, now)
        if not self.running:
            self.idle_since = now
        return of_running

    def _end(self, outcome: Outcome, now: float) -> None:
        del self.running[outcome.key]
        begun = self.given_at.pop(outcome.key)
        seconds = outcome.cost.get("wall_seconds", now - begun)
        before = seconds if self.seconds is None else self.seconds
        self.seconds = before + _SMOOTHING * (seconds - before)

    def lost(self) -> tuple[LostSegment, ...]:
        """List the attempts that are lost with it."""
        return tuple(
            LostSegment(segment, self.given_at[segment.key], begun=place < self.slots)
            for place, segment in enumerate(self.running.values())
        )
