"""What has become of segments whose worker on a cluster is gone.

A worker that is out of reach may have died alone or with its node: that is decided when the cluster
knows, within a bound. A node that is gone says nothing against what ran there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass

from autorl.executors.ray_cluster import WorkerLostError
from autorl.executors.ray_nodes import Nodes
from autorl.executors.worker import failure
from autorl.types import AttemptKey, Outcome, Segment, SegmentId, Status

DOUBT_SECONDS = 30.0  # Ray listed a killed node as dead 13 s after it was gone


@dataclass(frozen=True)
class LostSegment:
    """An attempt that a lost worker had.

    Attributes:
        given_at: when it was given to the worker.
        begun: whether it ran, rather than wait for its turn.
    """

    segment: Segment
    given_at: float
    begun: bool


@dataclass(frozen=True)
class Loss:
    """A worker that is out of reach, and the attempts it had."""

    node: str | None
    host: str
    segments: tuple[LostSegment, ...]
    message: str
    since: float


class Losses:
    """Lost workers, until it is known why, and where segments were lost."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._doubtful: list[Loss] = []
        self._lost_on: dict[SegmentId, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._doubtful)

    def avoided_by(self, segment: SegmentId) -> set[str]:
        """List the nodes a segment has lost a worker on."""
        return self._lost_on.get(segment, set())

    def note(self, outcome: Outcome, node: str) -> None:
        """Remember where a segment was lost, until it ends otherwise."""
        if outcome.status is Status.LOST:
            self._lost_on.setdefault(outcome.segment, set()).add(node)
        else:
            self._lost_on.pop(outcome.segment, None)

    def judge(self, loss: Loss, error: WorkerLostError) -> list[Outcome]:
        """Return the outcomes of a loss.

        There are none until it is known what happened.
        """
        if not loss.segments:
            return []
        self._nodes.look(time.monotonic(), at_once=True)
        if error.preempted or self._is_node_gone(loss):
            return self._outcomes(loss, preempted=True)
        if error.certain:
            return self._outcomes(loss, preempted=False)
        self._doubtful.append(loss)
        return []

    def settled(self, now: float) -> Iterable[Outcome]:
        """Return the outcomes of losses that are settled.

        It is known what happened, or they have been in doubt for too long.
        """
        for loss in list(self._doubtful):
            gone = self._is_node_gone(loss)
            if gone or now - loss.since > DOUBT_SECONDS:
                self._doubtful.remove(loss)
                yield from self._outcomes(loss, preempted=gone)

    def cancel(self, key: AttemptKey) -> None:
        """Forget an attempt."""
        losses = []
        for loss in self._doubtful:
            segments = tuple(lost for lost in loss.segments if lost.segment.key != key)
            losses.append(dataclasses.replace(loss, segments=segments))
        self._doubtful = [loss for loss in losses if loss.segments]

    def clear(self) -> None:
        """Forget all that is in doubt."""
        self._doubtful.clear()

    def _is_node_gone(self, loss: Loss) -> bool:
        return loss.node is not None and not self._nodes.is_alive(loss.node)

    def _outcomes(self, loss: Loss, *, preempted: bool) -> list[Outcome]:
        now = time.monotonic()
        where = f" on {loss.host}" if loss.host else ""
        message = f"worker{where} lost: {loss.message}"
        outcomes = []
        for lost in loss.segments:
            outcome = failure(lost.segment, Status.LOST, message, now - lost.given_at)
            # What had not begun has nothing to do with it.
            blameless = preempted or not lost.begun
            outcome = dataclasses.replace(outcome, host=loss.host, preempted=blameless)
            if loss.node is not None:
                self.note(outcome, loss.node)
            outcomes.append(outcome)
        return outcomes
