"""The event log: the table `event` of `study.sqlite`.

A row is one durable fact: its number, its kind, its body as JSON, the time it was written, and a
hash that chains it to the rows before it (`integrity.py`). Rows are only ever added. All other
tables follow from them (`schema.py`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, cast

from autorl.core.types import Checkpoint, FrozenMap, InputError, SegmentId
from autorl.store.codec import dumps, read_event
from autorl.store.events import (
    BudgetExtended,
    CheckpointRegained,
    SegmentEnded,
    SessionBegun,
    StudyBegun,
    StudyEvent,
    TestSeedsAdded,
)

Query: TypeAlias = Callable[..., list[tuple[Any, ...]]]
"""Rows of a read-only SQL statement and its parameters, as `Store.query` answers."""

EPOCH = "epoch"  # fact of a session of a study with a storage: its number, by the lease

# A user asks for these between two sessions. They belong to neither.
_BETWEEN_SESSIONS = (BudgetExtended.kind, TestSeedsAdded.kind)


E = TypeVar("E", bound=StudyEvent)


class Recorded(NamedTuple):
    """A stored event, its place in the log, and its time.

    The time is that of the wall clock when it was written.
    """

    seq: int
    event: StudyEvent
    time: float

    @property
    def kind(self) -> str:
        """The kind of the event, as the log names it."""
        return self.event.kind


class Latest(NamedTuple):
    """The kind of an event and the wall-clock time it was written."""

    kind: str
    time: float


class EventLog:
    """Reads the log of one study.

    Every method is one look at it, as it is now.

    Args:
        query: runs a read-only statement, `Store.query` for one.
    """

    def __init__(self, query: Query) -> None:
        self._query = query

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> Self:
        """Read through a connection that somebody else closes."""

        def query(sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
            return connection.execute(sql, parameters).fetchall()

        return cls(query)

    def _one(self, sql: str, parameters: tuple[object, ...] = ()) -> Any:
        """Return the one value of the one row of an answer."""
        ((value,),) = self._query(sql, parameters)
        return value

    def has_log(self) -> bool:
        """Say whether the database is a study's.

        One that was killed at its start is empty.
        """
        return bool(self._query("SELECT 1 FROM sqlite_master WHERE name = 'event'"))

    def last_number(self) -> int:
        """Return the number of the latest event, 0 before the first."""
        return int(self._one("SELECT coalesce(max(seq), 0) FROM event"))

    def kinds(self) -> list[str]:
        """List every kind of event in the log."""
        return [kind for (kind,) in self._query("SELECT DISTINCT kind FROM event")]

    def last_event(self) -> Latest | None:
        """Return the latest event, or None before the first."""
        rows = self._query("SELECT kind, time FROM event ORDER BY seq DESC LIMIT 1")
        return Latest(*rows[0]) if rows else None

    def newest_time(self) -> float | None:
        """Return the latest time of an event, in seconds since 1970."""
        value: float | None = self._one("SELECT max(time) FROM event")
        return value

    def count_events(self, event: type[StudyEvent]) -> int:
        """Count the events of a kind."""
        return int(self._one("SELECT COUNT(*) FROM event WHERE kind = ?", (event.kind,)))

    def events(self, *kinds: type[E]) -> list[E]:
        """List the events of some kinds, in the order they were recorded.

        Checkpoints have their paths as they are stored.
        """
        names = [kind.kind for kind in kinds]
        rows = self._query(
            f"SELECT kind, body FROM event WHERE kind IN ({_marks(names)}) ORDER BY seq", names
        )
        return [cast(E, read_event(kind, json.loads(text))) for kind, text in rows]

    def added_test_seeds(self) -> list[int]:
        """List the test seeds that were added to the study.

        They are in the order they were asked for.
        """
        return [seed for event in self.events(TestSeedsAdded) for seed in event.seeds]

    def study_file(self) -> StudyBegun:
        """Return the event that fixes the study file.

        Raises:
            InputError: the log has lost it.
        """
        begun = self.events(StudyBegun)
        if not begun:
            raise InputError("the log holds no study file, and every study begins with one")
        return begun[0]

    def sessions(self) -> list[FrozenMap]:
        """List the facts of sessions that recorded anything, in order.

        A session that recorded nothing changed nothing.
        """
        rows = self._query(
            "SELECT seq, lead(seq) OVER (ORDER BY seq) FROM event WHERE kind = ? ORDER BY seq",
            (SessionBegun.kind,),
        )
        last = self.last_number()
        return [
            event.facts
            for event, (seq, following) in zip(self.events(SessionBegun), rows, strict=True)
            if (following or last + 1) - seq > 1
        ]

    def last_epoch(self) -> int:
        """Return the epoch of the latest session, 0 before the first.

        It is the number of the session; a session of a study with a storage says it, as the
        storage may have seen sessions that this log has lost.
        """
        epoch = 0
        for event in self.events(SessionBegun):
            epoch = max(epoch + 1, event.facts.get(EPOCH, 0))
        return epoch

    def hash_of(self, seq: int) -> str:
        """Return the hash of an event.

        Empty where there is no such event, or it has no hash.
        """
        rows = self._query("SELECT hash FROM event WHERE seq = ?", (seq,))
        return (rows[0][0] or "") if rows else ""

    def identity(self) -> str:
        """Return the study's identity: the hash of its first event, with time."""
        return self.hash_of(1)

    def hours(self) -> float:
        """Add up the driver hours of all sessions.

        A session lasts from its start to its last event. Requests between two sessions, for more
        runs or test seeds, belong to neither: the pause is not counted.
        """
        last = (
            f"SELECT time FROM event WHERE seq < ? AND kind NOT IN ({_marks(_BETWEEN_SESSIONS)}) "
            "ORDER BY seq DESC LIMIT 1"
        )
        sessions = self._query(
            "SELECT seq, time FROM event WHERE kind = ? ORDER BY seq", (SessionBegun.kind,)
        )
        ends = [seq for seq, _ in sessions[1:]] + [2**62]  # more than any log has
        total = 0.0
        for (_, begun), end in zip(sessions, ends, strict=False):
            total += self._one(last, (end, *_BETWEEN_SESSIONS)) - begun
        return total / 3600

    def saved_files(self, segment: SegmentId) -> Mapping[str, str]:
        """Return the SHA-256 of each file of a segment's checkpoint, by name.

        Files are left out as far as they were not recorded.
        """
        kinds = (SegmentEnded.kind, CheckpointRegained.kind)
        # The whole log is searched as text: a body is parsed only if it names the segment.
        rows = self._query(
            f"SELECT kind, body FROM event WHERE kind IN ({_marks(kinds)}) AND instr(body, ?) > 0 "
            "ORDER BY seq",
            (*kinds, f'"segment":{dumps(segment)}'),
        )
        files: Mapping[str, str] = {}
        for kind, text in rows:
            saved = saved_checkpoint(read_event(kind, json.loads(text)))
            if saved is not None and saved.segment == segment:
                files = saved.files  # the last: trained again for it, a segment has new files
        return files


