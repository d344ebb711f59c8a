"""A study's folder read without touching it: while a driver runs, after a kill, on a read-only disk.

The database is copied into memory through SQLite's `mode=ro`. What `status` and `best` say is in its tables; a report
needs more, and folds the events by the driver's own code. A test holds that both say the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from autorl.spec import Spec, thaw
from autorl.store import Store
from autorl.store.events import (
    CheckpointRegained,
    CheckpointsCollected,
    ProposalFailed,
    ProposalScored,
    SegmentEnded,
    SessionBegun,
    StudyEvent,
    without_checkpoint,
)
from autorl.store.folder import check_database, check_kinds, check_recorded
from autorl.store.lock import lock_holder
from autorl.store.snapshot import snapshot
from autorl.store.store import DATABASE, STUDY_FILE
from autorl.store.study_file import check_unchanged, recorded_study_file
from autorl.study.beside import noted
from autorl.study.driver import Driver
from autorl.study.journal import Journal
from autorl.study.result import Result, read_result
from autorl.study.standing import Standing
from autorl.study.study import hours_used, with_more_test_seeds
from autorl.study.test_phase import TestPhase
from autorl.types import (
    Done,
    Event,
    FrozenMap,
    Incumbent,
    InputError,
    Proposal,
    ProposalId,
    Wait,
)


@dataclass(frozen=True)
class TracePoint:
    """The incumbent after a score: tuning steps charged so far, its tuning score, its proposal."""

    steps: int
    score: float
    proposal: ProposalId


@dataclass(frozen=True)
class Failure:
    """A segment that failed: whose, on which seed, how, and the last line of the error."""

    segment: str
    proposal: ProposalId
    seed: int
    kind: str
    message: str


@dataclass(frozen=True)
class Latest:
    """The kind of an event and the wall-clock time it was written."""

    kind: str
    time: float


class Replayed:
    """A study's search, folded from all of its events by the driver's own code.

    Attributes:
        driver, tests: the search and the test phase as the events left them.
        trace: the incumbent after each score.
    """

    def __init__(self, spec: Spec, store: Store, hours: float) -> None:
        self._journal = Journal(store)
        self.driver = Driver(spec, self._journal, _Onlooker(), lambda: hours)
        self.tests = TestPhase(spec, self._journal, self.driver)
        self.trace: list[TracePoint] = []
        for recorded in store.events():
            self._take(recorded.event)

    def _take(self, event: StudyEvent) -> None:
        if isinstance(event, CheckpointsCollected | CheckpointRegained):
            return
        if isinstance(event, SegmentEnded):
            event = without_checkpoint(event)
        self._journal.apply(event)
        best = self.driver.ranking.best()
        if isinstance(event, ProposalScored | ProposalFailed) and best is not None:
            score = self.driver.raw(self.driver.ranking[best].values)[0]
            self.trace.append(TracePoint(self.driver.charged_steps, score, best))


class StudyView:
    """What a study's folder says now. Use `open_view`; `close` it.

    Attributes:
        spec: the frozen study file, with test seeds that were added later.
        standing: where search and test phase stand, from the tables.
        last: the latest event; None before the first.
    """

    def __init__(self, folder: Path, spec: Spec, store: Store) -> None:
        self.folder = folder
        self.store = store
        self.spec = with_more_test_seeds(spec, store)
        self.hours = hours_used(store)
        self.standing = Standing(self.spec, store, self.hours)
        latest = store.query("SELECT kind, time FROM event ORDER BY seq DESC LIMIT 1")
        self.last = Latest(*latest[0]) if latest else None

    @property
    def driver(self) -> Driver:
        """The search as the stored events left it: all of them are replayed. Never advanced here."""
        return self._replayed.driver

    @property
    def trace(self) -> list[TracePoint]:
        """The incumbent after each score; all events are replayed."""
        return self._replayed.trace

    @cached_property
    def _replayed(self) -> Replayed:
        return Replayed(self.spec, self.store, self.hours)

    def tuning_score(self, proposal: ProposalId) -> float:
        """Score on tuning seeds of the first objective, in the metric's own direction."""
        return self.standing.tuning_score(proposal)

    @property
    def finished(self) -> bool:
        """The study ran to its end and nothing was added to it since."""
        return self.last is not None and self.last.kind == "finished"

    def holder(self) -> str | None:
        """Who works on the study now ("process 12 on host"); None when nobody does."""
        return lock_holder(self.folder)

    def incumbent(self) -> Incumbent:
        """The frozen incumbent, or the best so far.

        Raises:
            StudyError: nothing was scored yet.
        """
        return self.standing.incumbent()

    def result(self) -> Result:
        """The result as it stands.

        Raises:
            StudyError: nothing was scored yet.
        """
        incumbent = self.incumbent()
        front = self.standing.front if len(self.spec.objective) > 1 else []
        return read_result(self.store.query, self.spec, self.folder, front, incumbent)

    def best(self, count: int) -> list[ProposalId]:
        """The `count` best proposals by tuning score, the incumbent first, one for each run.

        Raises:
            StudyError: nothing was scored yet.
        """
        return self.standing.best_of_runs(count)

    def chosen_step(self, proposal: ProposalId) -> int | None:
        """The step a proposal's score is read at: what was written down of a candidate, else what its seeds choose."""
        return self.standing.chosen_step(proposal)

    def counts(self) -> dict[str, int]:
        """Proposals by status: `pending`, `scored`, or the kind of failure."""
        return dict(
            self.store.query(
                "SELECT status, COUNT(*) FROM proposals GROUP BY status ORDER BY status"
            )
        )

    def failures(self) -> list[Failure]:
        """Every failed segment, the latest last."""
        rows = self.store.query(
            "SELECT segment, proposal, seed, status, message FROM segments "
            "WHERE status NOT IN ('done', 'stopped') ORDER BY rowid"
        )
        return [Failure(*row) for row in rows]

    def lost(self) -> int:
        """How often a worker vanished and its segment was handed out again."""
        return int(self.store.query("SELECT COUNT(*) FROM event WHERE kind = 'attempt'")[0][0])

    def notes(self) -> list[str]:
        """What trainers noted about segments, each once."""
        return noted(self.store.query)

    def sessions(self) -> list[FrozenMap]:
        """Versions, platform and process of every session that worked on the study."""
        events = (recorded.event for recorded in self.store.events())
        return [event.facts for event in events if isinstance(event, SessionBegun)]

    def close(self) -> None:
        self.store.close()


