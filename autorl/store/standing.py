"""Derives where each proposal stands in the search.

These are facts beyond the table `proposals`.

`status` and `best` read these tables instead of replaying every event. They are a fold over the
events like the others (`schema.py`) and change in the same transaction. A database that an earlier
version wrote has none: they are filled from its events when it is opened for writing, and in memory
when it is only read.

    standing    provisional, baseline, anew, informed: of the proposal (informed is NULL where it
        was not recorded) infeasible, reached, n_seeds, value, mean, spread: what it is ranked by,
        larger is better; NULL until scored. `objectives`: the values of all objectives, a JSON
        list. A later failure leaves them. seeds: tuning seeds of the latest score or failure;
        charged: those its chain was charged for; beyond: steps trained beyond the budget
    places    the place in the log of the proposal `12` and of the outcome of the segment `12.3`
    noted       what trainers noted about segments, each once
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from autorl.store.codec import dumps, loads

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

Body = Mapping[str, Any]


def apply(connection: sqlite3.Connection, seq: int, kind: str, body: Body) -> None:
    """Bring the tables up to date with the event at place `seq`."""
    change = _CHANGES.get(kind)
    if change is not None:
        change(connection, seq, body)


def present(connection: sqlite3.Connection) -> bool:
    """Tell whether a database has these tables."""
    return (
        connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'standing'").fetchone()
        is not None
    )


def fill(connection: sqlite3.Connection) -> None:
    """Make the tables and fill them from the events.

    It happens inside the caller's transaction.

    Raises:
        ValueError: an event is damaged.
    """
    for statement in TABLES.split(";")[:-1]:
        connection.execute(statement)
    kinds = ", ".join(f"'{kind}'" for kind in _CHANGES)
    rows = connection.execute(
        f"SELECT seq, kind, body FROM event WHERE kind IN ({kinds}) ORDER BY seq"
    )
    for seq, kind, text in rows.fetchall():
        apply(connection, seq, kind, loads(text))


def _proposed(connection: sqlite3.Connection, seq: int, body: Body) -> None:
    flags = [int(body.get(name, False)) for name in ("provisional", "baseline", "anew")]
    informed = None if "informed" not in body else int(body["informed"])
    connection.execute(
        "INSERT INTO standing (proposal, provisional, baseline, anew, informed) VALUES (?, ?, ?, "
        "?, ?)",
        (body["id"], *flags, informed),
    )
    connection.execute("INSERT INTO places VALUES (?, ?)", (str(body["id"]), seq))


def _outcome(connection: sqlite3.Connection, seq: int, body: Body) -> None:
    connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (body["segment"], seq))
    connection.executemany(
        "INSERT OR IGNORE INTO noted VALUES (?)", [(note,) for note in body["notes"]]
    )


def _regained(connection: sqlite3.Connection, _: int, body: Body) -> None:
    """Take note of a segment trained again for its checkpoint.

    Its outcome is the first one, what was noted of it is new.
    """
    connection.executemany(
        "INSERT OR IGNORE INTO noted VALUES (?)", [(note,) for note in body["notes"]]
    )


def _scored(connection: sqlite3.Connection, seq: int, body: Body) -> None:
    values = body["values"]
    mean = body["mean"]
    spread = body["spread"]
    first_mean = mean[0] if mean else values[0]
    first_spread = spread[0] if spread else 0.0
    connection.execute(
        "UPDATE standing SET infeasible = ?, reached = ?, n_seeds = ?, value = ?, mean = ?, spread "
        "= ?, objectives = ? "
        "WHERE proposal = ?",
        (
            sum(max(0, violation) for violation in body["constraints"]),
            body["reached"],
            body["n_seeds"],
            values[0],
            first_mean,
            first_spread,
            dumps(values),
            body["proposal"],
        ),
    )
    _settled(connection, seq, body)


def _settled(connection: sqlite3.Connection, _: int, body: Body) -> None:
    """Note the seeds.

    They are charged unless all of it was beyond the budget.
    """
    proposal = body["proposal"]
    seeds = list(body["seeds"])
    connection.execute("UPDATE standing SET seeds = ? WHERE proposal = ?", (dumps(seeds), proposal))
    if "beyond" in body:
        connection.execute(
            "UPDATE standing SET beyond = coalesce(beyond, 0) + ? WHERE proposal = ?",
            (body["beyond"], proposal),
        )
        return
    (before,) = connection.execute(
        "SELECT charged FROM standing WHERE proposal = ?", (proposal,)
    ).fetchone()
    if before is not None:
        seeds = list(dict.fromkeys([*loads(f'{{"seeds":{before}}}')["seeds"], *seeds]))
    connection.execute(
        "UPDATE standing SET charged = ? WHERE proposal = ?", (dumps(seeds), proposal)
    )


_CHANGES: dict[str, Callable[[sqlite3.Connection, int, Body], None]] = {
    "proposed": _proposed,
    "outcome": _outcome,
    "regained": _regained,
    "scored": _scored,
    "failed": _settled,
}
