"""The tables of `study.sqlite` and how each event changes them.

`event` is the truth: append-only, one row per durable fact. The other tables are a fold over it,
updated in the same transaction, and carry the names of the landscape schema so that a live study
can be queried like a data set.

Where each proposal stands in the search has tables of its own (`standing.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autorl.store import standing
from autorl.store.codec import KINDS, UnknownEventError, dumps, loads
from autorl.store.events import (
    Body,
    CandidatesFrozen,
    CandidateTested,
    CheckpointRegained,
    CheckpointsCollected,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SegmentEnded,
)
from autorl.store.standing import Placed
from autorl.types import SegmentId

# 2: events carry hashes, and there are tables of where proposals stand. Of one version, `apply`
# makes the same tables of the same events: a study is refused whose tables are others.
SCHEMA_VERSION = 2

# SQLite stores these texts as they are: where a line ends in `\` its text goes on.
_FIRST_TABLES = """
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

_FREQUENT_KINDS = (
    ProposalMade.kind,
    SegmentEnded.kind,
    ProposalScored.kind,
    CheckpointsCollected.kind,
)
"""The kinds of event that `apply_all` gathers, in the order it applies them.

A segment's row comes after its proposal's and before its checkpoint is taken out of it.
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a database that has none."""
    # All in one transaction: a kill leaves an empty database, or a whole one without events.
    connection.executescript(
        f"BEGIN IMMEDIATE; {_FIRST_TABLES} {standing.TABLES} "
        f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
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
        standing.add(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def apply(connection: sqlite3.Connection, seq: int, kind: str, body: Body) -> None:
    """Bring the derived tables up to date with event `seq`.

    `seq` is its place in the log. Takes the body as it is stored, by whichever version: tables
    follow from the log and from nothing that was meant besides. Kinds that touch no table (a
    session's start) change nothing.

    Raises:
        UnknownEventError: this version has no such kind.
    """
    apply_all(connection, [(seq, kind, body)])


def apply_all(connection: sqlite3.Connection, events: Iterable[tuple[int, str, Body]]) -> None:
    """Bring the derived tables up to date with events in a row.

    The tables are those that `apply` makes of them one by one. Events of the frequent kinds are
    gathered, and a statement is run for many rows at once: a proposal, a segment and a score are a
    row or two of several tables each, and what one of them changes no other of its neighbours
    reads. Before an event of any other kind, what was gathered is applied.

    Args:
        connection: to a database whose log holds the events.
        events: their places in the log, kinds and bodies, in order.

    Raises:
        UnknownEventError: this version has no such kind.
    """
    gathered: dict[str, list[Placed]] = {kind: [] for kind in _FREQUENT_KINDS}
    trained: set[str] = set()
    for seq, kind, body in events:
        if kind not in KINDS:
            raise UnknownEventError(kind)
        if kind == SegmentEnded.kind:
            # The later one of two that begin alike, `12.3` and `12.3@500`, looks up the other.
            uncut = body["segment"].partition("@")[0]
            if uncut in trained:
                _apply_gathered(connection, gathered)
                trained.clear()
            trained.add(uncut)
        if kind in gathered:
            gathered[kind].append((seq, body))
            continue
        _apply_gathered(connection, gathered)
        _change_tables(connection, kind, [(seq, body)])
        standing.change(connection, kind, [(seq, body)])
    _apply_gathered(connection, gathered)


def _apply_gathered(connection: sqlite3.Connection, gathered: Mapping[str, list[Placed]]) -> None:
    """Apply what was gathered of each kind, and empty it."""
    for kind, events in gathered.items():
        if events:
            _change_tables(connection, kind, events)
            standing.change(connection, kind, events)
            events.clear()


# -- the tables of a data set ----------------------------------------------------------------------


def _change_tables(connection: sqlite3.Connection, kind: str, events: Sequence[Placed]) -> None:
    """Change the tables of a data set by events of one kind."""
    bodies = [body for _, body in events]
    match kind:
        case ProposalMade.kind:
            _add_proposals(connection, bodies)
        case SegmentEnded.kind:
            _add_segments(connection, bodies)
        case ProposalScored.kind:
            _score_proposals(connection, bodies)
        case ProposalFailed.kind:
            connection.executemany(
                "UPDATE proposals SET status = ?, score = ?, n_seeds = 0, resumable = 0, "
                "message = ? WHERE proposal = ?",
                [
                    (body["kind"], dumps(body["score"]), body["message"], body["proposal"])
                    for body in bodies
                ],
            )
        case CandidatesFrozen.kind:
            for body in bodies:
                # Candidates of an extended study are new ones: those tested before keep their rows.
                connection.execute("UPDATE tests SET label = 'earlier'")
                connection.executemany(
                    "UPDATE tests SET label = ? WHERE proposal = ?",
                    [(label, proposal) for label, proposal, *_ in body["candidates"]],
                )
        case CandidateTested.kind:
            connection.executemany(
                "INSERT OR REPLACE INTO tests VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (body["proposal"], body["label"], *row)
                    for body in bodies
                    for row in body["rows"]
                ],
            )
        case CheckpointsCollected.kind:
            connection.executemany(
                "UPDATE segments SET checkpoint = NULL WHERE segment = ?",
                [(segment,) for body in bodies for segment in body["segments"]],
            )
        case CheckpointRegained.kind:
            connection.executemany(
                "UPDATE segments SET checkpoint = ? WHERE segment = ?",
                [(body["checkpoint"], body["segment"]) for body in bodies],
            )


def _add_proposals(connection: sqlite3.Connection, bodies: Sequence[Body]) -> None:
    # A configuration has the number of the proposal that introduced it. A study of an earlier
    # version, which counted configurations from 1, goes on as it began: a NULL key is the next
    # free number.
    connection.executemany(
        "INSERT OR IGNORE INTO configs (config_id, config_hash, origin, config) SELECT "
        "CASE WHEN (SELECT min(config_id) FROM configs) > 0 THEN NULL ELSE ? END, ?, ?, ?",
        [
            (body["id"], body["config_hash"], body["origin"], dumps(body["config"]))
            for body in bodies
        ],
    )
    connection.executemany(
        "INSERT INTO proposals (proposal, config_id, until, resume_from, member, origin, meta) "
        "VALUES (?, (SELECT config_id FROM configs WHERE config_hash = ?), ?, ?, ?, ?, ?)",
        [
            (
                body["id"],
                body["config_hash"],
                body["until"],
                body["resume_from"],
                body["member"],
                body["origin"],
                dumps(body["meta"]),
            )
            for body in bodies
        ],
    )


def _add_segments(connection: sqlite3.Connection, bodies: Sequence[Body]) -> None:
    """Add segments that begin in different places."""
    begun = _begun_runs(connection, [body["run"]["run_id"] for body in bodies])
    new: list[Body] = []
    for body in bodies:
        # A test run may have ended at the step its score is read at, and now be trained whole, or
        # the other way round: what both trained counts once.
        longest = None
        if body["run"]["run_id"] in begun:
            longest = _longest_so_far(connection, body["segment"])
        if longest is None:
            new.append(body)
            continue
        _into_runs(connection, new, {})
        _insert_segments(connection, new, "REPLACE")
        new.clear()
        if body["reached"] > longest["reached"]:
            _into_runs(connection, [body], longest["cost"])
        # Trained again, a run has the same values.
        _insert_segments(connection, [body], "IGNORE")
    _into_runs(connection, new, {})
    _insert_segments(connection, new, "REPLACE")


def _begun_runs(connection: sqlite3.Connection, runs: Sequence[int]) -> set[int]:
    """Say which of some runs have a segment already."""
    marks = ", ".join("?" for _ in runs)
    rows = connection.execute(f"SELECT run_id FROM runs WHERE run_id IN ({marks})", runs)
    return {run_id for (run_id,) in rows}


def _insert_segments(connection: sqlite3.Connection, bodies: Sequence[Body], keep: str) -> None:
    """Add rows of segments, of their evaluations and reductions.

    `keep`: what happens where a run has an evaluation at a step already, `REPLACE` or `IGNORE`.
    """
    if not bodies:
        return
    connection.executemany(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
        "(SELECT config_id FROM proposals WHERE proposal = ?), ?, ?, ?, ?, ?)",
        [
            (
                body["segment"],
                run["proposal"],
                run["run_id"],
                run["seed"],
                run["parent"],
                run["member"],
                run["from_step"],
                body["reached"],
                run["proposal"],
                body["status"],
                dumps(body["applied"]),
                "; ".join(body["notes"]),
                body["message"],
                body["checkpoint"],
            )
            for body in bodies
            for run in (body["run"],)
        ],
    )
    connection.executemany(
        f"INSERT OR {keep} INTO evals VALUES (?, ?, ?, ?)",
        [
            (body["run"]["run_id"], step, metric, value)
            for body in bodies
            for step, metrics in body["reports"]
            for metric, value in metrics.items()
        ],
    )
    connection.executemany(
        f"INSERT OR {keep} INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(body["run"]["run_id"], *row) for body in bodies for row in body.get("reductions", ())],
    )


def _longest_so_far(connection: sqlite3.Connection, segment: str) -> dict[str, Any] | None:
    """Return the outcome of the longest segment with the same beginning.

    It trained the same part of a run, to another end.
    """
    named = SegmentId.parse(segment)
    uncut = SegmentId(named.proposal, named.seed)
    # `A` comes after `@`: between the two bounds lie the names `12.3@500` and no other.
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


def _into_runs(
    connection: sqlite3.Connection, bodies: Sequence[Body], counted: Mapping[str, float]
) -> None:
    """Add segments to their runs.

    `counted` is the cost of a shorter one in the place of each, which it supersedes.
    """
    if not bodies:
        return
    connection.executemany(
        "INSERT INTO runs VALUES (?, (SELECT config_id FROM proposals WHERE proposal = ?), "
        "?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET "
        "status = excluded.status, wall_seconds = wall_seconds + excluded.wall_seconds, "
        "environment_steps = environment_steps + excluded.environment_steps",
        [
            (
                run["run_id"],
                run["proposal"],
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
            )
            for body in bodies
            for run, cost in ((body["run"], body["cost"]),)
        ],
    )


def _score_proposals(connection: sqlite3.Connection, bodies: Sequence[Body]) -> None:
    connection.executemany(
        "UPDATE proposals SET status = 'scored', score = ?, spread = ?, n_seeds = ?, reached = ?, "
        "constraints = ?, resumable = ? WHERE proposal = ?",
        [
            (
                dumps(body["score"]),
                dumps(body["spread"]),
                body["n_seeds"],
                body["reached"],
                dumps(body["constraints"]),
                int(body["resumable"]),
                body["proposal"],
            )
            for body in bodies
        ],
    )


# -- derived anew ----------------------------------------------------------------------------------


def counts_from_1(connection: sqlite3.Connection) -> bool:
    """Tell whether configurations are numbered as an early version did."""
    try:
        row = connection.execute("SELECT min(config_id) FROM configs").fetchone()
    except sqlite3.DatabaseError:  # the table is damaged: any numbering will do
        return False
    return bool(row == (1,))


def count_from_1(connection: sqlite3.Connection) -> None:
    """Number the first configuration as an early version did.

    Those that follow go on from it (`_add_proposal`).
    """
    connection.execute("UPDATE configs SET config_id = 1")
    connection.execute("UPDATE proposals SET config_id = 1")


def derived_tables(connection: sqlite3.Connection) -> list[str]:
    """List the tables that follow from the events."""
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'event' ORDER BY name"
    )
    return [name for (name,) in rows.fetchall()]


