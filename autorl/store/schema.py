"""The tables of `study.sqlite` and how each event changes them.

`event` is the truth: append-only, one row per durable fact. The other tables are a fold over it,
updated in the same transaction, and carry the names of the landscape schema so that a live study
can be queried like a data set.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from autorl.store import standing
from autorl.store.codec import KINDS, UnknownEventError, dumps, loads
from autorl.types import SegmentId

# 2: events carry hashes, and `standing.py` has tables. Of one version, `apply` makes the same
# tables of the same events
SCHEMA_VERSION = 2

# SQLite stores these texts as they are: where a line ends in `\` its text goes on.
TABLES = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, time REAL NOT NULL, hash TEXT
);
CREATE TABLE configs (
    config_id INTEGER PRIMARY KEY, config_hash TEXT NOT NULL UNIQUE, origin TEXT NOT NULL, \
config TEXT NOT NULL
);
CREATE TABLE proposals (
    proposal INTEGER PRIMARY KEY, config_id INTEGER NOT NULL, until INTEGER NOT NULL, \
resume_from INTEGER, member TEXT,
    origin TEXT NOT NULL, meta TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'pending', \
score TEXT, spread TEXT,
    n_seeds INTEGER, reached INTEGER, constraints TEXT, resumable INTEGER, \
message TEXT NOT NULL DEFAULT ''
);
CREATE TABLE runs (
    run_id INTEGER PRIMARY KEY, config_id INTEGER NOT NULL, seed INTEGER NOT NULL, \
seed_role TEXT NOT NULL,
    algorithm TEXT NOT NULL, environment TEXT, parent_run INTEGER, start_step INTEGER NOT NULL, \
member TEXT,
    status TEXT NOT NULL, environment_steps REAL NOT NULL, wall_seconds REAL NOT NULL
);
CREATE TABLE evals (
    run_id INTEGER NOT NULL, step INTEGER NOT NULL, metric TEXT NOT NULL, value REAL,
    PRIMARY KEY (run_id, step, metric)
) WITHOUT ROWID;
CREATE TABLE segments (
    segment TEXT PRIMARY KEY, proposal INTEGER NOT NULL, run_id INTEGER NOT NULL, \
seed INTEGER NOT NULL, parent TEXT,
    member TEXT, from_step INTEGER NOT NULL, to_step INTEGER NOT NULL, \
config_id INTEGER NOT NULL, status TEXT NOT NULL,
    applied TEXT NOT NULL, notes TEXT NOT NULL, message TEXT NOT NULL, checkpoint TEXT
);
CREATE TABLE scores (
    run_id INTEGER NOT NULL, metric TEXT NOT NULL, until INTEGER NOT NULL, last REAL, best REAL, \
best_step INTEGER,
    mean_last REAL, auc REAL, PRIMARY KEY (run_id, metric, until)
) WITHOUT ROWID;
CREATE TABLE tests (
    proposal INTEGER NOT NULL, label TEXT NOT NULL, objective INTEGER NOT NULL, \
seed INTEGER NOT NULL, value REAL,
    status TEXT NOT NULL, PRIMARY KEY (proposal, objective, seed)
) WITHOUT ROWID;
"""
TABLES += standing.TABLES

Body = Mapping[str, Any]


