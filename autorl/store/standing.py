"""The tables of where proposals stand in the search.

`status` and `best` read them instead of replaying every event. A database that an earlier version
wrote has none: they are filled from its events when it is opened for writing, and in memory when it
is only read.

    standing    provisional, baseline, anew, informed: of the proposal (informed is NULL where it
        was not recorded) infeasible, reached, n_seeds, value, mean, spread: what it is ranked by,
        larger is better; NULL until scored. `objectives`: the values of all objectives, a JSON
        list. A later failure leaves them. seeds: tuning seeds of the latest score or failure;
        charged: those its chain was charged for; beyond: steps trained beyond the budget
    places    the place in the log of the proposal `12` and of the outcome of the segment `12.3`
    noted       what trainers noted about segments, each once
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TypeAlias

from autorl.store.codec import dumps, loads
from autorl.store.events import (
    Body,
    CheckpointRegained,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SegmentEnded,
)

# SQLite stores these texts as they are: where a line ends in `\` its text goes on.
TABLES = """
CREATE TABLE standing (
    proposal INTEGER PRIMARY KEY, provisional INTEGER NOT NULL, baseline INTEGER NOT NULL, \
anew INTEGER NOT NULL,
    informed INTEGER, infeasible REAL, reached INTEGER, n_seeds INTEGER, value REAL, mean REAL, \
spread REAL,
    objectives TEXT, seeds TEXT, charged TEXT, beyond INTEGER
);
CREATE TABLE places (subject TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE noted (note TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX event_kind ON event (kind);
"""

_KINDS = (
    ProposalMade.kind,
    SegmentEnded.kind,
    CheckpointRegained.kind,
    ProposalScored.kind,
    ProposalFailed.kind,
)
"""The kinds of event that `change` knows."""

Placed: TypeAlias = tuple[int, Body]
"""An event's place in the log, and its body."""


def add(connection: sqlite3.Connection) -> None:
    """Make the tables of where proposals stand, and fill them."""
    # One by one: `executescript` would commit the transaction that the caller has begun.
    for statement in TABLES.split(";")[:-1]:
        connection.execute(statement)
    marks = ", ".join("?" for _ in _KINDS)
    rows = connection.execute(
        f"SELECT seq, kind, body FROM event WHERE kind IN ({marks}) ORDER BY seq", _KINDS
    )
    for seq, kind, text in rows.fetchall():
        change(connection, kind, [(seq, loads(text))])


def change(connection: sqlite3.Connection, kind: str, events: Sequence[Placed]) -> None:
    """Change the tables of where proposals stand by events of one kind."""
    bodies = [body for _, body in events]
    match kind:
        case ProposalMade.kind:
            _stand(connection, bodies)
            connection.executemany(
                "INSERT INTO places VALUES (?, ?)", [(str(body["id"]), seq) for seq, body in events]
            )
        case SegmentEnded.kind:
            connection.executemany(
                "INSERT OR REPLACE INTO places VALUES (?, ?)",
                [(body["segment"], seq) for seq, body in events],
            )
            _note(connection, bodies)
        case CheckpointRegained.kind:
            # The outcome of the segment stays the first one; what was noted of it is new.
            _note(connection, bodies)
        case ProposalScored.kind:
            _rank(connection, bodies)
            _charge(connection, bodies)
        case ProposalFailed.kind:
            _charge(connection, bodies)


def _stand(connection: sqlite3.Connection, bodies: Sequence[Body]) -> None:
    rows = []
    for body in bodies:
        flags = [int(body.get(name, False)) for name in ("provisional", "baseline", "anew")]
        informed = None if "informed" not in body else int(body["informed"])
        rows.append((body["id"], *flags, informed))
    connection.executemany(
        "INSERT INTO standing (proposal, provisional, baseline, anew, informed) "
        "VALUES (?, ?, ?, ?, ?)",
        rows,
    )


def _note(connection: sqlite3.Connection, bodies: Sequence[Body]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO noted VALUES (?)",
        [(note,) for body in bodies for note in body["notes"]],
    )


def _rank(connection: sqlite3.Connection, bodies: Sequence[Body]) -> None:
    rows = []
    for body in bodies:
        values = body["values"]
        mean = body["mean"]
        spread = body["spread"]
        # As `Ranking` has them, whose order these columns give.
        first_mean = mean[0] if mean else values[0]
        first_spread = spread[0] if spread else 0.0
        rows.append(
            (
                sum(max(0, violation) for violation in body["constraints"]),
                body["reached"],
                body["n_seeds"],
                values[0],
                first_mean,
                first_spread,
                dumps(values),
                body["proposal"],
            )
        )
    connection.executemany(
        "UPDATE standing SET infeasible = ?, reached = ?, n_seeds = ?, value = ?, mean = ?, "
        "spread = ?, objectives = ? WHERE proposal = ?",
        rows,
    )


def _charge(connection: sqlite3.Connection, bodies: Sequence[Body]) -> None:
    """Note the seeds.

    They are charged unless all of it was beyond the budget.
    """
    for body in bodies:
        proposal = body["proposal"]
        seeds = dumps(body["seeds"])
        if "beyond" in body:
            connection.execute(
                "UPDATE standing SET seeds = ?, beyond = coalesce(beyond, 0) + ? "
                "WHERE proposal = ?",
                (seeds, body["beyond"], proposal),
            )
            continue
        charged = connection.execute(
            "UPDATE standing SET seeds = ?, charged = ? WHERE proposal = ? AND charged IS NULL",
            (seeds, seeds, proposal),
        )
        if charged.rowcount == 0:  # more seeds came in: each is charged once
            (before,) = connection.execute(
                "SELECT charged FROM standing WHERE proposal = ?", (proposal,)
            ).fetchone()
            charged_now = dumps(list(dict.fromkeys([*json.loads(before), *body["seeds"]])))
            connection.execute(
                "UPDATE standing SET seeds = ?, charged = ? WHERE proposal = ?",
                (seeds, charged_now, proposal),
            )
