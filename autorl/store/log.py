"""The event log: the table `event` of `study.sqlite`.

A row is one durable fact: its number, its kind, its body as JSON, the time it was written, and a
hash that chains it to the rows before it (`chain.py`). Rows are only ever added. All other tables
follow from them (`schema.py`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeAlias

from autorl.store.codec import dumps, loads
from autorl.store.events import (
    BudgetExtended,
    CheckpointRegained,
    SegmentEnded,
    SessionBegun,
    StudyBegun,
    StudyEvent,
    TestSeedsAdded,
)
from autorl.types import SegmentId

Query: TypeAlias = Callable[..., list[tuple[Any, ...]]]
"""Rows of a read-only SQL statement and its parameters, as `Store.query` answers."""

EPOCH = "epoch"  # fact of a session of a study with a storage: its number, by the lease

_ENTRIES_AT_ONCE = 500

# What a user asks for between two sessions. It belongs to neither.
_BETWEEN_SESSIONS = (BudgetExtended.kind, TestSeedsAdded.kind)


class LogEntry(NamedTuple):
    """An event as the log holds it.

    Attributes:
        body: plain lists and dicts, which belong to whoever reads them.
    """

    seq: int
    kind: str
    body: Any
    time: float


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

    def holds_events(self) -> bool:
        """Say whether the log has an event."""
        return bool(self._query("SELECT 1 FROM event LIMIT 1"))

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

    def entries_between(self, begin: int, end: int) -> list[LogEntry]:
        """List the events after number `begin`, up to number `end`.

        Raises:
            ValueError: a body is no JSON.
        """
        rows: list[Any] = self._query(
            "SELECT seq, kind, body, time FROM event WHERE seq > ? AND seq <= ? ORDER BY seq",
            (begin, end),
        )
        return _entries_of(rows)

    def events(self, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
        """List kind and body of the events of some kinds.

        They are in the order they were recorded.
        """
        rows = self._query(
            f"SELECT kind, body FROM event WHERE kind IN ({_marks(kinds)}) ORDER BY seq", kinds
        )
        return [(kind, loads(text)) for kind, text in rows]

    def added_test_seeds(self) -> list[int]:
        """List the test seeds that were added to the study.

        They are in the order they were asked for.
        """
        return [seed for _, body in self.events(TestSeedsAdded.kind) for seed in body["seeds"]]

    def study_file(self) -> Mapping[str, Any] | None:
        """Return the body of the event that fixes the study file.

        None in a log of an earlier version.
        """
        rows = self._query(
            "SELECT body FROM event WHERE kind = ? ORDER BY seq LIMIT 1", (StudyBegun.kind,)
        )
        return loads(rows[0][0]) if rows else None

    def sessions(self) -> list[dict[str, Any]]:
        """List the sessions that recorded anything, in order.

        One that ended before changed nothing.
        """
        rows = self._query(
            "SELECT seq, body FROM event WHERE kind = ? ORDER BY seq", (SessionBegun.kind,)
        )
        ends = [seq for seq, _ in rows[1:]] + [self.last_number() + 1]
        return [loads(body) for (seq, body), end in zip(rows, ends, strict=False) if end - seq > 1]

    def last_epoch(self) -> int:
        """Return the epoch of the latest session, 0 before the first.

        It is the number of the session; a session of a study with a storage says it, as the
        storage may have seen sessions that this log has lost.
        """
        epoch = 0
        for _, body in self.events(SessionBegun.kind):
            epoch = max(epoch + 1, body.get(EPOCH, 0))
        return epoch

    def hash_of(self, seq: int) -> str:
        """Return the hash of an event.

        Empty where there is no such event, or it has no hash.
        """
        rows = self._query("SELECT hash FROM event WHERE seq = ?", (seq,))
        return (rows[0][0] or "") if rows else ""

    def hours(self) -> float:
        """Add up the driver hours of all sessions.

        A session lasts from its start to its last event. What is asked for between two sessions,
        more runs or test seeds, belongs to neither: the pause is not counted.
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
            f"SELECT body FROM event WHERE kind IN ({_marks(kinds)}) AND instr(body, ?) > 0 "
            "ORDER BY seq",
            (*kinds, f'"segment":{dumps(segment)}'),
        )
        bodies = [loads(text) for (text,) in rows]
        saved = [body for body in bodies if body["segment"] == segment]
        # The last: a segment that was trained again for its checkpoint has new files.
        files: Mapping[str, str] = saved[-1].get("checkpoint_files", {}) if saved else {}
        return files


