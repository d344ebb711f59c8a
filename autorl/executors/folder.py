"""Runs segments in `autorl worker` processes.

They share the study's folder with the driver. That is for machines without a port between them,
such as the nodes of a Slurm cluster. Segments are files of a queue
(`autorl.executors.queue_files`) that workers claim and answer. Only the driver opens the study's
database.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

from autorl.executors.queue_files import (
    CLAIMED,
    DRIVER_BEAT,
    PLACES,
    REFUSED,
    RESULTS,
    WAITING,
    WORKERS,
    Heart,
    Notice,
    SignsOfLife,
    WorkerBeat,
    announce,
    attempt_name,
    publish,
    published,
    read_file,
    read_text,
    say,
)
from autorl.executors.segment_form import SegmentForm
from autorl.executors.wire import loads, report_from_json
from autorl.executors.worker import failure
from autorl.plain_text import counted, shown
from autorl.store.folder import QUEUE, STUDY_FILE
from autorl.store.remote import shown_url
from autorl.types import FrozenMap, InputError, Outcome, Report, Segment, Status, StudyError

LOST_AFTER = 120.0  # seconds; what NFS says of a folder may be a minute old (acdirmax)
_MOST_BEAT_SECONDS = 5.0
_BEATS = 8  # at least so many are missed before a worker counts as lost
_FIRST_PAUSE = 0.02  # seconds between two looks at the results, doubled while there are none
_LONGEST_PAUSE = 0.5


@dataclass(frozen=True)
class _Attempt:
    """One attempt at a segment, and the start of its files' names."""

    segment: Segment
    file: str


