"""The tables of `study.sqlite` and how each event changes them.

`event` is the truth: append-only, one row per durable fact. The other tables are a fold over it,
updated in the same transaction, and carry the names of the landscape schema so that a live study
can be queried like a data set.

Where proposals stand in the search is kept too: `status` and `best` read it instead of replaying
every event. A database that an earlier version wrote has none of these tables: they are filled from
its events when it is opened for writing, and in memory when it is only read.

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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

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

_STANDING_TABLES = """
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

_FREQUENT_KINDS = (
    ProposalMade.kind,
    SegmentEnded.kind,
    ProposalScored.kind,
    CheckpointsCollected.kind,
)
"""The kinds of event that `apply_all` gathers, in the order it applies them.

A segment's row comes after its proposal's and before its checkpoint is taken out of it.
"""

_STANDING_KINDS = (
    ProposalMade.kind,
    SegmentEnded.kind,
    CheckpointRegained.kind,
    ProposalScored.kind,
    ProposalFailed.kind,
)
"""The kinds of event that `_change_standing` knows."""

Placed: TypeAlias = tuple[int, Body]
"""An event's place in the log, and its body."""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a database that has none."""
    # All in one transaction: a kill leaves an empty database, or a whole one without events.
    connection.executescript(
        f"BEGIN IMMEDIATE; {_FIRST_TABLES} {_STANDING_TABLES} "
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
        _add_standing(connection)
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
        _change_standing(connection, kind, [(seq, body)])
    _apply_gathered(connection, gathered)


def _apply_gathered(connection: sqlite3.Connection, gathered: Mapping[str, list[Placed]]) -> None:
    """Apply what was gathered of each kind, and empty it."""
    for kind, events in gathered.items():
        if events:
            _change_tables(connection, kind, events)
            _change_standing(connection, kind, events)
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


# -- where proposals stand -----------------------------------------------------------------------


def _add_standing(connection: sqlite3.Connection) -> None:
    """Make the tables of where proposals stand, and fill them."""
    # One by one: `executescript` would commit the transaction that the caller has begun.
    for statement in _STANDING_TABLES.split(";")[:-1]:
        connection.execute(statement)
    marks = ", ".join("?" for _ in _STANDING_KINDS)
    rows = connection.execute(
        f"SELECT seq, kind, body FROM event WHERE kind IN ({marks}) ORDER BY seq", _STANDING_KINDS
    )
    for seq, kind, text in rows.fetchall():
        _change_standing(connection, kind, [(seq, loads(text))])


def _change_standing(connection: sqlite3.Connection, kind: str, events: Sequence[Placed]) -> None:
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
