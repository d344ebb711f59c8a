"""Derives the tables of a study from its events anew.

And the checkpoints that must lie in its folder.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from autorl.plain_text import shown
from autorl.store import schema
from autorl.store.chain import Chain, has_hashes, one_line
from autorl.types import InputError

_COLUMNS = ("seq", "kind", "body", "time", "hash")


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that the log names.

    It has its path as stored, and the hash of each of its files if they were recorded.
    """

    path: str
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Tell whether the path stays below the study's folder.

        A database of somebody else can say anything.
        """
        return not Path(self.path).is_absolute() and ".." not in Path(self.path).parts


def rebuilt(source: sqlite3.Connection, until: int) -> sqlite3.Connection:
    """Make a database in memory of the first `until` events of `source`.

    It has the tables that follow from them.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError, KeyError: these events cannot be read.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(copy)
    columns = _COLUMNS if has_hashes(source) else (*_COLUMNS[:-1], "NULL")
    query = f"SELECT {', '.join(columns)} FROM event WHERE seq <= ? ORDER BY seq"
    counts_from_1 = _counts_from_1(source)
    copy.execute("BEGIN")
    for seq, kind, body, time, link in source.execute(query, (until,)):
        copy.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", (seq, kind, body, time, link))
        schema.apply(copy, seq, kind, json.loads(body))
        if counts_from_1 and kind == "proposed":
            copy.execute("UPDATE configs SET config_id = 1")
            copy.execute("UPDATE proposals SET config_id = 1")
            counts_from_1 = False
    copy.execute("COMMIT")
    return copy


def check_tables(connection: sqlite3.Connection, chain: Chain, folder: Path, path: Path) -> None:
    """Refuse a database whose tables do not follow from its events.

    The events are whole.

    Not compared are tables of a study that an earlier version began: it may have derived them in
    another way.

    Raises:
        InputError: one line that names the first table and row.
    """
    if chain.first_hashed != 1:
        return
    with closing(rebuilt(connection, chain.head.seq)) as derived:
        lines = table_differences(connection, derived)
    if lines:
        raise InputError(
            f"is damaged ({lines[0]}): nothing was changed; "
            f"`autorl verify {folder}` says what can be saved",
            file=str(path),
        )


def _counts_from_1(source: sqlite3.Connection) -> bool:
    """Tell whether configurations are numbered as an early version did.

    See `schema.apply`.
    """
    try:
        return bool(source.execute("SELECT min(config_id) FROM configs").fetchone() == (1,))
    except sqlite3.DatabaseError:  # the table is damaged: any numbering will do
        return False


def table_differences(stored: sqlite3.Connection, derived: sqlite3.Connection) -> list[str]:
    """Describe each stored table that does not follow from the events.

    It is one line each, with the first row that differs.
    """
    tables = derived.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'event' ORDER BY name"
    )
    lines = []
    for (table,) in tables.fetchall():
        try:
            difference = _first_difference(stored, derived, table)
        except sqlite3.DatabaseError as error:
            difference = f"cannot be read ({one_line(error)})"
        if difference is not None:
            lines.append(f"table {table} {difference}")
    return lines


def _first_difference(
    stored: sqlite3.Connection, derived: sqlite3.Connection, table: str
) -> str | None:
    columns = derived.execute(f"PRAGMA table_info({table})").fetchall()
    names = ", ".join(name for _, name, *_ in columns)
    keys = sorted((place, number) for number, (*_, place) in enumerate(columns) if place > 0)
    order = ", ".join(columns[number][1] for _, number in keys)
    query = f"SELECT {names} FROM {table} ORDER BY {order}"
    for has, should in zip_longest(stored.execute(query), derived.execute(query)):
        if has == should:
            continue
        rows = [[row[number] for _, number in keys] for row in (has, should) if row is not None]
        first = min(rows, key=lambda row: [(type(value).__name__, value) for value in row])
        names_and_values = zip((columns[number][1] for _, number in keys), first, strict=True)
        key = ", ".join(f"{name} {shown(value, 40)}" for name, value in names_and_values)
        return f"does not follow from the events, first at {key}"
    return None


def saved_checkpoints(connection: sqlite3.Connection, until: int) -> dict[str, SavedCheckpoint]:
    """Return checkpoints that events say lie on disk, by segment.

    The first `until` events count.
    """
    saved: dict[str, SavedCheckpoint] = {}
    for kind, body in _bodies(connection, ("outcome", "regained", "collected"), until):
        if kind == "collected":
            for segment in body["segments"]:
                saved.pop(segment, None)
        elif body["checkpoint"] is not None:
            saved[body["segment"]] = SavedCheckpoint(
                body["checkpoint"], body.get("checkpoint_files", {})
            )
    return saved


def trained_segments(connection: sqlite3.Connection, until: int) -> set[str]:
    """Return segments whose outcome is among the first `until` events."""
    return {body["segment"] for _, body in _bodies(connection, ("outcome",), until)}


def _bodies(
    connection: sqlite3.Connection, kinds: tuple[str, ...], until: int
) -> Iterator[tuple[str, Any]]:
    marks = ", ".join("?" for _ in kinds)
    query = f"SELECT kind, body FROM event WHERE kind IN ({marks}) AND seq <= ? ORDER BY seq"
    for kind, body in connection.execute(query, (*kinds, until)):
        yield kind, json.loads(body)
