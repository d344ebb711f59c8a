"""Runs segments one after another in the calling process.

Made for embedded objectives, tests and debugging.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from autorl.core.types import Outcome, Report, Segment
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