def saved_checkpoint(event: StudyEvent) -> Checkpoint | None:
    """Return the checkpoint that an event tells of."""
    if isinstance(event, CheckpointRegained):
        return event.checkpoint
    return event.outcome.checkpoint if isinstance(event, SegmentEnded) else None


def add_event(
    connection: sqlite3.Connection, seq: int, kind: str, body: str, time: float, link: str | None
) -> None:
    """Add a row to the log, inside the caller's transaction."""
    connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", (seq, kind, body, time, link))


def recorded_until(
    connection: sqlite3.Connection, until: int, *kinds: type[StudyEvent], after: int = 0
) -> Iterator[Recorded]:
    """Read the events up to a number, or some kinds of them.

    Raises:
        ValueError: one cannot be read.
    """
    names = [kind.kind for kind in kinds]
    chosen = f"AND kind IN ({_marks(names)})" if kinds else ""
    rows = connection.execute(
        f"SELECT seq, kind, body, time FROM event WHERE seq > ? AND seq <= ? {chosen} ORDER BY seq",
        (after, until, *names),
    )
    # A row at a time: a log of 100,000 events needs no memory for all of them.
    for seq, kind, text, time in rows:
        yield Recorded(seq, read_event(kind, json.loads(text)), time)


def stored_bytes(
    connection: sqlite3.Connection,
) -> Iterator[tuple[int, bytes, bytes, object, str | None]]:
    """Read number, kind, body, time and hash of every event.

    Kind and body are the bytes as stored: damaged UTF-8 cannot be read as text.
    """
    return connection.execute(
        "SELECT seq, CAST(kind AS BLOB), CAST(body AS BLOB), time, hash FROM event ORDER BY seq"
    )


def _marks(values: Iterable[object]) -> str:
    """Return a question mark for each value of an SQL list."""
    return ", ".join("?" for _ in values)
