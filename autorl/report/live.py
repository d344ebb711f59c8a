"""Looks at a study again and again.

`autorl watch` does.

A study is read anew only when its files, or who drives it, have changed. To find that nothing has
changed costs a few calls of the operating system, whatever the size of the study.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from autorl.core.types import AutorlError, InputError
from autorl.report.reading import StudyView, open_view
from autorl.store.folder import DATABASE, STUDY_FILE
from autorl.store.lock import lock_holder
from autorl.study.results.record import StudyRecord

T = TypeVar("T")
LEAST_SHARE = 0.1
"""Share of the search that must be done before its end is predicted."""


@dataclass(frozen=True)
class Look(Generic[T]):
    """State of a study, and the time it was read.

    Attributes:
        revision: differs when the study's files do; names what was read.
        value: what was read.
        seconds: that reading took.
    """

    revision: str
    value: T
    seconds: float


class LiveStudy(Generic[T]):
    """Reads a study's folder when it has changed.

    Any thread may look: one reads, the others wait for it.

    Args:
        folder: of the study.
        read: makes of a view what looks return; the view is closed afterwards.

    Attributes:
        latest: the last look, None before the first.
    """

    def __init__(self, folder: Path, read: Callable[[StudyView], T]) -> None:
        self.latest: Look[T] | None = None
        self._folder = folder
        self._read = read
        self._lock = threading.Lock()

    def look(self) -> Look[T]:
        """Return the study as it is now.

        Raises:
            InputError: there is no study, or it cannot be read.
        """
        with self._lock:
            # Before the study is read: what changes meanwhile is another revision.
            revision = _revision_of(self._folder)
            if self.latest is None or self.latest.revision != revision:
                begun = time.perf_counter()
                value = self._value()
                self.latest = Look(revision, value, time.perf_counter() - begun)
            return self.latest

    def _value(self) -> T:
        try:
            with closing(open_view(self._folder)) as view:
                return self._read(view)
        except InputError:
            raise
        # A damaged database raises these: it is one study of many, whose page must say so.
        except (AutorlError, sqlite3.Error, OSError, ValueError) as error:
            raise InputError(f"cannot be read ({error})", file=str(self._folder)) from error


def _revision_of(folder: Path) -> str:
    """Name the state of a study's files and of its driver.

    It costs a few calls of the operating system.
    """
    parts: list[object] = [lock_holder(folder)]
    for name in (STUDY_FILE, DATABASE, f"{DATABASE}-wal"):
        try:
            status = os.stat(folder / name)
        except OSError:
            parts.append(None)
        else:
            parts.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def search_seconds_left(record: StudyRecord) -> float | None:
    """Estimate the driver's time until the search is over.

    At its pace so far, in seconds.

    None before a twentieth is done, and where no search goes on.
    """
    spent = record.spent
    used = spent.budget_used(record.spec)
    if record.search_end is not None or used <= 0:
        return None
    seconds = spent.hours * 3600
    if record.spec.budget.hours is not None:
        return max(0.0, record.spec.budget.hours * 3600 - seconds)
    done = min(1.0, used) * _trained_share(record)
    if done < LEAST_SHARE or seconds <= 0:
        return None
    return seconds * (1.0 - done) / done


def _trained_share(record: StudyRecord) -> float:
    """Return the share of what is charged that has an outcome.

    The budget is charged when something is proposed, before it is trained.
    """
    pending = set(record.tables.pending())
    first = len(record.spec.policy().first)
    missing = 0
    for row in record.tables.charged():
        if row.proposal in pending:
            start = 0 if row.anew else row.start
            missing += (row.until - start) * first
    charged = record.spent.charged_steps
    return max(0.0, 1.0 - missing / charged) if charged else 0.0
