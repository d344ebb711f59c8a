"""Runs one segment per thread of one child process.

It is for trainers that train without the GIL (`population/*`): a compiled kernel is loaded once,
and a segment starts in microseconds. An end of the child (a limit, a crash of native code) costs
the segments beside it too: they are reported lost, which the driver retries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from autorl.core.os_processes import ProcessLostError
from autorl.core.types import AttemptKey, Outcome, Report, Segment, Status
from autorl.executors.children import adopt, exit_code, kill_group, start_connected
from autorl.executors.queued import Limits, QueuedExecutor
from autorl.executors.stopped import MESSAGE
from autorl.executors.worker import Load, ended_worker, failure, run_segment

# Segments in the child per thread: those that wait there start without a round trip to the driver.
_AHEAD = 3


class Threads(QueuedExecutor):
    """Runs up to `slots` segments at once in threads of a child.

    Args:
        load: top-level function that builds a trainer from its spec in the child.
        slots: threads.
        preload: modules the fork server imports once.
        limits: seconds per segment; resident memory of the child is limited to `slots` times
            `memory_bytes`.
    """

    def __init__(
        self, load: Load, slots: int, *, preload: Sequence[str] = (), limits: Limits | None = None
    ) -> None:
        super().__init__(load, slots, preload=preload, limits=limits)
        self._sent: dict[AttemptKey, Segment] = {}
        self._begun: dict[AttemptKey, float] = {}
        self._cancelled: set[AttemptKey] = set()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def cancel(self, segment: Segment) -> None:
        """Drop an attempt, or its result when it comes.

        A running thread cannot be stopped.
        """
        self._drop_waiting(segment)
        if segment.key in self._sent:
            self._cancelled.add(segment.key)

    def close(self) -> None:
        self._waiting.clear()
        self._sent.clear()
        self._begun.clear()
        self._stop_child()

    def _busy(self) -> bool:
        return bool(self._sent)

    def _fill(self) -> None:
        while self._waiting and len(self._sent) < _AHEAD * self.slots:
            segment = self._waiting.popleft()
            if self._connection is None:
                try:
                    arguments = (self._load, self.slots)
                    self._process, self._connection = start_connected(
                        self._context, _child, arguments, duplex=True
                    )
                except ProcessLostError as error:
                    self._not_started.append(failure(segment, Status.LOST, str(error), 0.0))
                    return
            self._sent[segment.key] = segment
            try:
                self._connection.send(segment)
            except OSError:
                # The child is gone: `_collect` sees the end of file and reports what it ran.
                return

    def _stop_child(self) -> None:
        if self._process is not None and self._connection is not None:
            kill_group(self._process)
            self._connection.close()
        self._process = None
        self._connection = None

    def _collect(self, timeout: float) -> list[Report | Outcome]:
        if self._connection is None or self._process is None:
            return []
        results: list[Report | Outcome] = []
        ended = self._process.sentinel in wait([self._connection, self._process.sentinel], timeout)
        try:
            while self._connection.poll():
                self._take(self._connection.recv(), results)
        except (EOFError, OSError):
            ended = True
        if ended:
            results.extend(self._abandon(*ended_worker(exit_code(self._process), len(self._begun))))
            return results
        if self._stopped.among([self._process.pid or 0], time.monotonic()):
            results.extend(self._abandon(Status.LOST, MESSAGE))
            return results
        results.extend(self._abandon_late())
        return results

    def _take(
        self, message: AttemptKey | Report | Outcome, results: list[Report | Outcome]
    ) -> None:
        if isinstance(message, tuple):
            self._begun[message] = time.monotonic()
            return
        if isinstance(message, Outcome):
            self._sent.pop(message.key, None)
            self._begun.pop(message.key, None)
            if message.key in self._cancelled:
                self._cancelled.discard(message.key)
                return
        if message.key not in self._cancelled:
            results.append(message)

    def _abandon_late(self) -> list[Report | Outcome]:
        """Settle what is over a limit."""
        if self._process is None or not self._begun:
            return []
        now = time.monotonic()
        longest = now - min(self._begun.values())
        late = self._over_limit(longest, self._process, self.slots)
        if late is None:
            return []
        culprits = None
        if late[0] is Status.TIMEOUT:
            assert self._limits.seconds is not None
            since = now - self._limits.seconds
            culprits = [self._sent[key] for key, begun in self._begun.items() if begun < since]
        return self._abandon(*late, culprits=culprits)

    def _abandon(
        self, kind: Status, message: str, culprits: Sequence[Segment] | None = None
    ) -> list[Report | Outcome]:
        """Kill the child and settle what it ran.

        The culprits (all that had begun, when unknown) end with `kind`; the others start again.
        """
        now = time.monotonic()
        guilty = {segment.key for segment in culprits} if culprits is not None else set(self._begun)
        # The child died before it began anything: its first segment counts, or this would
        # go on for ever.
        if not guilty:
            guilty = set(list(self._sent)[:1])
        if kind is Status.OUT_OF_MEMORY and len(guilty) > 1:
            kind = Status.LOST
            message = f"{message} for {len(guilty)} segments together"
        results: list[Report | Outcome] = []
        innocent = []
        for key, segment in self._sent.items():
            if key in guilty and key not in self._cancelled:
                results.append(failure(segment, kind, message, now - self._begun.get(key, now)))
            elif key not in self._cancelled:
                innocent.append(segment)
        self._waiting.extendleft(reversed(innocent))
        self._sent.clear()
        self._begun.clear()
        self._cancelled.clear()
        self._stop_child()
        return results


def _child(connection: Connection, load: Load, slots: int) -> None:
    adopt({})
    guard = threading.Lock()

    def send(message: AttemptKey | Report | Outcome) -> None:
        with guard:
            connection.send(message)

    def run(segment: Segment) -> None:
        send(segment.key)
        send(run_segment(load, segment, send))

    with ThreadPoolExecutor(slots) as pool:
        while True:
            try:
                segment = connection.recv()
            # The driver was killed; so is this child, but its traceback may come before.
            except (EOFError, OSError):
                return
            pool.submit(run, segment)