def ordered_rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], order: Sequence[str]
) -> sqlite3.Cursor:
    """Read columns of a table, ordered by some of them."""
    return connection.execute(
        f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(order)}"
    )


def has_same_rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], keys: Sequence[str]
) -> bool:
    """Say whether a table is that of the database attached as `stored`.

    Rows are compared by SQLite, for a fifth of what it costs to compare them in Python. False also
    where that tells nothing: the table is defined in another way, or cannot be read.

    Args:
        connection: to both databases.
        table: its name in both.
        columns: of the table, all of them.
        keys: those of its primary key.
    """
    equal = [f"ought.{name} = has.{name}" for name in keys]
    equal += [f"ought.{name} IS has.{name}" for name in columns if name not in keys]
    definitions = [
        f"SELECT sql FROM {database}.sqlite_master WHERE type = 'table' AND name = '{table}'"
        for database in ("main", "stored")
    ]
    counts = [
        f"SELECT count(*) FROM main.{table} AS ought CROSS JOIN stored.{table} AS has "
        f"WHERE {' AND '.join(equal)}",
        f"SELECT count(*) FROM main.{table}",
        f"SELECT count(*) FROM stored.{table}",
    ]
    try:
        return all(
            len({connection.execute(query).fetchone() for query in queries}) == 1
            for queries in (definitions, counts)
        )
    except sqlite3.DatabaseError:
        return False
