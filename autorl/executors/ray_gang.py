"""A segment on several hosts, with one worker on each.

Rank 0 speaks for all. Its outcome counts, and the others are ended with it. If a member fails or is
lost, all are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autorl.core.types import Outcome, Report, Segment
from autorl.executors.gang import gang_environment
from autorl.executors.ray_cluster import Gang
from autorl.executors.ray_worker import WorkerInfo

Call = Callable[..., Any]


@dataclass(eq=False)
class GangRun:
    """One segment on its way through a gang.

    Args:
        gang: its workers, rank 0 first; they are of no use to another segment, as what they start
            has the variables of this one.
        segment: what is trained.
        call: calls a method of a worker.
        poll_seconds: how long a worker waits for news.

    Attributes:
        infos: what the workers say of themselves, by rank.
        calls: what is on its way, with the rank that was asked.
    """

    gang: Gang
    segment: Segment
    call: Call
    poll_seconds: float
    begun: float
    infos: dict[int, WorkerInfo] = field(default_factory=dict)
    calls: dict[Any, int] = field(default_factory=dict)
    running: bool = False

    def describe(self) -> None:
        """Ask all workers what they are."""
        for rank, worker in enumerate(self.gang.workers):
            self.calls[self.call(worker, "describe")] = rank

    def receive(self, call: object, answer: Any) -> list[Report | Outcome]:
        """Take an answer, and ask for what is next.

        Returns:
            What it says of the segment.
        """
        rank = self.calls.pop(call)
        if isinstance(answer, WorkerInfo):
            self.infos[rank] = answer
            if len(self.infos) == len(self.gang.workers):
                self.calls[self.call(self.gang.workers[0], "free_port")] = 0
            return []
        if not self.running:
            self._begin(*answer)
            return []
        messages = self._judged(rank, answer)
        if not any(isinstance(message, Outcome) for message in answer):
            self._poll(rank)
        return messages

    def _begin(self, address: str, port: int) -> None:
        self.running = True
        size = len(self.gang.workers)
        for rank, worker in enumerate(self.gang.workers):
            variables = gang_environment(rank, size, address, port)
            self.call(worker, "set_variables", variables)  # calls of one worker keep their order
            self._poll(rank, self._part(rank))

    def _part(self, rank: int) -> Segment:
        """Give a rank its segment.

        Only rank 0 saves, and each has a log of its own.
        """
        if rank == 0:
            return self.segment
        log = self.segment.log
        if log is not None:
            path = Path(log)
            log = str(path.with_name(f"{path.stem}.rank{rank}{path.suffix}"))
        scratch = self.segment.scratch
        if scratch:
            scratch = f"{scratch}/rank{rank}"
        return dataclasses.replace(self.segment, save=False, folder="", log=log, scratch=scratch)

    def _poll(self, rank: int, segment: Segment | None = None) -> None:
        worker = self.gang.workers[rank]
        self.calls[self.call(worker, "exchange", segment, self.poll_seconds)] = rank

    def _judged(self, rank: int, messages: list[Report | Outcome]) -> list[Report | Outcome]:
        """Leave out what the other ranks say, but that one has failed."""
        if rank == 0:
            return messages
        return [
            dataclasses.replace(message, message=f"rank {rank}: {message.message}")
            for message in messages
            if isinstance(message, Outcome) and message.status.failed
        ]
