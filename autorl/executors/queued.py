"""An executor with slots, for which segments wait."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from autorl.core.types import Outcome, Report, Segment, Status
from autorl.executors.children import fork_server, resident_bytes
from autorl.executors.stopped import StoppedWorkers
from autorl.executors.worker import Load

_CHECK_SECONDS = 0.2  # how often limits are looked at while nothing else happens


@dataclass(frozen=True)
class Limits:
    """Limits of one segment, None = no limit.

    Attributes:
        seconds: wall-clock time.
        memory_bytes: resident memory, with that of its children.
    """

    seconds: float | None = None
    memory_bytes: int | None = None


class QueuedExecutor(ABC):
    """An executor whose segments wait until one of its slots is free.

    Args:
        load: top-level function that builds a trainer from its spec in the child.
        slots: how many segments run at once.
        preload: modules the fork server imports once.
        limits: of each segment.
    """

    def __init__(
        self, load: Load, slots: int, *, preload: Sequence[str] = (), limits: Limits | None = None
    ) -> None:
        self.slots = slots
        self._load = load
        self._limits = limits or Limits()
        self._context = fork_server(preload)
        self._waiting: deque[Segment] = deque()
        self._not_started: list[Report | Outcome] = []
        self._stopped = StoppedWorkers()

    def submit(self, segments: Sequence[Segment]) -> None:
        """Take segments on, and start those there are slots for."""
        self._waiting.extend(segments)
        self._fill()

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what has happened, after at most `timeout` seconds if nothing has."""
        deadline = time.monotonic() + timeout
        while True:
            self._fill()
            results = self._not_started
            self._not_started = []
            results += self._collect(min(_CHECK_SECONDS, max(0.0, deadline - time.monotonic())))
            if results or not self._busy() or time.monotonic() >= deadline:
                self._fill()
                return results

    def _drop_waiting(self, segment: Segment) -> None:
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != segment.key)

    def _over_limit(
        self, seconds: float, process: BaseProcess, slots: int = 1
    ) -> tuple[Status, str] | None:
        """Name the limit that a segment, or a process of several, exceeds."""
        most = self._limits.seconds
        memory = self._limits.memory_bytes
        if most is not None and seconds > most:
            return Status.TIMEOUT, f"over limits.segment_seconds = {most:g}"
        if memory is not None and resident_bytes(process.pid or 0) > memory * slots:
            return Status.OUT_OF_MEMORY, f"over limits.memory_gb = {memory / 2**30:g}"
        return None

    @abstractmethod
    def _fill(self) -> None:
        """Start segments that wait.

        One that cannot be started goes to `_not_started`.
        """

    @abstractmethod
    def _collect(self, timeout: float) -> list[Report | Outcome]:
        """Return what workers have sent within `timeout` seconds.

        Workers over a limit are ended.
        """

    @abstractmethod
    def _busy(self) -> bool:
        """Tell whether any segment was started and has no outcome."""
