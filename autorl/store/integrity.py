"""Checks the pages, event chain and tables of a study's database.

Each event carries a hash of itself and of the hash before it. A change, a gap or an exchange of
events shows at the first event concerned. The hash has no key: it finds damage and edits, not
somebody who writes a new log with new hashes. The tables are derived from the events anew and
compared with those that are stored.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from autorl.core.plain_text import one_line, shown
from autorl.core.types import Checkpoint, InputError, SegmentId
from autorl.store import schema
from autorl.store.events import CheckpointRegained, CheckpointsCollected, SegmentEnded
from autorl.store.log import recorded_until, saved_checkpoint, stored_bytes


@dataclass(frozen=True)
class Head:
    """The last event of a log: its number, and its hash.

    The hash is empty before the first event.
    """

    seq: int = 0
    hash: str = ""


@dataclass(frozen=True)
class Chain:
    """The result of a check of the whole log.

    Attributes:
        head: the last event that fits all before it.
        problem: what is wrong with the next one, in words; empty when the log is whole.
    """

    head: Head
    problem: str = ""


def event_hash(previous: str, seq: int, kind: bytes, body: bytes, time: object) -> str:
    """Hash one event.

    It is SHA-256 over the hash before it, its number, kind, time and body as stored.
    """
    # `repr` keeps every bit of a time, and tells the float of the column from a whole number.
    head = f"{previous}\n{seq}\n".encode()
    return hashlib.sha256(b"%b%b\n%b\n%b" % (head, kind, repr(time).encode(), body)).hexdigest()


def check_chain(connection: sqlite3.Connection) -> Chain:
    """Check the log, up to the first event that does not fit."""
    # Not a `Head`: one for each of a log's events would cost as much as the hashes.
    last = 0
    link = ""
    problem = ""
    try:
        for seq, kind, body, time, stored in stored_bytes(connection):
            if seq != last + 1:
                problem = f"event {last + 1} is missing"
                break
            computed = event_hash(link, seq, kind, body, time)
            if stored != computed:
                problem = f"event {seq} is not what was recorded"
                break
            last = seq
            link = computed
    # A kind or a body that has become NULL is a TypeError.
    except (sqlite3.DatabaseError, TypeError) as error:
        _raise_of_disk(getattr(error, "sqlite_errorcode", 0))
        problem = f"event {last + 1} cannot be read ({one_line(error)})"
    return Chain(Head(last, link), problem)


def check_pages(connection: sqlite3.Connection) -> str | None:
    """Return what SQLite's own check of pages and indexes says is wrong.

    The result is None when the file is whole.
    """
    try:
        # Not `quick_check`, which does not compare indexes with their tables. One problem will do.
        rows = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        _raise_of_disk(error.sqlite_errorcode)
        return one_line(error)
    text = one_line(rows[0][0]) if rows else "no answer"
    if code := re.search(r"error code=(\d+)", text):  # of a page that could not be read
        _raise_of_disk(int(code[1]))
    return None if text == "ok" else text


def _raise_of_disk(code: int) -> None:
    """Raise where SQLite's error is the disk's: that is not damage."""
    if code & 0xFF == sqlite3.SQLITE_IOERR:
        raise sqlite3.OperationalError("disk I/O error")


def check_database(connection: sqlite3.Connection, path: Path) -> Head:
    """Refuse a database with broken pages or events, or with wrong tables.

    Returns:
        The last event.

    Raises:
        InputError: one line that names the first event, or table and row.
    """
    schema.check(connection, path)
    pages = check_pages(connection)
    chain = check_chain(connection)
    if chain.problem:
        problem = f"{chain.problem}, events 1 to {chain.head.seq} are whole"
    elif pages is not None:
        problem = f"SQLite says: {pages}"
    else:
        problem = next(iter(table_differences(connection, chain.head.seq)), "")
    if problem:
        raise InputError(
            f"is damaged ({problem}): nothing was changed; "
            f"`autorl doctor {path.parent}` says what can be saved",
            file=str(path),
        )
    return chain.head


# -- tables ------------------------------------------------------------------------------------


def rebuilt(source: sqlite3.Connection, until: int) -> sqlite3.Connection:
    """Make a database in memory of the first `until` events of `source`.

    It has the tables that follow from them.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: these events cannot be read.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(copy)
    rows = source.execute("SELECT * FROM event WHERE seq <= ? ORDER BY seq", (until,))
    copy.execute("BEGIN")
    copy.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", rows)
    for seq, event, _ in recorded_until(copy, until):
        schema.apply(copy, seq, event)
    copy.execute("COMMIT")
    return copy


def table_differences(connection: sqlite3.Connection, until: int) -> list[str]:
    """Describe each table that does not follow from the first `until` events.

    It is one line each, with the first row that differs.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: these events cannot be read.
    """
    with closing(rebuilt(connection, until)) as derived:
        tables = derived.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'event'"
        ).fetchall()
        texts = {table: _first_difference(derived, connection, table) for (table,) in tables}
    return [f"table {table} {text}" for table, text in texts.items() if text is not None]


def _first_difference(
    derived: sqlite3.Connection, stored: sqlite3.Connection, table: str
) -> str | None:
    columns = derived.execute(f"PRAGMA table_info({table})").fetchall()
    key = [row[:2] for row in sorted(columns, key=lambda row: row[-1]) if row[-1] > 0]
    query = f"SELECT * FROM {table} ORDER BY {', '.join(name for _, name in key)}"
    try:
        for rows in zip_longest(derived.execute(query), stored.execute(query)):
            if rows[0] != rows[1]:
                keys = [[(name, row[place]) for place, name in key] for row in rows if row]
                first = ", ".join(
                    f"{name} {shown(value, 40)}" for name, value in min(keys, key=str)
                )
                return f"does not follow from the events, first at {first}"
    except sqlite3.DatabaseError as error:
        return f"cannot be read ({one_line(error)})"
    return None


# -- checkpoints -------------------------------------------------------------------------------


def saved_checkpoints(
    connection: sqlite3.Connection, until: int
) -> tuple[dict[SegmentId, Checkpoint], set[SegmentId]]:
    """Return the recorded checkpoints on disk, and segments that have ended.

    The first `until` events count. Paths are as they are stored.
    """
    saved: dict[SegmentId, Checkpoint] = {}
    ended: set[SegmentId] = set()
    kinds = (SegmentEnded, CheckpointRegained, CheckpointsCollected)
    for _, event, _ in recorded_until(connection, until, *kinds):
        if isinstance(event, SegmentEnded):
            ended.add(event.segment)
        if isinstance(event, CheckpointsCollected):
            for segment in event.segments:
                saved.pop(segment, None)
        elif (checkpoint := saved_checkpoint(event)) is not None:
            saved[checkpoint.segment] = checkpoint
    return saved, ended
