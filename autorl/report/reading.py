"""A study's folder, read without touching it.

It can be read while the study runs, after a kill, and on a read-only disk. The database is copied
into memory. `watch --once` and `best` read its tables (`StudyRecord`); the curve of a report needs
more, and folds the events by the driver's own code. A test holds that both say the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.types import Done, Event, FrozenMap, InputError, Proposal, ProposalId, Wait
from autorl.store import Store
from autorl.store.events import (
    CheckpointRegained,
    CheckpointsCollected,
    ProposalFailed,
    ProposalScored,
    SegmentEnded,
    SessionBegun,
    StudyEvent,
    StudyFinished,
    without_checkpoint,
)
from autorl.store.folder import DATABASE, holds_study
from autorl.store.lock import lock_holder
from autorl.store.tables import StudyTables
from autorl.study.driver import Driver
from autorl.study.journal import Journal
from autorl.study.results.record import StudyRecord, open_copy, with_added_test_seeds
from autorl.study.results.result import Result, read_result
from autorl.study.spec import Spec
from autorl.study.test_phase import TestPhase


@dataclass(frozen=True)
class TracePoint:
    """The incumbent after a score.

    Attributes:
        steps: tuning steps charged so far.
        score: its tuning score.
        proposal: its proposal.
    """

    steps: int
    score: float
    proposal: ProposalId


class Replayed:
    """A study's search, folded from its events by the driver's code.

    Attributes:
        driver, tests: the search and the test phase as the events left them.
        trace: the incumbent after each score.
    """

    def __init__(self, spec: Spec, store: Store, hours: float) -> None:
        self._spec = spec
        self._journal = Journal(store)
        # The last event that was applied, and its hash: a log that goes on has both.
        self._applied = (0, "")
        self.driver = Driver(spec, self._journal, _Onlooker(), lambda: hours)
        self.tests = TestPhase(spec, self._journal, self.driver)
        self.trace: list[TracePoint] = []
        self._go_on(store)

    def followed(self, view: StudyView) -> Replayed:
        """Return the fold of a later view."""
        seq, link = self._applied
        if self._spec != view.spec or view.store.log.hash_of(seq) != link:
            return view.replayed
        self._go_on(view.store)
        return self

    def _go_on(self, store: Store) -> None:
        seq = self._applied[0]
        for recorded in store.events(after=seq):
            self._take(recorded.event)
            seq = recorded.seq
        self._applied = (seq, store.log.hash_of(seq))

    def _take(self, event: StudyEvent) -> None:
        # A reader looks at no checkpoint: the driver may delete it meanwhile.
        if isinstance(event, CheckpointsCollected | CheckpointRegained):
            return
        if isinstance(event, SegmentEnded):
            event = without_checkpoint(event)
        self._journal.apply(event)
        best = self.driver.ranking.best()
        if isinstance(event, ProposalScored | ProposalFailed) and best is not None:
            score = self.driver.judge.raw(self.driver.ranking[best].values)[0]
            self.trace.append(TracePoint(self.driver.steps_at_outcome, score, best))


class StudyView:
    """State of a study's folder at this moment.

    Use `open_view`, and `close` it.

    Attributes:
        spec: the frozen study file, with test seeds that were added later.
        record: what the study file and the tables say.
        last: the latest event; None before the first.
        holder: who works on the study ("process 12 on host"); None when nobody does.
    """

    def __init__(self, folder: Path, spec: Spec, store: Store, holder: str | None) -> None:
        self.folder = folder
        self.holder = holder
        self.store = store
        self.spec = with_added_test_seeds(spec, StudyTables(store.query))
        self.record = StudyRecord(self.spec, store, folder)
        self.last = self.record.tables.last_event()

    @property
    def trace(self) -> list[TracePoint]:
        """The incumbent after each score."""
        return self.replayed.trace

    @cached_property
    def replayed(self) -> Replayed:
        """The search as the stored events left it."""
        return Replayed(self.spec, self.store, self.record.hours)

    @property
    def finished(self) -> bool:
        """Whether the study ran to its end with nothing added since."""
        return self.last is not None and self.last.kind == StudyFinished.kind

    @cached_property
    def found(self) -> Result | None:
        """The result as it stands, None before anything was scored."""
        return None if self.record.best is None else read_result(self.record)

    def result(self) -> Result:
        """Return the result as it stands.

        Raises:
            StudyError: nothing was scored yet.
        """
        return self.found or read_result(self.record)

    def sessions(self) -> list[FrozenMap]:
        """Return versions, platform and process of every session of the study."""
        return [event.facts for event in self.record.events(SessionBegun)]

    def close(self) -> None:
        self.store.close()


def open_view(folder: Path) -> StudyView:
    """Open the study in `folder`, read-only.

    Raises:
        InputError: there is none, or its files cannot be read.
    """
    # Read once and first: a driver that ends meanwhile has written all that is read later.
    holder = lock_holder(folder)
    spec, connection = open_copy(folder)
    try:
        return StudyView(folder, spec, Store(connection, folder, None), holder)
    except sqlite3.Error as error:
        raise InputError(f"cannot be read ({error})", file=str(folder / DATABASE)) from error


class _Onlooker:
    """A stand-in for the optimizer.

    A view never asks, and needs no optimizer's state.
    """

    def ask(self, rng: np.random.Generator) -> Proposal | Wait | Done:
        raise AssertionError("a view never asks")

    def observe(self, event: Event) -> None:
        """Ignore the event: nothing depends on it."""

    def keeps(self) -> Collection[ProposalId]:
        return ()


def studies_below(folder: Path, depth: int = 3) -> Iterator[Path]:
    """Find the folders of studies in a folder, itself included.

    It looks as deep as `studies/compare/OPTIMIZER/seed-0`, and skips what it may not read.
    """
    try:
        if holds_study(folder):
            yield folder
            return
        inside = sorted(path for path in folder.iterdir() if path.is_dir()) if depth else []
    except (OSError, InputError):  # of somebody else, or gone meanwhile: there is no study to show
        return
    for path in inside:
        yield from studies_below(path, depth - 1)


def check_folder(folder: Path, hint: str = "") -> None:
    """Refuse what is no folder.

    Raises:
        InputError: naming it.
    """
    if not folder.is_dir():
        message = f"is not a folder: expected a study's folder, or a folder of studies{hint}"
        raise InputError(message, file=shown(str(folder)))
