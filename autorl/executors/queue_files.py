"""The queue of a study's folder, shared by driver and workers.

    queue/driver.json                        who drives, with which code; `finished` once it is over
    queue/SESSION/driver.beat                the driver's heartbeat
    queue/SESSION/waiting/ORDER~ATTEMPT      a segment nobody has taken
    queue/SESSION/claimed/ORDER~ATTEMPT~WORKER   the same file, renamed by the worker that has it
    queue/SESSION/results/WORKER~NUMBER      reports and outcomes
    queue/SESSION/workers/WORKER             heartbeat of a worker, with what it holds

Every driver has a session folder of its own and removes those before it, so what a worker of an
earlier session still renames or writes goes nowhere. Files appear whole (written aside, renamed)
and a rename is the claim: exactly one of several workers finds the file. That holds on NFS and
Lustre, where locks often do not. No clock of another machine is read: a heartbeat counts, and
whoever looks measures by a clock of its own how long the count stands still.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from autorl.executors.wire import dumps, loads, read, to_json
from autorl.plain_text import printable
from autorl.store import checkpoints
from autorl.store.folder import QUEUE
from autorl.types import FrozenMap, InputError, Outcome, Report, Segment

NOTICE = "driver.json"
DRIVER_BEAT = "driver.beat"
WAITING = "waiting"
CLAIMED = "claimed"
RESULTS = "results"
WORKERS = "workers"
REFUSED = "refused"
PLACES = (WAITING, CLAIMED, RESULTS, WORKERS, REFUSED)
_Value = TypeVar("_Value")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]")


@dataclass(frozen=True)
class Notice:
    """Says who drives a study.

    Attributes:
        session: names the folder of this driver's queue; another one for every driver.
        state: `ended` = the driver has stopped and the study may be resumed.
        study: SHA-256 of the study file, which decides what code workers run.
        beat_seconds: between two heartbeats, of the driver and of its workers.
        lost_after: seconds without a heartbeat after which a worker counts as lost.
        facts: code and machine of the driver, as the study records them of a session.
    """

    session: str
    state: Literal["running", "ended", "finished"]
    study: str
    beat_seconds: float
    lost_after: float
    facts: FrozenMap


@dataclass(frozen=True)
class WorkerBeat:
    """The heartbeat of a worker.

    Attributes:
        count: grows with every beat.
        holds: attempts it has claimed and not yet brought back.
    """

    count: int
    host: str
    slots: int
    holds: tuple[str, ...] = ()


def attempt_name(speaker: Segment | Report | Outcome) -> str:
    """Name an attempt at a segment, as files of the queue do."""
    return checkpoints.attempt_name(*speaker.key)


def say(line: str) -> None:
    """Tell whoever watches this process."""
    print(printable(f"autorl: {line}", keep_lines=False), file=sys.stderr, flush=True)


def file_part(text: str) -> str:
    """Make a text a part of a file's name in the queue."""
    return _NOT_IN_NAMES.sub("-", text)


# -- files -------------------------------------------------------------------------------------


def publish(path: Path, data: Mapping[str, object], *, durable: bool = True) -> None:
    """Write a file of the queue.

    It appears whole, in place of what stood there before. `durable` forces it to the disk first.
    """
    aside = path.with_name(f".{path.name}")
    with open(aside, "w", encoding="utf-8") as file:
        file.write(dumps(data))
        if durable:
            file.flush()
            os.fsync(file.fileno())
    aside.replace(path)


def published(folder: Path) -> list[str]:
    """List the files of a folder of the queue, in order.

    Those that are being written are left out; empty where there is no such folder.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if not name.startswith("."))


def read_text(path: Path) -> str | None:
    """Read a file of the queue, None where it is gone.

    It is opened, not looked at: NFS asks the server anew when a file is opened, while what it says
    of one that is only looked at may be a minute old.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InputError(f"is no text ({error})", file=str(path)) from None


def read_file(kind: type[_Value], path: Path) -> _Value | None:
    """Read a dataclass from a file of the queue.

    Returns:
        None where the file is gone.

    Raises:
        InputError: the file holds something else.
    """
    text = read_text(path)
    return None if text is None else read(kind, loads(text, str(path)), str(path))


def read_notice(study_folder: Path) -> Notice | None:
    """Read who drives a study, None where no driver was there yet.

    Raises:
        InputError: the file holds something else.
    """
    return read_file(Notice, study_folder / QUEUE / NOTICE)


def announce_finished(study_folder: Path | None) -> None:
    """Tell the workers of a study that nothing more will come.

    A study without a queue has none to tell.
    """
    if study_folder is None:
        return
    notice = read_notice(study_folder)
    if notice is not None and notice.state != "finished":
        announce(study_folder, replace(notice, state="finished"))


def announce(study_folder: Path, notice: Notice) -> None:
    """Say who drives a study."""
    publish(study_folder / QUEUE / NOTICE, to_json(notice))


# -- heartbeats --------------------------------------------------------------------------------


class Heart:
    """Writes a heartbeat again and again, in a thread of its own.

    Not by the loop of its process, which may wait minutes for a library to be imported or a model
    to be fitted. A process that is killed or stopped, or whose network is down, writes none.

    Args:
        path: of the file.
        content: what the heartbeat says, given how often the heart has beaten.
        seconds: between two beats.
    """

    def __init__(
        self, path: Path, content: Callable[[int], Mapping[str, object]], seconds: float
    ) -> None:
        self._path = path
        self._content = content
        self._seconds = seconds
        self._count = 0
        self._stopped = threading.Event()
        self._turn = threading.Lock()
        self.beat()
        self._thread = threading.Thread(target=self._beat_on, daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Beat now, for what others should see at once."""
        with self._turn:
            self._count += 1
            # A full disk or a network that is down: if it lasts, silence is what others should see.
            with suppress(OSError):
                publish(self._path, self._content(self._count), durable=False)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(self._seconds)  # not for ever: its disk may hang

    def _beat_on(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.beat()


class SignsOfLife:
    """Judges by what it sees whether others have fallen silent.

    Args:
        patience: seconds without any change after which somebody is silent.
        now: a clock that never goes back.
    """

    def __init__(self, patience: float, now: Callable[[], float]) -> None:
        self._patience = patience
        self._now = now
        self._seen: dict[str, tuple[object, float, float]] = {}

    def silent(self, name: str, sign: object) -> bool:
        """Say whether a sign of life has stood still for too long.

        Args:
            name: whose it is.
            sign: what changes while it lives.
        """
        now = self._now()
        before, looked, silence = self._seen.get(name, (None, now, 0.0))
        if name not in self._seen or before != sign:
            silence = 0.0
        else:
            # Whoever did not look for long, because it was stopped itself, has seen no silence.
            silence += min(now - looked, self._patience / 4)
        self._seen[name] = (sign, now, silence)
        return silence >= self._patience

    def forget_all_but(self, names: set[str]) -> None:
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
