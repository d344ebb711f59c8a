"""What attempts at segments write: checkpoints, scratch folders and logs."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from autorl.store import Store
from autorl.store.checkpoints import (
    DAMAGED,
    attempt_name,
    folder_size,
    remove_unfinished,
    unfinished,
)
from autorl.store.log_files import log_bytes
from autorl.study.folder_checks import SEGMENT_NAME
from autorl.types import AttemptKey, Fence, Segment, SegmentId

_LOOK_SECONDS = 1.0  # between two looks at what running attempts have written


class AttemptFiles:
    """The files of attempts, in the folder of a study.

    Every attempt writes in places of its own, so that a late worker replaces nothing. What belongs
    to no attempt that won is removed.

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

        The places are its own. Attempts at a segment, one after another, share a log. That of a
        backup copy is its own.
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

        `late`: its worker may be alive. What it writes later goes with `clear`, or when the study
        is opened again.
        """
        remove_unfinished(attempt)
        path = Path(attempt.folder)
        if attempt.folder and self._store.owns(path):
            shutil.rmtree(path, ignore_errors=True)
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


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, or a file."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