def columns_of_log(connection: sqlite3.Connection) -> list[str]:
    """List the columns of the log, none where there is no log.

    Logs of earlier versions have no `hash`.
    """
    return [name for _, name, *_ in connection.execute("PRAGMA table_info(event)")]


def first_event_hash(connection: sqlite3.Connection) -> str:
    """Hash the first event of a log, its time included."""
    row = connection.execute("SELECT kind, body, time FROM event WHERE seq = 1").fetchone()
    return hashlib.sha256(repr(row).encode()).hexdigest()


def add_event(
    connection: sqlite3.Connection, seq: int, kind: str, body: str, time: float, link: str | None
) -> None:
    """Add a row to the log, inside the caller's transaction."""
    connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", (seq, kind, body, time, link))


def add_events(
    connection: sqlite3.Connection, rows: Iterable[tuple[int, str, str, float, str | None]]
) -> None:
    """Add rows to a log, inside the caller's transaction."""
    connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", rows)


def events_until(
    connection: sqlite3.Connection, until: int
) -> Iterator[tuple[int, str, str, float, str | None]]:
    """Read number, kind, body, time and hash of the first `until` events."""
    link = "hash" if "hash" in columns_of_log(connection) else "NULL"
    return connection.execute(
        f"SELECT seq, kind, body, time, {link} FROM event WHERE seq <= ? ORDER BY seq", (until,)
    )


def entries_until(connection: sqlite3.Connection, until: int) -> Iterator[LogEntry]:
    """Read the first `until` events.

    Raises:
        ValueError: a body is no JSON.
    """
    rows = connection.execute(
        "SELECT seq, kind, body, time FROM event WHERE seq <= ? ORDER BY seq", (until,)
    )
    while several := rows.fetchmany(_ENTRIES_AT_ONCE):
        yield from _entries_of(several)


def _entries_of(rows: Sequence[tuple[int, str, str, float]]) -> list[LogEntry]:
    """Parse the bodies of events.

    Raises:
        ValueError: a body is no JSON.
    """
    bodies = _parsed([text for _, _, text, _ in rows])
    return [
        LogEntry(seq, kind, body, time)
        for (seq, kind, _, time), body in zip(rows, bodies, strict=True)
    ]


def _parsed(texts: Sequence[str]) -> list[Any]:
    """Parse texts of JSON objects, each of them whole.

    Raises:
        ValueError: one is no JSON.
    """
    # All in one call: that saves a third of the time, and a name that many objects have is one
    # string. What is no list of so many objects is damaged, and then the error names its place.
    with suppress(ValueError, TypeError):
        bodies: list[Any] = json.loads(f"[{','.join(texts)}]")
        if len(bodies) == len(texts) and all(type(body) is dict for body in bodies):
            return bodies
    return [json.loads(text) for text in texts]


def bodies_until(
    connection: sqlite3.Connection, kinds: Collection[str], until: int
) -> Iterator[tuple[str, Any]]:
    """Read kind and body of events up to `until`, of some kinds."""
    query = (
        f"SELECT kind, body FROM event WHERE kind IN ({_marks(kinds)}) AND seq <= ? ORDER BY seq"
    )
    for kind, body in connection.execute(query, (*kinds, until)):
        yield kind, json.loads(body)  # not frozen: nobody keeps it


def stored_bytes(
    connection: sqlite3.Connection, *, hashed: bool
) -> Iterator[tuple[int, bytes, bytes, object, str | None]]:
    """Read number, kind, body, time and hash of every event.

    Kind and body are the bytes as stored: what is no UTF-8 any more cannot be read as text.

    Args:
        connection: to the database.
        hashed: whether the log has a column for hashes.
    """
    link = "hash" if hashed else "NULL"
    return connection.execute(
        f"SELECT seq, CAST(kind AS BLOB), CAST(body AS BLOB), time, {link} FROM event ORDER BY seq"
    )


def _marks(values: Iterable[object]) -> str:
    """Return a question mark for each value of an SQL list."""
    return ", ".join("?" for _ in values)
