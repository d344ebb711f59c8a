"""Runs segments in the calling process, one after another or in threads.

Made for embedded objectives, tests and debugging, and for functions given to `autorl.tune`, which
need not be importable: a closure, a lambda. For trainers that a study file names see
`autorl.executors.threads`.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from autorl.core.types import AttemptKey, Outcome, Report, Segment
from autorl.executors.worker import Load, run_segment


class InProcess:
    """An executor of one slot, in the calling process.

    `poll` trains the next segment and returns when it is done. Limits cannot be enforced here.
    """

    slots = 1

    def __init__(self, load: Load) -> None:
        self._load = load
        self._waiting: deque[Segment] = deque()

    def submit(self, segments: Sequence[Segment]) -> None:
        self._waiting.extend(segments)

    def poll(self, timeout: float) -> list[Report | Outcome]:
        if not self._waiting:
            return []
        results: list[Report | Outcome] = []
        results.append(
            run_segment(self._load, self._waiting.popleft(), results.append, in_caller=True)
        )
        return results

    def cancel(self, segment: Segment) -> None:
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != segment.key)

    def close(self) -> None:
        self._waiting.clear()


class LocalThreads:
    """An executor of `slots` threads of this process.

    Limits cannot be enforced, and a thread that trains cannot be stopped: what a cancelled attempt
    says is dropped.
    """

    def __init__(self, load: Load, slots: int) -> None:
        self.slots = slots
        self._load = load
        self._waiting: queue.SimpleQueue[Segment | None] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[Report | Outcome] = queue.SimpleQueue()
        self._out: set[AttemptKey] = set()
        self._cancelled: set[AttemptKey] = set()
        self._closed = False
        # Daemons: a session that was interrupted does not wait until all of them have trained.
        for _ in range(slots):
            threading.Thread(target=self._work, daemon=True).start()

    def submit(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._out.add(segment.key)
            self._waiting.put(segment)

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what has happened, after at most `timeout` seconds if nothing has."""
        if not self._out:
            return []
        results: list[Report | Outcome] = []
        with suppress(queue.Empty):
            message = self._messages.get(timeout=timeout)
            while True:
                if message.key not in self._cancelled:
                    results.append(message)
                if isinstance(message, Outcome):
                    self._out.discard(message.key)
                    self._cancelled.discard(message.key)
                message = self._messages.get_nowait()
        return results

    def cancel(self, segment: Segment) -> None:
        """Drop an attempt, or its result when it comes."""
        if segment.key in self._out:
            self._cancelled.add(segment.key)

    def close(self) -> None:
        self._closed = True
        for _ in range(self.slots):
            self._waiting.put(None)
        self._out.clear()

    def _work(self) -> None:
        while (segment := self._waiting.get()) is not None and not self._closed:
            self._messages.put(run_segment(self._load, segment, self._messages.put))
