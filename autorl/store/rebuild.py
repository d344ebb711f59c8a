"""Derives the tables of a study from its events anew.

And the checkpoints that must lie in its folder.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from autorl.core.plain_text import shown
from autorl.core.types import Checkpoint, InputError, SegmentId
from autorl.store import schema
from autorl.store.chain import Chain, one_line
from autorl.store.events import CheckpointRegained, CheckpointsCollected, SegmentEnded
from autorl.store.log import Recorded, add_events, events_until, recorded_until, saved_checkpoint
from autorl.store.tables import derived_tables, has_same_rows, ordered_rows

_ROWS_AT_ONCE = 1000
_EVENTS_AT_ONCE = 500  # fewer than the parameters that a statement may have in old SQLites

See: TypeAlias = Callable[[Sequence[Recorded]], None]
"""Takes events of a log, in order, some at a time."""


def _look_away(entries: Sequence[Recorded]) -> None:
    """Take no note of events."""


def rebuilt(source: sqlite3.Connection, until: int) -> sqlite3.Connection:
    """Make a database in memory of the first `until` events of `source`.

    It has the tables that follow from them.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: these events cannot be read.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(copy)
    copy.execute("BEGIN")
    add_events(copy, events_until(source, until))
    _derive(copy, recorded_until(source, until))
    copy.execute("COMMIT")
    return copy


def _file_of(connection: sqlite3.Connection) -> str:
    """Return the path of a database, empty of one in memory."""
    databases = connection.execute("PRAGMA database_list").fetchall()
    return next(str(file) for _, name, file in databases if name == "main")


def _derived_beside(file: str, entries: Iterator[Recorded], see: See) -> sqlite3.Connection:
    """Make the tables that follow from the events of a file.

    They lie in memory, and the file is attached to them as `stored`. No event is copied: the log
    that is read beside the tables is the one in the file.
    """
    derived = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(derived)
    derived.execute("DROP TABLE event")  # a table in memory would be found before that in the file
    derived.execute("ATTACH ? AS stored", (file,))
    # Nothing is ever rolled back in it, and a journal costs a twentieth of opening a large study.
    derived.execute("PRAGMA main.journal_mode = OFF")
    derived.execute("BEGIN")
    _derive(derived, entries, see)
    derived.execute("COMMIT")
    return derived


def _derive(
    connection: sqlite3.Connection, entries: Iterator[Recorded], see: See = _look_away
) -> None:
    """Apply events to empty tables, and show them."""
    while several := list(islice(entries, _EVENTS_AT_ONCE)):
        schema.apply_all(connection, [(seq, event) for seq, event, _ in several])
        see(several)


def check_tables(
    connection: sqlite3.Connection, chain: Chain, folder: Path, path: Path, see: See = _look_away
) -> None:
    """Refuse a database whose tables do not follow from its events.

    The events are whole.

    Args:
        connection: to the database.
        chain: of its events.
        folder: of the study.
        path: of the database, for the error.
        see: called with the events, some at a time, when tables have been derived from them, and
            free to keep them. Not called where the database lies in memory.

    Raises:
        InputError: one line that names the first table and row.
    """
    file = _file_of(connection)
    if file:
        entries = recorded_until(connection, chain.head.seq)
        with closing(_derived_beside(file, entries, see)) as derived:
            agree = all(
                has_same_rows(derived, table, *_columns(derived, table))
                for table in derived_tables(derived)
            )
            lines = [] if agree else table_differences(connection, derived)
    else:
        with closing(rebuilt(connection, chain.head.seq)) as derived:
            lines = table_differences(connection, derived)
    if lines:
        raise InputError(
            f"is damaged ({lines[0]}): nothing was changed; "
            f"`autorl doctor {folder}` says what can be saved",
            file=str(path),
        )


def table_differences(stored: sqlite3.Connection, derived: sqlite3.Connection) -> list[str]:
    """Describe each stored table that does not follow from the events.

    It is one line each, with the first row that differs.
    """
    lines = []
    for table in derived_tables(derived):
        try:
            difference = _first_difference(stored, derived, table)
        except sqlite3.DatabaseError as error:
            difference = f"cannot be read ({one_line(error)})"
        if difference is not None:
            lines.append(f"table {table} {difference}")
    return lines


def _columns(connection: sqlite3.Connection, table: str) -> tuple[list[str], list[str]]:
    """List the columns of a table, and those of its primary key.

    The latter are in the order they have in the key.
    """
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    names = [name for _, name, *_ in columns]
    keys = sorted((place, number) for number, (*_, place) in enumerate(columns) if place > 0)
    return names, [names[number] for _, number in keys]


def _first_difference(
    stored: sqlite3.Connection, derived: sqlite3.Connection, table: str
) -> str | None:
    names, order = _columns(derived, table)
    rows_of_stored = ordered_rows(stored, table, names, order)
    rows_of_derived = ordered_rows(derived, table, names, order)
    # Many at once: they are equal almost always, and lists are compared without Python.
    have: list[tuple[Any, ...]] = []
    ought: list[tuple[Any, ...]] = []
    while have == ought:
        have = rows_of_stored.fetchmany(_ROWS_AT_ONCE)
        ought = rows_of_derived.fetchmany(_ROWS_AT_ONCE)
        if not have and not ought:
            return None
    for has, should in zip_longest(have, ought):
        if has == should:
            continue
        places = [names.index(name) for name in order]
        rows = [[row[place] for place in places] for row in (has, should) if row is not None]
        # By type first: a damaged key may be of any type, and Python does not compare them.
        first = min(rows, key=lambda row: [(type(value).__name__, value) for value in row])
        named = zip(order, first, strict=True)
        key = ", ".join(f"{name} {shown(value, 40)}" for name, value in named)
        return f"does not follow from the events, first at {key}"
    return None


def saved_checkpoints(connection: sqlite3.Connection, until: int) -> dict[SegmentId, Checkpoint]:
    """Return checkpoints that events say lie on disk, by segment.

    The first `until` events count. Paths are as they are stored.
    """
    saved: dict[SegmentId, Checkpoint] = {}
    kinds = (SegmentEnded, CheckpointRegained, CheckpointsCollected)
    for _, event, _ in recorded_until(connection, until, *kinds):
        if isinstance(event, CheckpointsCollected):
            for segment in event.segments:
                saved.pop(segment, None)
        elif (checkpoint := saved_checkpoint(event)) is not None:
            saved[checkpoint.segment] = checkpoint
    return saved


def trained_segments(connection: sqlite3.Connection, until: int) -> set[SegmentId]:
    """Return segments whose outcome is among the first `until` events."""
    return {
        event.segment
        for _, event, _ in recorded_until(connection, until, SegmentEnded)
        if isinstance(event, SegmentEnded)
    }
