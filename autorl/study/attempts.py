"""Attempts at segments: those that live, and their files."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from autorl.core.types import AttemptKey, Fence, Segment, SegmentId
from autorl.store import Store
from autorl.store.checkpoints import (
    DAMAGED,
    attempt_name,
    folder_size,
    remove,
    remove_unfinished,
    unfinished,
)
from autorl.store.log_files import log_bytes
from autorl.study.folder.checks import SEGMENT_NAME

_MOST_HOSTS = 3  # a segment that took down its worker on so many is at fault itself


class Attempts:
    """The attempts at the segments of one study.

    A segment has one live attempt, or several where backup copies of it run. An attempt ends by its
    outcome, or is given up because another one won. Messages about any other attempt count for
    nothing: a worker that was given up for lost may be alive, and reports late.

    Args:
        retries: losses on one host after which a segment is tried once more.

    Attributes:
        in_flight: the oldest live attempt of each segment that has any.
        epoch: number of sessions that have begun on the study.
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
        """Remove and return every live attempt at a segment."""
        self.in_flight.pop(segment, None)
        return self._live.pop(segment, [])

    # -- losses ------------------------------------------------------------------------------------

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


_LOOK_SECONDS = 1.0  # between two looks at what running attempts have written


class AttemptFiles:
    """The files of attempts, in the folder of a study.

    Every attempt writes in places of its own, so that a late worker replaces nothing. Files of
    attempts that did not win are removed.

    Args:
        store: of the study.
        counts_logs: whether the study limits the disk, so that logs are counted.

    Attributes:
        bytes_logged: size of the logs of attempts that ended; 0 where they are not counted.
    """

    def __init__(self, store: Store, *, counts_logs: bool) -> None:
        self.bytes_logged = 0
        self._store = store
        self._counts_logs = counts_logs
        self._log_sizes: dict[AttemptKey, int] = {}
        # Attempts that were discarded while their workers may still be alive, and write.
        self._late: list[Segment] = []
        # Whole checkpoints that no event names, by the segments that have not ended.
        self._unnamed: dict[SegmentId, list[Path]] = {}
        self._scratch_bytes = 0
        self._looked = -math.inf

    # -- places ------------------------------------------------------------------------------------

    def placed(self, segment: Segment, fence: Fence, *, copy: bool) -> Segment:
        """Give an attempt its fence, and places to write in.

        The places are its own. Attempts at a segment, one after another, share a log. A backup copy
        has a log of its own.
        """
        name = attempt_name(segment.id, fence)
        folder = self._store.folder
        saved_in = ""
        storage = segment.storage
        if segment.save:
            saved_in = str(self._store.checkpoints / name)
            if self._store.offsite is not None:
                storage = self._store.offsite.checkpoint_url(name)
        scratch = segment.scratch
        log = segment.log
        if folder is not None:
            scratch = str(unfinished(self._store.checkpoints, name))
            log = str(folder / "logs" / (f"{name}.log" if copy else f"{segment.id}.log"))
        return dataclasses.replace(
            segment, fence=fence, folder=saved_in, storage=storage, scratch=scratch, log=log
        )

    def is_taken(self, segment: SegmentId, fence: Fence) -> bool:
        """Say whether a checkpoint of that name lies there.

        No event names it: a log that was put back from a copy counts sessions again.
        """
        name = attempt_name(segment, fence)
        return any(path.name == name for path in self._unnamed.get(segment, ()))

    # -- logs --------------------------------------------------------------------------------------

    def begin(self, attempt: Segment) -> None:
        """Note where the log of an attempt begins."""
        self._log_sizes[attempt.key] = self._log_size(attempt)

    def end(self, attempt: Segment) -> None:
        """Count what an ended attempt has logged, and remove its scratch."""
        self.bytes_logged += self._log_size(attempt) - self._log_sizes.pop(attempt.key, 0)
        remove_unfinished(attempt)  # a worker that was ended could not do it

    def _log_size(self, attempt: Segment) -> int:
        if not self._counts_logs or attempt.log is None or not os.path.exists(attempt.log):
            return 0
        return os.path.getsize(attempt.log)

    # -- scratch -----------------------------------------------------------------------------------

    def scratch_bytes(self, attempts: Iterable[Segment], *, lately: bool) -> int:
        """Count what running attempts have written.

        `lately`: what it was a moment ago will do. To look at each folder at every outcome would be
        quadratic in what is in flight.
        """
        if not lately or time.monotonic() - self._looked > _LOOK_SECONDS:
            folders = [attempt.scratch for attempt in attempts if attempt.scratch]
            self._scratch_bytes = sum(folder_size(Path(folder)) for folder in folders)
            self._looked = time.monotonic()
        return self._scratch_bytes

    # -- what is removed ---------------------------------------------------------------------------

    def discard(self, attempt: Segment, *, late: bool = False) -> None:
        """Remove what an attempt wrote that did not win.

        `late`: its worker may be alive. Files that it writes later go with `clear`, or when the
        study is opened again.
        """
        remove_unfinished(attempt)
        path = Path(attempt.folder)
        if attempt.folder and self._store.owns(path):
            remove(path)
        if late:
            self._late.append(attempt)

    def clear(self, attempts: Iterable[Segment]) -> None:
        """Remove what these attempts have written, and what late workers have.

        No worker of this session is left.
        """
        for attempt in (*attempts, *self._late):
            self.discard(attempt)
        self._late.clear()

    def sweep(self, recorded: Collection[SegmentId], saved: Iterable[str]) -> None:
        """Remove what a kill left.

        These are checkpoints half written, those the log has given up, and those of attempts that
        did not win. A whole one that no event names stays until its segment has ended: the log may
        be too short.

        Args:
            recorded: segments with an outcome.
            saved: paths of the checkpoints that the log names.
        """
        folder = self._store.folder
        if folder is None:
            return
        if self._counts_logs:
            self.bytes_logged = log_bytes(folder / "logs")
        checkpoints = self._store.checkpoints
        if not checkpoints.is_dir():
            return
        inside = [path for path in map(Path, saved) if path.is_relative_to(checkpoints)]
        # A trainer may name a folder within its own.
        named = {part for path in inside for part in path.relative_to(checkpoints).parts[:1]}
        for entry in checkpoints.iterdir():
            match = SEGMENT_NAME.fullmatch(entry.name)
            if entry.name.startswith((".tmp-", ".old-")):
                remove(entry)
            elif match is not None and entry.name not in named:
                segment = SegmentId.parse(match["segment"])
                if segment in recorded:
                    remove(entry)
                else:
                    self._unnamed.setdefault(segment, []).append(entry)

    def remove_unnamed(self, segment: SegmentId) -> None:
        """Remove checkpoints of a segment that no event names: it has ended."""
        for path in self._unnamed.pop(segment, ()):
            remove(path)

    def bytes_aside(self) -> int:
        """Return the bytes of the damaged checkpoints that were set aside."""
        return folder_size(self._store.checkpoints / DAMAGED)