def create(connection: sqlite3.Connection) -> None:
    connection.executescript(
        "BEGIN IMMEDIATE;" + TABLES + f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Give a database of an earlier version what this one has besides.

    Its events stay as they are.

    Raises:
        ValueError: an event is damaged.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version >= SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("ALTER TABLE event ADD COLUMN hash TEXT")
        standing.fill(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def holds_events(connection: sqlite3.Connection) -> bool:
    """Say whether a database is a study's.

    One that was killed before its tables were made is empty.
    """
    return (
        connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'event'").fetchone()
        is not None
    )


def apply(connection: sqlite3.Connection, seq: int, kind: str, body: Body) -> None:
    """Bring the derived tables up to date with event `seq`.

    `seq` is its place in the log. Takes the body as it is stored, by whichever version: tables
    follow from the log and from nothing that was meant besides. Kinds that touch no table (a
    session's start) change nothing.

    Raises:
        UnknownEventError: this version has no such kind.
    """
    if kind not in KINDS:
        raise UnknownEventError(kind)
    change = _CHANGES.get(kind)
    if change is not None:
        change(connection, body)
    standing.apply(connection, seq, kind, body)


def _proposed(connection: sqlite3.Connection, body: Body) -> None:
    # A configuration has the number of the proposal that introduced it. A study of an earlier
    # version, which counted configurations from 1, goes on as it began: a NULL key is the next
    # free number.
    connection.execute(
        "INSERT OR IGNORE INTO configs (config_id, config_hash, origin, config) SELECT "
        "CASE WHEN (SELECT min(config_id) FROM configs) > 0 THEN NULL ELSE ? END, ?, ?, ?",
        (body["id"], body["config_hash"], body["origin"], dumps(body["config"])),
    )
    connection.execute(
        "INSERT INTO proposals (proposal, config_id, until, resume_from, member, origin, meta) "
        "VALUES "
        "(?, (SELECT config_id FROM configs WHERE config_hash = ?), ?, ?, ?, ?, ?)",
        (
            body["id"],
            body["config_hash"],
            body["until"],
            body["resume_from"],
            body["member"],
            body["origin"],
            dumps(body["meta"]),
        ),
    )


def _outcome(connection: sqlite3.Connection, body: Body) -> None:
    run = body["run"]
    (config_id,) = connection.execute(
        "SELECT config_id FROM proposals WHERE proposal = ?", (run["proposal"],)
    ).fetchone()
    longest = _longest_so_far(connection, body["segment"])
    if longest is None or body["reached"] > longest["reached"]:
        counted = {} if longest is None else longest["cost"]
        _into_run(connection, body, config_id, counted)
    connection.execute(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            body["segment"],
            run["proposal"],
            run["run_id"],
            run["seed"],
            run["parent"],
            run["member"],
            run["from_step"],
            body["reached"],
            config_id,
            body["status"],
            dumps(body["applied"]),
            "; ".join(body["notes"]),
            body["message"],
            body["checkpoint"],
        ),
    )
    keep = "REPLACE" if longest is None else "IGNORE"  # trained again, a run has the same values
    connection.executemany(
        f"INSERT OR {keep} INTO evals VALUES (?, ?, ?, ?)",
        [
            (run["run_id"], step, metric, value)
            for step, metrics in body["reports"]
            for metric, value in metrics.items()
        ],
    )
    connection.executemany(
        f"INSERT OR {keep} INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(run["run_id"], *row) for row in body.get("reductions", ())],
    )


def _longest_so_far(connection: sqlite3.Connection, segment: str) -> dict[str, Any] | None:
    """Return the outcome of the longest segment with the same beginning.

    It trained the same part of a run, to another end.
    """
    named = SegmentId.parse(segment)
    uncut = SegmentId(named.proposal, named.seed)
    names = connection.execute(
        "SELECT segment FROM segments WHERE segment = ? OR (segment > ? AND segment < ?) ORDER BY "
        "to_step DESC LIMIT 1",
        (uncut, f"{uncut}@", f"{uncut}A"),
    ).fetchone()
    if names is None:
        return None
    (text,) = connection.execute(
        "SELECT body FROM event JOIN places USING (seq) WHERE subject = ?", (names[0],)
    ).fetchone()
    return loads(text)


def _into_run(
    connection: sqlite3.Connection, body: Body, config_id: int, counted: Mapping[str, float]
) -> None:
    """Add a segment to its run.

    `counted` is the cost of a shorter one in its place, which it supersedes.
    """
    run = body["run"]
    cost = body["cost"]
    connection.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO "
        "UPDATE SET "
        "status = excluded.status, environment_steps = environment_steps + "
        "excluded.environment_steps, "
        "wall_seconds = wall_seconds + excluded.wall_seconds",
        (
            run["run_id"],
            config_id,
            run["seed"],
            run["role"],
            run["algorithm"],
            run["environment"],
            run["parent_run"],
            run["start_step"],
            run["member"],
            body["status"],
            cost.get("environment_steps", 0.0) - counted.get("environment_steps", 0.0),
            cost.get("wall_seconds", 0.0) - counted.get("wall_seconds", 0.0),
        ),
    )


def _scored(connection: sqlite3.Connection, body: Body) -> None:
    connection.execute(
        "UPDATE proposals SET status = 'scored', score = ?, spread = ?, n_seeds = ?, reached = ?, "
        "constraints = ?, "
        "resumable = ? WHERE proposal = ?",
        (
            dumps(body["score"]),
            dumps(body["spread"]),
            body["n_seeds"],
            body["reached"],
            dumps(body["constraints"]),
            int(body["resumable"]),
            body["proposal"],
        ),
    )


def _failed(connection: sqlite3.Connection, body: Body) -> None:
    connection.execute(
        "UPDATE proposals SET status = ?, score = ?, n_seeds = 0, resumable = 0, message = ? WHERE "
        "proposal = ?",
        (body["kind"], dumps(body["score"]), body["message"], body["proposal"]),
    )


def _frozen(connection: sqlite3.Connection, body: Body) -> None:
    """Label the candidates.

    Those of an extended study are new ones: those tested before keep their rows under another
    label.
    """
    connection.execute("UPDATE tests SET label = 'earlier'")
    connection.executemany(
        "UPDATE tests SET label = ? WHERE proposal = ?",
        [(label, proposal) for label, proposal, *_ in body["candidates"]],
    )


def _tested(connection: sqlite3.Connection, body: Body) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO tests VALUES (?, ?, ?, ?, ?, ?)",
        [(body["proposal"], body["label"], *row) for row in body["rows"]],
    )


def _collected(connection: sqlite3.Connection, body: Body) -> None:
    connection.executemany(
        "UPDATE segments SET checkpoint = NULL WHERE segment = ?",
        [(segment,) for segment in body["segments"]],
    )


def _regained(connection: sqlite3.Connection, body: Body) -> None:
    connection.execute(
        "UPDATE segments SET checkpoint = ? WHERE segment = ?",
        (body["checkpoint"], body["segment"]),
    )


_CHANGES: dict[str, Callable[[sqlite3.Connection, Body], None]] = {
    "proposed": _proposed,
    "outcome": _outcome,
    "scored": _scored,
    "failed": _failed,
    "frozen": _frozen,
    "tested": _tested,
    "collected": _collected,
    "regained": _regained,
}
