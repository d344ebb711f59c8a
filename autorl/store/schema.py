"""The tables of `study.sqlite` and how each event changes them.

`event` is the truth: append-only, one row per durable fact. The other tables are a fold over it,
updated in the same transaction. Columns of one name mean the same in the tables that a data set has
too, `runs` and `segments`. `configurations` (hyperparameters as JSON), `reports` (a row for each
metric) and `reductions` have other columns than any of it, and so other names.

The standing of proposals in the search is kept too: `status` and `best` read it instead of
replaying every event.

    standing    provisional, baseline, anew, informed: of the proposal; baseline is 2 of one that
        the study file names, which is not ranked
        infeasible, reached, n_seeds, value, mean, spread: what it is ranked by, larger is better;
        NULL until scored. `objectives`: the values of all objectives, a JSON list. A later failure
        leaves them. seeds: tuning seeds of the latest score or failure; charged: those its chain
        was charged for; beyond: steps trained beyond the budget
    places    the place in the log of the proposal `12` and of the outcome of the segment `12.3`
    noted       what trainers noted about segments, each once
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

from autorl.core.plain_text import shown
from autorl.core.types import Change, InputError, Proposal, SegmentId
from autorl.store.codec import dumps
from autorl.store.events import (
    CandidatesFrozen,
    CandidateTested,
    CheckpointRegained,
    CheckpointsCollected,
    ProposalFailed,
    ProposalMade,
    ProposalScored,
    SegmentEnded,
    StudyEvent,
)

_LONGEST_NAME = 60  # characters that a message quotes of a name

# One version of `apply` makes the same tables of the same events: a study is refused if its tables
# differ.
SCHEMA_VERSION = 4

# SQLite stores these texts as they are: where a line ends in `\` its text goes on.
_TABLES = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, time REAL NOT NULL, hash TEXT
);
CREATE TABLE configurations (
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
CREATE TABLE reports (
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
CREATE TABLE reductions (
    run_id INTEGER NOT NULL, metric TEXT NOT NULL, until INTEGER NOT NULL, last REAL, best REAL, \
best_step INTEGER,
    mean_last REAL, auc REAL, PRIMARY KEY (run_id, metric, until)
) WITHOUT ROWID;
CREATE TABLE tests (
    proposal INTEGER NOT NULL, label TEXT NOT NULL, objective INTEGER NOT NULL, \
seed INTEGER NOT NULL, value REAL,
    status TEXT NOT NULL, PRIMARY KEY (proposal, objective, seed)
) WITHOUT ROWID;
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

# Columns of the tables that objects have under the same or another name.
_PROPOSAL = attrgetter("until", "resume_from", "member")
_RUN = attrgetter(
    *("run_id", "segment.proposal", "segment.seed", "role", "algorithm", "environment"),
    *("parent_run", "start_step", "member"),
)
_SEGMENT = attrgetter("run_id", "segment.seed", "parent", "member", "from_step")
_TEST = attrgetter("objective", "seed", "value", "status")


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a database that has none."""
    # All in one transaction: a kill leaves an empty database, or a whole one without events.
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database of another format or schema.

    Raises:
        InputError: one line that names the number of the format, or what differs.
    """
    if (problem := difference(connection)) is not None:
        raise InputError(
            f"{problem}: nothing was changed; `autorl doctor {path.parent}` says what can be saved",
            file=str(path),
        )


def difference(connection: sqlite3.Connection) -> str | None:
    """Say in one phrase what of a schema is not ours.

    Anything else in a schema runs when a table is read or written: a trigger, or a view in place of
    a table.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        return f"has format {version} of another autorl, not {SCHEMA_VERSION}"
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        create(fresh)
        differing = _entries(fresh) ^ _entries(connection)
    if not differing:
        return None
    kind, name, *_ = min(differing, key=str)
    return f"is damaged ({kind} {shown(name, _LONGEST_NAME)} is missing, changed or added)"