def open_view(folder: Path) -> StudyView:
    """The study in `folder`, read-only.

    Raises:
        InputError: there is none, or its files cannot be read.
    """
    try:
        text = (folder / STUDY_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"holds no study ({STUDY_FILE} is missing)", file=str(folder)) from None
    except NotADirectoryError:
        message = "is a file: expected a study's folder, as `autorl tune` makes it (studies/<name>, or --out)"
        raise InputError(message, file=str(folder)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", file=str(folder / STUDY_FILE)) from None
    check_database(folder)
    path = folder / DATABASE
    try:
        connection = snapshot(path)
        check_recorded(folder, connection)
        check_kinds(connection, path)
        store = Store(connection, folder, None)
        check_unchanged(recorded_study_file(store.query), text, folder / STUDY_FILE)
        spec = thaw(text, str(folder / STUDY_FILE))
        return StudyView(folder, spec, store)
    except sqlite3.Error as error:
        raise InputError(f"cannot be read ({error})", file=str(path)) from error


class _Onlooker:
    """Stands in for the optimizer: a view never asks, and needs no optimizer's state."""

    def ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        raise AssertionError("a view never asks")

    def observe(self, event: Event) -> None:
        """Nothing depends on it."""

    def keeps(self) -> Collection[ProposalId]:
        return ()
