"""Derives the tables of a study from its events anew.

And the checkpoints that must lie in its folder.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from autorl.plain_text import shown
from autorl.store import schema
from autorl.store.chain import Chain, one_line
from autorl.store.events import CheckpointRegained, CheckpointsCollected, ProposalMade, SegmentEnded
from autorl.store.log import add_events, bodies_until, events_until
from autorl.types import InputError

_ROWS_AT_ONCE = 1000
_EVENTS_AT_ONCE = 500  # fewer than the parameters that a statement may have in old SQLites


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
    copy.execute("BEGIN")
    add_events(copy, events_until(source, until))
    events = ((seq, kind, json.loads(body)) for seq, kind, body, *_ in events_until(source, until))
    if schema.counts_from_1(source):
        for event in events:
            schema.apply_all(copy, [event])
            if event[1] == ProposalMade.kind:  # the first; later ones go on from it
                schema.count_from_1(copy)
                break
    while several := list(islice(events, _EVENTS_AT_ONCE)):
        schema.apply_all(copy, several)
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


def table_differences(stored: sqlite3.Connection, derived: sqlite3.Connection) -> list[str]:
    """Describe each stored table that does not follow from the events.

    It is one line each, with the first row that differs.
    """
    lines = []
    for table in schema.derived_tables(derived):
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
    names = [name for _, name, *_ in columns]
    keys = sorted((place, number) for number, (*_, place) in enumerate(columns) if place > 0)
    order = [names[number] for _, number in keys]
    rows_of_stored = schema.ordered_rows(stored, table, names, order)
    rows_of_derived = schema.ordered_rows(derived, table, names, order)
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
        rows = [[row[number] for _, number in keys] for row in (has, should) if row is not None]
        # By type first: a damaged key may be of any type, and Python does not compare them.
        first = min(rows, key=lambda row: [(type(value).__name__, value) for value in row])
        named = zip(order, first, strict=True)
        key = ", ".join(f"{name} {shown(value, 40)}" for name, value in named)
        return f"does not follow from the events, first at {key}"
    return None


def saved_checkpoints(connection: sqlite3.Connection, until: int) -> dict[str, SavedCheckpoint]:
    """Return checkpoints that events say lie on disk, by segment.

    The first `until` events count.
    """
    saved: dict[str, SavedCheckpoint] = {}
    kinds = (SegmentEnded.kind, CheckpointRegained.kind, CheckpointsCollected.kind)
    for kind, body in bodies_until(connection, kinds, until):
        if kind == CheckpointsCollected.kind:
            for segment in body["segments"]:
                saved.pop(segment, None)
        elif body["checkpoint"] is not None:
            saved[body["segment"]] = SavedCheckpoint(
                body["checkpoint"], body.get("checkpoint_files", {})
            )
    return saved


def trained_segments(connection: sqlite3.Connection, until: int) -> set[str]:
    """Return segments whose outcome is among the first `until` events."""
    return {body["segment"] for _, body in bodies_until(connection, (SegmentEnded.kind,), until)}
