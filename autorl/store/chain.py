"""The chain over the event log.

Each event carries a hash of itself and of the hash before it.

A change, a gap or an exchange of events shows at the first event concerned. The hash has no key: it
finds damage and edits, not somebody who writes a new log with new hashes. Logs of earlier versions
carry no hashes; the first event that is added to one carries the hash of all before it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from autorl.plain_text import shortened
from autorl.store.log import columns_of_log, stored_bytes
from autorl.types import InputError


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
        first_hashed: number of the first event that carries a hash; None when none does.
        break_at: number of the first event that does not fit; None when the log is whole.
        problem: what is wrong with it, in words; empty when the log is whole.
    """

    head: Head
    first_hashed: int | None
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
    first_hashed = None
    hashed = "hash" in columns_of_log(connection)
    try:
        for seq, kind, body, time, stored in stored_bytes(connection, hashed=hashed):
            expected = last + 1
            if seq != expected:
                problem = f"event {expected} is missing"
                return Chain(Head(last, link), first_hashed, expected, problem)
            computed = event_hash(link, seq, kind, body, time)
            if stored is None and first_hashed is not None:
                problem = f"event {seq} carries no hash"
                return Chain(Head(last, link), first_hashed, seq, problem)
            if stored is not None and stored != computed:
                problem = f"event {seq} is not what was recorded"
                if first_hashed is None and seq > 1:
                    # One hash stands for all events of an earlier version, so any may differ.
                    problem = f"one of the events 1 to {seq} is not what was recorded"
                return Chain(Head(last, link), first_hashed, seq, problem)
            if stored is not None and first_hashed is None:
                first_hashed = seq
            # Computed also where none is stored: the first stored hash covers all events before it.
            last = seq
            link = computed
    # A kind or a body that has become NULL is a TypeError.
    except (sqlite3.DatabaseError, TypeError) as error:
        problem = f"event {last + 1} cannot be read ({one_line(error)})"
        return Chain(Head(last, link), first_hashed, last + 1, problem)
    return Chain(Head(last, link), first_hashed)


def check_pages(connection: sqlite3.Connection) -> str | None:
    """Return what SQLite's own check of pages and indexes says is wrong.

    None when the file is whole.
    """
    try:
        # Not `quick_check`, which does not compare indexes with their tables. One problem will do.
        rows = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        return one_line(error)
    text = one_line(rows[0][0]) if rows else "no answer"
    return None if text == "ok" else text


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
        f"`autorl verify {folder}` says what can be saved",
        file=str(path),
    )


def whole_events(count: int) -> str:
    """Word how many events at the beginning of a log are whole."""
    if count < 2:
        return "event 1 is whole" if count else "no event before it is whole"
    return f"events 1 to {count} are whole"