class Folder:
    """The driver's side of the queue in a study's folder.

    Args:
        form: writes the segments of the study.
        facts: code and machine of this driver, which workers compare with their own.
        lost_after: seconds without a heartbeat after which a worker counts as lost.
        beat_seconds: between two heartbeats; None = some of the time after which one is lost.
        now: a clock that never goes back.
        sleep: waits some seconds.
    """

    copies = True  # a slow machine is no other's fault

    def __init__(
        self,
        form: SegmentForm,
        facts: Mapping[str, object],
        *,
        lost_after: float = LOST_AFTER,
        beat_seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.slots = 1
        self._form = form
        self._now = now
        self._sleep = sleep
        self._pause = _FIRST_PAUSE
        self._running: dict[str, _Attempt] = {}
        self._cancelled: set[str] = set()
        self._order = 0
        self._signs = SignsOfLife(lost_after, now)
        self._looked = now()
        self._told = False
        queue = form.folder / QUEUE
        queue.mkdir(parents=True, exist_ok=True)
        # What earlier drivers have left: nothing in it counts any more.
        for entry in queue.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
        study = sha256((form.folder / STUDY_FILE).read_bytes()).hexdigest()
        self._beat_seconds = beat_seconds or min(_MOST_BEAT_SECONDS, lost_after / _BEATS)
        self._notice = Notice(
            session=secrets.token_hex(8),
            state="running",
            study=study,
            beat_seconds=self._beat_seconds,
            lost_after=lost_after,
            facts=FrozenMap(facts),
        )
        self._place = queue / self._notice.session
        for name in PLACES:
            (self._place / name).mkdir(parents=True)
        self._heart: Heart | None = Heart(
            self._place / DRIVER_BEAT, lambda count: {"count": count}, self._beat_seconds
        )
        # Last: from now on workers come.
        announce(form.folder, self._notice)

    def submit(self, segments: Sequence[Segment]) -> None:
        """Put segments into the queue.

        Raises:
            StudyError: the disk is full, or the queue was removed.
        """
        for segment in segments:
            name = attempt_name(segment)
            attempt = _Attempt(segment, f"{self._order:08d}~{name}")
            self._order += 1
            try:
                publish(
                    self._place / WAITING / attempt.file, self._form.to_json(segment), durable=False
                )
            except OSError as error:
                raise StudyError(
                    f"{self._place}: {error.strerror}; what was recorded is kept"
                ) from error
            self._running[name] = attempt
        if segments and not self._told:
            self._told = True
            say(
                "segments wait for workers: run `autorl worker "
                f"{self._form.folder}` on every machine that is to train"
            )

    def poll(self, timeout: float) -> list[Report | Outcome]:
        """Return what workers have brought, after at most `timeout` seconds if nothing."""
        end = self._now() + timeout
        while True:
            messages = self._take_results()
            if self._now() - self._looked >= self._beat_seconds:
                messages += self._look_after_workers()
            remaining = end - self._now()
            if messages:
                self._pause = _FIRST_PAUSE
            if messages or not self._running or remaining <= 0:
                return messages
            self._sleep(min(self._pause, remaining))
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def cancel(self, segment: Segment) -> None:
        """Take an attempt away from whoever has it.

        A worker sees at its next heartbeat that its claim is gone, and ends the processes.
        """
        name = attempt_name(segment)
        attempt = self._running.pop(name, None)
        if attempt is None:
            return
        self._cancelled.add(name)
        (self._place / WAITING / attempt.file).unlink(missing_ok=True)
        # Now, or at a later look where the claim is not listed yet.
        for file in published(self._place / CLAIMED):
            if file.startswith(f"{attempt.file}~"):
                (self._place / CLAIMED / file).unlink(missing_ok=True)

    def close(self) -> None:
        """Give the queue up.

        Workers end what they run of it, and wait for the next driver.
        """
        if self._heart is None:
            return
        self._heart.stop()
        self._heart = None
        self._running.clear()
        with suppress(OSError):  # the folder may be what has gone
            announce(self._form.folder, replace(self._notice, state="ended"))
        shutil.rmtree(self._place, ignore_errors=True)

    # -- what workers have brought -----------------------------------------------------------------

    def _take_results(self) -> list[Report | Outcome]:
        messages: list[Report | Outcome] = []
        for name in published(self._place / RESULTS):
            path = self._place / RESULTS / name
            try:
                text = read_text(path)
                read = [] if text is None else self._read_results(text, str(path))
            except InputError as error:
                # Nothing of it counts, and it is kept for whoever looks for its writer. What it was
                # to bring is lost when nobody holds the claim any more.
                path.replace(self._place / REFUSED / name)
                say(f"a result is refused: {error}")
                continue
            worker = name.split("~")[0]
            messages += [message for message in read if self._takes(message, worker)]
            path.unlink(missing_ok=True)
        return messages

    def _read_results(self, text: str, file: str) -> list[Report | Outcome]:
        data = loads(text, file)
        entries = data.get("messages")
        host = data.get("host")
        if set(data) != {"host", "messages"} or not isinstance(entries, list):
            raise InputError("expected the keys host, messages", file=file)
        if not isinstance(host, str):
            raise InputError(f"expected a text, got {shown(host)}", file=file, key="host")
        return [self._read_message(entry, host, file) for entry in entries]

    def _read_message(self, entry: object, host: str, file: str) -> Report | Outcome:
        match entry:
            case {"report": body, **more} if not more:
                return report_from_json(body, file)
            case {"outcome": body, **more} if not more:
                outcome = replace(self._form.outcome_from_json(body, file), host=host)
                attempt = self._running.get(attempt_name(outcome))
                return outcome if attempt is None else _with_own_path(outcome, attempt, file)
            case {"refused": {"name": str(name), "message": str(message)}, **more} if not more:
                return self._refused(name, message, host, file)
        raise InputError(f"expected a report or an outcome, got {shown(entry)}", file=file)

    def _refused(self, name: str, message: str, host: str, file: str) -> Outcome:
        """Return the outcome of a segment that its worker could not read."""
        attempt = self._running.get(name)
        if attempt is None:
            raise InputError(f"a worker refused what is no segment here: {message}", file=file)
        lost = failure(attempt.segment, Status.LOST, f"refused by its worker: {message}", 0.0)
        return replace(lost, host=host)

    def _takes(self, message: Report | Outcome, worker: str) -> bool:
        """Say whether a message is for the driver.

        A message of an attempt that was given away is too: the driver notes it. An outcome releases
        the claim of its attempt.
        """
        name = attempt_name(message)
        if isinstance(message, Outcome) and name in self._running:
            attempt = self._running.pop(name)
            (self._place / CLAIMED / f"{attempt.file}~{worker}").unlink(missing_ok=True)
        return name not in self._cancelled

    # -- who works ---------------------------------------------------------------------------------

    def _look_after_workers(self) -> list[Report | Outcome]:
        """Return as lost what was claimed by workers that have fallen silent."""
        self._looked = self._now()
        # In this order a segment that is claimed meanwhile is in at least one of them.
        waiting = {name.split("~")[1] for name in published(self._place / WAITING) if "~" in name}
        claims = [name.split("~") for name in published(self._place / CLAIMED)]
        beats = {worker: self._beat_of(worker) for worker in published(self._place / WORKERS)}
        live = [
            beat
            for worker, beat in beats.items()
            if beat is not None and not self._signs.silent(f"worker {worker}", beat.count)
        ]
        self.slots = max(1, sum(beat.slots for beat in live))
        lost: list[Report | Outcome] = []
        claimed: set[str] = set()
        for parts in claims:
            name = parts[1] if len(parts) == 3 else ""
            if name not in self._running:
                (self._place / CLAIMED / "~".join(parts)).unlink(missing_ok=True)
                continue
            worker = parts[2]
            claimed.add(name)
            beat = beats.get(worker)
            # A beat that does not hold the segment is no sign that somebody trains it.
            sign = beat.count if beat is not None and name in beat.holds else None
            if self._signs.silent(f"claim {name}", sign):
                lost.append(self._lost(name, worker, beat))
        for name in self._running.keys() - claimed:
            seen_at = self._looked if name in waiting else None
            if self._signs.silent(f"file {name}", seen_at):
                lost.append(self._lost(name, "", None))
        self._signs.forget_all_but(
            {f"worker {worker}" for worker in beats}
            | {f"{what} {name}" for name in self._running for what in ("claim", "file")}
        )
        return lost

    def _beat_of(self, worker: str) -> WorkerBeat | None:
        try:
            return read_file(WorkerBeat, self._place / WORKERS / worker)
        except InputError as error:
            say(f"a heartbeat is refused: {error}")
            return None

    def _lost(self, name: str, worker: str, beat: WorkerBeat | None) -> Outcome:
        """Take an attempt from a worker that is gone, or from nobody."""
        attempt = self._running.pop(name)
        message = "its file vanished from the queue"
        if worker:
            # By that the worker knows, should it come back.
            (self._place / CLAIMED / f"{attempt.file}~{worker}").unlink(missing_ok=True)
            waited = counted(self._notice.lost_after, "second")
            message = f"no heartbeat of worker {worker} for {waited}"
        lost = failure(attempt.segment, Status.LOST, message, 0.0)
        # Whether the host lives is not known, so this says nothing against the segment.
        return replace(lost, host="" if beat is None else beat.host, preempted=True)


def _with_own_path(outcome: Outcome, attempt: _Attempt, file: str) -> Outcome:
    """Give a checkpoint the path by which the driver named it.

    Raises:
        InputError: it is not where it was to be saved.
    """
    saved = outcome.checkpoint
    if saved is None:
        return outcome
    segment = attempt.segment
    place = segment.storage or segment.folder
    expected = segment.storage or os.path.abspath(segment.folder)
    if saved.path != expected or saved.segment != segment.id:
        raise InputError(
            f"expected the checkpoint {shown_url(place)}, got {shown(shown_url(saved.path))}",
            file=file,
            key="checkpoint",
        )
    return replace(outcome, checkpoint=replace(saved, path=place))
