"""The worker's side of the queue in a study's folder.

It claims segments and answers them. They run in `processes` or `threads` of this machine, so that
limits, devices and logs are what they are there, and what a segment has started ends with it.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autorl.executors.queue_files import (
    CLAIMED,
    DRIVER_BEAT,
    RESULTS,
    WAITING,
    WORKERS,
    Heart,
    Notice,
    SignsOfLife,
    WorkerBeat,
    attempt_name,
    file_part,
    publish,
    published,
    read_notice,
    read_text,
    say,
)
from autorl.executors.segment_form import SegmentForm
from autorl.executors.wire import loads, report_to_json, to_json
from autorl.executors.worker import failure
from autorl.plain_text import counted
from autorl.signals import held as signals_held
from autorl.store.checkpoints import remove_unfinished
from autorl.store.folder import QUEUE, STUDY_FILE
from autorl.store.sessions import OWN_CODE, changes
from autorl.types import Executor, InputError, Outcome, Report, Segment, Status

_FIRST_PAUSE = 0.02  # seconds between two looks at the queue, doubled while there is nothing
_LONGEST_PAUSE = 1.0
_CHOICE = 8  # of the oldest segments, so that workers who look at once rarely want the same
_SAME_CODE = ("autorl", OWN_CODE, "Python")  # other versions of these may train something else


@dataclass(frozen=True)
class _Held:
    """A segment this worker has, and the file that says so."""

    segment: Segment
    claim: Path


class FolderWorker:
    """Trains segments of a study's queue.

    It does so until there is a reason to end.

    Args:
        form: reads the segments of the study.
        make_executor: makes what runs them on this machine, when the first one comes.
        study: SHA-256 of the study file that `form` was made of.
        facts: code and machine of this worker, as the study records them of a session.
        slots: segments at once.
        idle_seconds: end after so long without a segment.
        most_segments: end after so many; None = no limit.
        trust: whether segments that open pickles of others are run.
        check: raises `InputError` where this machine cannot train for the study's driver.
        now: a clock that never goes back.
        sleep: waits some seconds.
    """

    def __init__(
        self,
        form: SegmentForm,
        make_executor: Callable[[], Executor],
        study: str,
        facts: Mapping[str, object],
        *,
        slots: int = 1,
        idle_seconds: float = 1800.0,
        most_segments: int | None = None,
        trust: bool = False,
        check: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.host = socket.gethostname()
        self.name = f"{file_part(self.host)}-{os.getpid()}-{secrets.token_hex(3)}"
        self.ended = 0
        self._form = form
        self._make_executor = make_executor
        self._executor: Executor | None = None
        self._study = study
        self._facts = facts
        self._slots = slots
        self._idle_seconds = idle_seconds
        self._most_segments = most_segments
        self._trust = trust
        self._check = check
        self._now = now
        self._sleep = sleep
        self._random = random.Random(self.name)
        self._pause = _FIRST_PAUSE
        self._busy_at = now()
        self._followed = -float("inf")
        self._checked = now()
        self._claimed = 0
        self._sent = 0
        self._notice: Notice | None = None
        self._place: Path | None = None  # of the session it works for
        self._heart: Heart | None = None
        self._signs = SignsOfLife(0.0, now)
        # At first, and until another one was seen: a driver that was killed leaves its last.
        self._first_beat: str | None = None
        self._driver_lives = False
        self._held: dict[str, _Held] = {}
        # Brought back by the executor, not yet by a file.
        self._brought: dict[str, _Held] = {}
        self._outgoing: list[dict[str, Any]] = []

    def run(self) -> str:
        """Work until there is a reason to end, and return it.

        The reason is a text for people. What is held then is handed back, also at a signal.

        Raises:
            InputError: the driver runs other code, or segments need `--trust`.
        """
        try:
            while True:
                self.turn()
                if (reason := self.reason_to_end()) is not None:
                    return reason
        finally:
            self._leave()

    def reason_to_end(self) -> str | None:
        """Say why nothing is left to do here.

        Returns:
            None where something may be left.
        """
        if self._held or self._brought:
            return None
        if self._notice is not None and self._notice.state == "finished":
            return "the study has finished"
        if self._claimed == self._most_segments:
            return "it has trained as many segments as it was to"
        idle = self._now() - self._busy_at
        if idle >= self._idle_seconds:
            return f"nothing to train for {counted(idle / 60, 'minute', form='.3g')}"
        return None

    def turn(self) -> None:
        """Look at everything once, and wait a little for what comes."""
        self._follow_driver()
        if self._place is not None:
            self._check_claims()
            self._claim()
        if self._held or self._brought:
            self._busy_at = self._now()
        if not self._held:
            self._sleep(self._pause)
        else:
            self._collect(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._send()

    # -- the driver --------------------------------------------------------------------------------

    def _follow_driver(self) -> None:
        """See who drives the study, and whether it still does."""
        now = self._now()
        pause = _LONGEST_PAUSE
        if self._notice is not None:
            pause = min(pause, self._notice.beat_seconds)
        if now - self._followed < pause:
            return
        self._followed = now
        notice = read_notice(self._form.folder)
        if notice is None:
            return
        if self._notice is None or notice.session != self._notice.session:
            self._join(notice)
        elif notice.state != "running":
            self._give_up("the driver has ended")
        self._notice = notice
        if self._place is not None:
            beat = read_text(self._place / DRIVER_BEAT)
            silent = self._signs.silent("driver", beat)
            lives = beat not in (None, self._first_beat) and not silent
            if self._driver_lives and not lives:
                waited = counted(notice.lost_after, "second")
                say(f"no heartbeat of the driver for {waited}: takes no more")
            self._driver_lives = lives

    def _join(self, notice: Notice) -> None:
        """Begin to work for a driver, and forget the one before.

        Raises:
            InputError: it runs other code, has another study file, or another storage.
        """
        self._give_up("another driver has begun")
        if notice.state != "running":
            return
        self._check_code(notice)
        self._check()
        self._place = self._form.folder / QUEUE / notice.session
        self._signs = SignsOfLife(notice.lost_after, self._now)
        self._heart = Heart(self._place / WORKERS / self.name, self._beat, notice.beat_seconds)
        self._first_beat = read_text(self._place / DRIVER_BEAT)

    def _check_code(self, notice: Notice) -> None:
        if notice.study != self._study:
            raise InputError(
                "differs from what the driver has read: start the worker anew, "
                "or mend the folder it sees",
                file=str(self._form.folder / STUDY_FILE),
            )
        differing = {
            name: f"{name} {values[1]} here, {values[0]} at the driver"
            for name, values in changes([notice.facts, self._facts]).items()
        }
        refused = [text for name, text in differing.items() if name in _SAME_CODE]
        if refused:
            raise InputError(
                f"this worker runs other code than the driver ({'; '.join(refused)}): "
                "one study is trained by one version",
                file=str(self._form.folder),
            )
        if differing:
            text = "; ".join(list(differing.values())[:4])
            say(f"caution: this worker may compute other numbers than the driver's host ({text})")

    def _beat(self, count: int) -> Mapping[str, object]:
        holds = (*self._held, *self._brought)
        return to_json(WorkerBeat(count, self.host, self._slots, holds))

    def _give_up(self, why: str) -> None:
        """End all that runs for a driver that is gone.

        Nobody takes its results.
        """
        if self._executor is not None and self._held:
            say(f"{why}: {counted(len(self._held), 'segment', 'are')} given up")
        if self._executor is not None:
            # All of it: a thread that trains can be ended in no other way.
            self._executor.close()
            self._executor = None
        for held in (*self._held.values(), *self._brought.values()):
            _remove_traces(held.segment)
        self._held.clear()
        self._brought.clear()
        self._outgoing.clear()
        if self._heart is not None:
            self._heart.stop()
        self._heart = None
        self._place = None
        self._driver_lives = False

    # -- segments in -------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Take segments that wait, as many as there are slots for."""
        assert self._place is not None
        free = self._slots - len(self._held)
        if self._most_segments is not None:
            free = min(free, self._most_segments - self._claimed)
        if free <= 0 or not self._driver_lives:
            return
        files = published(self._place / WAITING)[: _CHOICE + free]
        self._random.shuffle(files)
        for file in files:
            if free == 0:
                return
            target = self._place / CLAIMED / f"{file}~{self.name}"
            # A signal between both would leave a claim that nobody knows of.
            with signals_held():
                claimed = _renamed(self._place / WAITING / file, target)
                held = self._read_claim(file, target) if claimed else None
            if held is not None:
                free -= 1
                self._start(held)

    def _read_claim(self, file: str, claim: Path) -> _Held | None:
        """Hold the segment of a file that was claimed.

        Returns:
            None where the file is refused.
        """
        name = file.split("~")[-1]
        try:
            segment = self._form.from_json(loads(read_text(claim) or "", str(claim)), str(claim))
            if attempt_name(segment) != name:
                raise InputError(f"holds {attempt_name(segment)}", file=str(claim))
        except (InputError, OSError) as error:
            say(f"a segment is refused: {error}")
            # By itself: the driver refuses answers to what it never put into the queue.
            self._send()
            self._outgoing.append({"refused": {"name": name, "message": str(error)}})
            self._send()
            return None
        self._held[name] = _Held(segment, claim)
        self._claimed += 1
        self._pause = _FIRST_PAUSE
        return self._held[name]

    def _start(self, held: _Held) -> None:
        """Start a segment.

        Raises:
            InputError: it needs `--trust`.
        """
        if held.segment.trust and not self._trust:
            raise InputError(
                "the driver opens pickles of others in checkpoints (--trust): "
                "this worker does so with --trust too",
                file=str(self._form.folder),
            )
        if self._executor is None:
            self._executor = self._make_executor()
        self._executor.submit([held.segment])

    def _check_claims(self) -> None:
        """End what was taken away: given to another worker, or cancelled."""
        assert self._notice is not None
        if self._now() - self._checked < self._notice.beat_seconds:
            return
        self._checked = self._now()
        for name, held in list(self._held.items()):
            if not _exists(held.claim):
                assert self._executor is not None
                self._executor.cancel(held.segment)
                del self._held[name]
                self._drop(held)

    # -- results out -------------------------------------------------------------------------------

    def _collect(self, timeout: float) -> None:
        """Take what the executor has, within `timeout` seconds."""
        assert self._executor is not None
        for message in self._executor.poll(timeout):
            held = self._held.get(attempt_name(message))
            if held is None:
                continue
            if isinstance(message, Report):
                self._outgoing.append({"report": report_to_json(message)})
                continue
            self._pause = _FIRST_PAUSE
            self._bring(held, message)

    def _bring(self, held: _Held, outcome: Outcome) -> None:
        """Have an outcome written, unless its segment was given away meanwhile."""
        name = attempt_name(held.segment)
        del self._held[name]
        # A worker that was stopped, or cut off, comes back with what another has done since.
        if not _exists(held.claim):
            self._drop(held)
            return
        self.ended += 1
        self._brought[name] = held
        try:
            body = self._form.outcome_to_json(outcome)
        except (TypeError, ValueError) as error:
            crash = failure(held.segment, Status.CRASH, f"{type(error).__name__}: {error}", 0.0)
            body = self._form.outcome_to_json(crash)
        self._outgoing.append({"outcome": body})

    def _send(self) -> None:
        """Write what is to be sent.

        What cannot be written is kept and tried again.
        """
        if self._place is None or not self._outgoing:
            return
        path = self._place / RESULTS / f"{self.name}~{self._sent:08d}"
        try:
            publish(path, {"host": self.host, "messages": self._outgoing})
        except FileNotFoundError:
            # The driver has removed its queue; the next look at the notice says why.
            for held in self._brought.values():
                self._drop(held)
        except OSError as error:
            say(f"{path.parent}: {error.strerror}: tries again to write results")
            self._pause = _LONGEST_PAUSE
            return
        self._sent += 1
        self._outgoing.clear()
        self._brought.clear()

    def _drop(self, held: _Held) -> None:
        say(f"segment {held.segment.id} was given away or cancelled: its result is dropped")
        _remove_traces(held.segment)

    def _leave(self) -> None:
        """Hand back what is held, and say goodbye."""
        if self._executor is not None:
            self._executor.close()
        for held in self._held.values():
            if not _exists(held.claim):
                _remove_traces(held.segment)
                continue
            message = f"its worker {self.name} was told to end"
            lost = failure(held.segment, Status.LOST, message, 0.0)
            body = self._form.outcome_to_json(replace(lost, preempted=True))
            self._outgoing.append({"outcome": body})
        self._held.clear()
        self._send()
        if self._heart is not None:
            self._heart.stop()
        if self._place is not None:
            with suppress(OSError):
                (self._place / WORKERS / self.name).unlink()


def _renamed(source: Path, target: Path) -> bool:
    """Claim a file by renaming it.

    Returns:
        True for exactly one of all who try.
    """
    try:
        source.rename(target)
    except FileNotFoundError:
        # An NFS client that repeats a request whose answer was lost is told that there is no such
        # file, although its first one has renamed it.
        return _exists(target)
    return True


def _exists(path: Path) -> bool:
    """Say whether a file of the queue is there.

    It is opened, so that the server of a shared disk is asked anew.
    """
    try:
        with open(path, encoding="utf-8"):
            return True
    except OSError as error:
        # Another error, such as a network that is down, says nothing of the file.
        return error.errno not in (errno.ENOENT, errno.ESTALE)


def _remove_traces(segment: Segment) -> None:
    """Remove what an attempt has written that nobody waits for any more."""
    remove_unfinished(segment)
    # Never a folder that another attempt may have written.
    if segment.folder and Path(segment.folder).name == attempt_name(segment):
        shutil.rmtree(segment.folder, ignore_errors=True)