def _entries(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    """List the schema of a database, with its texts."""
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


def apply(connection: sqlite3.Connection, seq: int, event: StudyEvent) -> None:
    """Bring the derived tables up to date with an event.

    Args:
        connection: to a database whose log holds the event.
        seq: its place in the log.
        event: read as it is stored: tables follow from the log and from nothing that was meant
            besides.
    """
    change = _CHANGES.get(type(event))
    if change is not None:
        change(connection, seq, event)


# -- proposals ---------------------------------------------------------------------------------


def origin_text(proposal: Proposal) -> str:
    """Say why a proposal was made, and what explore changed.

    For example "exploit member 3, explore x x 1.2".
    """
    if proposal.changes is None:
        return proposal.origin
    changed = ", ".join(map(_change_text, proposal.changes))
    return f"{proposal.origin}, {f'explore {changed}' if changed else 'nothing changed'}"


def _change_text(change: Change) -> str:
    floats = isinstance(change.old, float) and isinstance(change.new, float)
    if floats and change.old != 0:
        return f"{change.name} x {change.new / change.old:.3g}"
    return f"{change.name} = {change.new}"


def _insert(
    connection: sqlite3.Connection, table: str, *rows: Sequence[object], keep: str = "ABORT"
) -> None:
    """Add whole rows, `keep` is the rule for taken keys."""
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT OR {keep} INTO {table} VALUES ({marks})", rows)


def _add_proposal(connection: sqlite3.Connection, seq: int, event: ProposalMade) -> None:
    number = event.proposed.id
    proposal = event.proposed.proposal
    origin = origin_text(proposal)
    # A configuration has the number of the proposal that introduced it.
    row = (number, event.config_hash, origin, dumps(proposal.config))
    _insert(connection, "configurations", row, keep="IGNORE")
    connection.execute(
        "INSERT INTO proposals (proposal, config_id, until, resume_from, member, origin, meta) "
        "VALUES (?, (SELECT config_id FROM configurations WHERE config_hash = ?), ?, ?, ?, ?, ?)",
        (number, event.config_hash, *_PROPOSAL(proposal), origin, dumps(proposal.meta)),
    )
    connection.execute(
        "INSERT INTO standing (proposal, provisional, baseline, anew, informed) "
        "VALUES (?, ?, ?, ?, ?)",
        (
            *(number, proposal.provisional, proposal.baseline + proposal.named),
            *(event.anew, proposal.informed),
        ),
    )
    _insert(connection, "places", (str(number), seq))


def _score_proposal(connection: sqlite3.Connection, seq: int, event: ProposalScored) -> None:
    scored = event.scored
    counts = (scored.n_seeds, scored.reached)
    texts = (dumps(event.score), dumps(scored.spread), dumps(scored.constraints))
    connection.execute(
        "UPDATE proposals SET status = 'scored', score = ?, spread = ?, constraints = ?, "
        "n_seeds = ?, reached = ?, resumable = ? WHERE proposal = ?",
        (*texts, *counts, scored.resumable, scored.proposal),
    )
    # As `Ranking` has them, whose order these columns give.
    infeasible = sum(max(0, violation) for violation in scored.constraints)
    mean = scored.mean[0] if scored.mean else scored.values[0]
    spread = scored.spread[0] if scored.spread else 0.0
    ranked = (infeasible, *counts, scored.values[0], mean, spread, dumps(scored.values))
    connection.execute(
        "UPDATE standing SET infeasible = ?, n_seeds = ?, reached = ?, value = ?, mean = ?, "
        "spread = ?, objectives = ? WHERE proposal = ? AND baseline < 2",
        (*ranked, scored.proposal),
    )
    _charge(connection, scored.proposal, event)


def _fail_proposal(connection: sqlite3.Connection, seq: int, event: ProposalFailed) -> None:
    failed = event.failed
    connection.execute(
        "UPDATE proposals SET status = ?, score = ?, n_seeds = 0, resumable = 0, message = ? "
        "WHERE proposal = ?",
        (failed.kind, dumps(event.score), failed.message, failed.proposal),
    )
    _charge(connection, failed.proposal, event)


def _charge(
    connection: sqlite3.Connection, proposal: int, event: ProposalScored | ProposalFailed
) -> None:
    """Note the seeds.

    They are charged unless all of it was beyond the budget.
    """
    seeds = dumps(event.seeds)
    if event.beyond is not None:
        connection.execute(
            "UPDATE standing SET seeds = ?, beyond = coalesce(beyond, 0) + ? WHERE proposal = ?",
            (seeds, event.beyond, proposal),
        )
        return
    # More seeds may have come in: each is charged once.
    (before,) = connection.execute(
        "SELECT charged FROM standing WHERE proposal = ?", (proposal,)
    ).fetchone()
    charged = dict.fromkeys([*json.loads(before or "[]"), *event.seeds])
    connection.execute(
        "UPDATE standing SET seeds = ?, charged = ? WHERE proposal = ?",
        (seeds, dumps(list(charged)), proposal),
    )


# -- segments ----------------------------------------------------------------------------------


def _add_segment(connection: sqlite3.Connection, seq: int, event: SegmentEnded) -> None:
    place = event.place
    outcome = event.outcome
    # A test run may have ended at the step its score is read at, and now be trained whole, or the
    # other way round: what both trained counts once, and a run has the same values again.
    longest = _longest_so_far(connection, event.segment)
    if longest is None or outcome.reached > longest[0]:
        _into_run(connection, event, {} if longest is None else longest[1])
    keep = "REPLACE" if longest is None else "IGNORE"
    proposal = place.segment.proposal
    saved = None if outcome.checkpoint is None else outcome.checkpoint.path
    ends = (outcome.reached, proposal, outcome.status)
    texts = (dumps(outcome.applied), "; ".join(outcome.notes), outcome.message, saved)
    connection.execute(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
        "(SELECT config_id FROM proposals WHERE proposal = ?), ?, ?, ?, ?, ?)",
        (place.segment, proposal, *_SEGMENT(place), *ends, *texts),
    )
    reports = [
        (place.run_id, report.step, metric, value)
        for report in (*outcome.reports, *outcome.updates)
        for metric, value in report.metrics.items()
    ]
    reductions = [(place.run_id, *row) for row in event.reductions or ()]
    _insert(connection, "reports", *reports, keep=keep)
    _insert(connection, "reductions", *reductions, keep=keep)
    _insert(connection, "places", (event.segment, seq), keep="REPLACE")
    _note(connection, outcome.notes)


def _longest_so_far(
    connection: sqlite3.Connection, segment: SegmentId
) -> tuple[int, Mapping[str, float]] | None:
    """Return end and cost of the longest segment with that beginning.

    It trained the same part of a run, to another end.
    """
    uncut = SegmentId(segment.proposal, segment.seed)
    # `A` comes after `@`: between the two bounds lie the names `12.3@500` and no other.
    row = connection.execute(
        "SELECT body FROM segments JOIN places ON subject = segment JOIN event USING (seq) "
        "WHERE segment = ? OR (segment > ? AND segment < ?) ORDER BY to_step DESC LIMIT 1",
        (uncut, f"{uncut}@", f"{uncut}A"),
    ).fetchone()
    if row is None:
        return None
    outcome = json.loads(row[0])["outcome"]
    return outcome["reached"], outcome.get("cost", {})


def _into_run(
    connection: sqlite3.Connection, event: SegmentEnded, counted: Mapping[str, float]
) -> None:
    """Add a segment to its run.

    `counted` is the cost of a shorter one in its place, which it supersedes.
    """
    cost = event.outcome.cost
    steps, seconds = (
        cost.get(name, 0.0) - counted.get(name, 0.0)
        for name in ("environment_steps", "wall_seconds")
    )
    connection.execute(
        "INSERT INTO runs VALUES (?, (SELECT config_id FROM proposals WHERE proposal = ?), "
        "?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET "
        "status = excluded.status, wall_seconds = wall_seconds + excluded.wall_seconds, "
        "environment_steps = environment_steps + excluded.environment_steps",
        (*_RUN(event.place), event.outcome.status, steps, seconds),
    )


def _note(connection: sqlite3.Connection, notes: Iterable[str]) -> None:
    _insert(connection, "noted", *[(note,) for note in notes], keep="IGNORE")


def _collect_checkpoints(
    connection: sqlite3.Connection, seq: int, event: CheckpointsCollected
) -> None:
    connection.executemany(
        "UPDATE segments SET checkpoint = NULL WHERE segment = ?",
        [(segment,) for segment in event.segments],
    )


def _regain_checkpoint(connection: sqlite3.Connection, seq: int, event: CheckpointRegained) -> None:
    # The outcome of the segment stays the first one; what was noted of it is new.
    connection.execute(
        "UPDATE segments SET checkpoint = ? WHERE segment = ?",
        (event.checkpoint.path, event.segment),
    )
    _note(connection, event.notes)


# -- tests -------------------------------------------------------------------------------------


def _freeze_candidates(connection: sqlite3.Connection, seq: int, event: CandidatesFrozen) -> None:
    # Candidates of an extended study are new ones: those tested before keep their rows.
    connection.execute("UPDATE tests SET label = 'earlier'")
    connection.executemany(
        "UPDATE tests SET label = ? WHERE proposal = ?",
        [(candidate.label, candidate.proposal) for candidate in event.candidates],
    )


def _add_tests(connection: sqlite3.Connection, seq: int, event: CandidateTested) -> None:
    rows = [(event.proposal, event.label, *_TEST(score)) for score in event.scores]
    _insert(connection, "tests", *rows, keep="REPLACE")


_CHANGES: Mapping[type, Callable[[sqlite3.Connection, int, Any], None]] = {
    ProposalMade: _add_proposal,
    SegmentEnded: _add_segment,
    ProposalScored: _score_proposal,
    ProposalFailed: _fail_proposal,
    CheckpointsCollected: _collect_checkpoints,
    CheckpointRegained: _regain_checkpoint,
    CandidatesFrozen: _freeze_candidates,
    CandidateTested: _add_tests,
}
"""How the tables follow from each kind of event; no other event changes any."""
