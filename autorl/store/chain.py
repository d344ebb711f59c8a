"""The chain over the event log.

Each event carries a hash of itself and of the hash before it.

A change, a gap or an exchange of events shows at the first event concerned. The hash has no key: it
finds damage and edits, not somebody who writes a new log with new hashes.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from autorl.core.plain_text import shortened
from autorl.core.types import InputError
from autorl.store.log import stored_bytes


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
        break_at: number of the first event that does not fit; None when the log is whole.
        problem: what is wrong with it, in words; empty when the log is whole.
    """

    head: Head
    break_at: int | None = None
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
    try:
        for seq, kind, body, time, stored in stored_bytes(connection):
            expected = last + 1
            if seq != expected:
                return Chain(Head(last, link), expected, f"event {expected} is missing")
            computed = event_hash(link, seq, kind, body, time)
            if stored != computed:
                problem = f"event {seq} is not what was recorded"
                return Chain(Head(last, link), seq, problem)
            last = seq
            link = computed
    # A kind or a body that has become NULL is a TypeError.
    except (sqlite3.DatabaseError, TypeError) as error:
        _raise_of_disk(getattr(error, "sqlite_errorcode", 0))
        problem = f"event {last + 1} cannot be read ({one_line(error)})"
        return Chain(Head(last, link), last + 1, problem)
    return Chain(Head(last, link))


def check_pages(connection: sqlite3.Connection) -> str | None:
    """Return SQLite's own complaint about pages and indexes, or None."""
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


def one_line(error: object) -> str:
    """Put what SQLite says on one line, cut: it quotes whole tables."""
    return shortened(" ".join(str(error).split()))


def check_log(connection: sqlite3.Connection, folder: Path, path: Path) -> Chain:
    """Refuse a database whose pages or whose chain of events are broken.

    Raises:
        InputError: one line that names the first event concerned.
    """
    pages = check_pages(connection)
    chain = check_chain(connection)
    if chain.break_at is None and pages is None:
        return chain
    problem = (
        f"{chain.problem}, {whole_events(chain.head.seq)}"
        if chain.problem
        else f"SQLite says: {pages}"
    )
    raise InputError(
        f"is damaged ({problem}): nothing was changed; "
        f"`autorl doctor {folder}` says what can be saved",
        file=str(path),
    )


def whole_events(count: int) -> str:
    """Word how many events at the beginning of a log are whole."""
    if count < 2:
        return "event 1 is whole" if count else "no event before it is whole"
    return f"events 1 to {count} are whole"
