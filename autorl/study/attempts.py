"""Attempts at segments: those that live, and losses of their workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autorl.types import AttemptKey, Fence, Segment, SegmentId

_MOST_HOSTS = 3  # a segment that took down its worker on so many is at fault itself


class Attempts:
    """The attempts at the segments of one study.

    A segment has one live attempt, or several where backup copies of it run. An attempt ends by its
    outcome, or is given up because another one won. What speaks of any other attempt counts for
    nothing: a worker that was given up for lost may be alive, and reports late.

    Args:
        retries: losses on one host after which a segment is tried once more.

    Attributes:
        in_flight: the oldest live attempt of each segment that has any.
        epoch: sessions that have begun on the study.
        study: name of the study in the fences, where an executor serves several.
    """

    def __init__(self, retries: int) -> None:
        self.in_flight: dict[SegmentId, Segment] = {}
        self.epoch = 0
        self.study = ""
        self._retries = retries
        self._live: dict[SegmentId, list[Segment]] = {}
        self._numbers: dict[SegmentId, int] = {}
        self._losses: dict[SegmentId, Counter[str]] = {}
        self._noted: set[tuple[AttemptKey, str]] = set()

    def begin_session(self, epoch: int | None = None) -> None:
        """Count a session: the next attempts are of its epoch.

        Args:
            epoch: of a study with a storage, by its lease; None: the number of the session.
        """
        self.epoch = max(self.epoch + 1, epoch or 0)
        self._numbers.clear()

    def next_fence(self, segment: SegmentId) -> Fence:
        """Return the fence of one more attempt at a segment.

        It is never given out again in this epoch.
        """
        number = self._numbers.get(segment, 0)
        self._numbers[segment] = number + 1
        return Fence(self.epoch, number, self.study)

    # -- live attempts -----------------------------------------------------------------------------

    def begin(self, segment: Segment) -> None:
        """Count an attempt among those that live."""
        self._live.setdefault(segment.id, []).append(segment)
        self.in_flight.setdefault(segment.id, segment)

    def live(self) -> Iterator[Segment]:
        """Iterate over every live attempt."""
        for attempts in self._live.values():
            yield from attempts

    def find(self, key: AttemptKey) -> Segment | None:
        """Return a live attempt, None where it does not live (any more)."""
        name, fence = key
        attempts = self._live.get(name, ())
        return next((attempt for attempt in attempts if attempt.fence == fence), None)

    def end(self, attempt: Segment) -> None:
        """Take a live attempt out: it has ended."""
        siblings = [live for live in self._live.pop(attempt.id) if live is not attempt]
        if siblings:
            self._live[attempt.id] = siblings
            self.in_flight[attempt.id] = siblings[0]
        else:
            del self.in_flight[attempt.id]

    def end_all(self, segment: SegmentId) -> list[Segment]:
        """Take out every live attempt at a segment, and return them."""
        self.in_flight.pop(segment, None)
        return self._live.pop(segment, [])

    # -- losses ------------------------------------------------------------------------------------

    @property
    def losses(self) -> dict[SegmentId, dict[str, int]]:
        """Workers that segments took down, by host."""
        return {segment: dict(hosts) for segment, hosts in self._losses.items()}

    def count_loss(self, segment: SegmentId, host: str, *, preempted: bool) -> None:
        """Count a lost worker against its segment, unless its host was preempted."""
        if not preempted:
            self._losses.setdefault(segment, Counter())[host] += 1

    def at_fault(self, segment: SegmentId) -> bool:
        """Say whether a segment is at fault for its lost workers.

        It is where it has lost them on three hosts, or on one host once more than it is retried.
        """
        hosts = self._losses.get(segment)
        if hosts is None:
            return False
        return len(hosts) >= _MOST_HOSTS or max(hosts.values()) > self._retries

    # -- what counts for nothing -------------------------------------------------------------------

    def is_news(self, key: AttemptKey, status: str) -> bool:
        """Say whether this is the first such note of an attempt.

        The attempt does not live.
        """
        news = (key, status) not in self._noted
        self._noted.add((key, status))
        return news
