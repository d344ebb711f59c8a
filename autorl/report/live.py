"""Looks at a study again and again, for `autorl watch`.

A study is read anew only when its files, or who drives it, have changed. To find that nothing has
changed costs a few calls of the operating system, whatever the size of the study.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from autorl.core.plain_text import printable, shortened
from autorl.core.types import AutorlError, InputError
from autorl.report.configurations import (
    PRUNED,
    RUNNING,
    ConfigurationRow,
    configuration_rows,
    counts_text,
    header,
)
from autorl.report.reading import StudyView, open_view
from autorl.report.status import (
    duration_text,
    failure_rows,
    last_event_text,
    state,
    status_rows,
    warnings,
)
from autorl.report.table import aligned, columns
from autorl.store.folder import DATABASE, STUDY_FILE
from autorl.store.lock import lock_holder
from autorl.store.log import Latest
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
    # What outcomes use up is trained.
    done = min(1.0, used) * (1.0 if record.spec.budget.measured else _trained_share(record))
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


_LEAST_ROWS = 3
"""Rows of configurations that are shown whatever else there is."""
_BAR = 30
_STYLES = dict.fromkeys(("study", "test score", "incumbent"), "bold") | {"caution": "yellow"}


@dataclass(frozen=True)
class Watched:
    """Facts about a study, before they are laid out for a terminal.

    Attributes:
        state: `running`, `finished` or `stopped`.
        facts: names and texts.
        remarks: names and texts of failures and warnings.
        budget_used: share of the budget.
        last: the latest event.
        configurations: rows of the table.
        horizon: steps of a full run.
        names: of the hyperparameters.
    """

    state: str
    facts: tuple[tuple[str, str], ...]
    remarks: tuple[tuple[str, str], ...]
    budget_used: float
    last: Latest | None
    configurations: tuple[ConfigurationRow, ...]
    horizon: int
    names: tuple[str, ...]

    @property
    def over(self) -> bool:
        """Whether nobody works on the study."""
        return self.state != RUNNING


class Line(NamedTuple):
    """A line of the screen, and its style as rich names it."""

    text: str
    style: str = ""


def watched(view: StudyView) -> Watched:
    """Read what is shown of a study."""
    rows = configuration_rows(view.record)
    facts = [row for row in status_rows(view) if row[0] != "proposals"]
    after_budget = 1 + [name for name, _ in facts].index("budget used")
    stands = state(view)
    added = [("runs", counts_text(rows))]
    seconds = search_seconds_left(view.record) if stands == RUNNING else None
    if seconds is not None:
        added.insert(0, ("search ends", f"in about {duration_text(seconds)}, at its pace so far"))
    facts[after_budget:after_budget] = added
    return Watched(
        state=stands,
        facts=tuple(facts),
        remarks=(*failure_rows(view), *(("caution", text) for text in warnings(view))),
        budget_used=min(1.0, view.record.spent.budget_used(view.spec)),
        last=view.last,
        configurations=tuple(rows),
        horizon=view.spec.fidelity.steps,
        names=tuple(view.spec.search_space.names),
    )


def block(study: Watched) -> str:
    """Write the study as lines for a file or a pipe.

    Equal states give equal lines.
    """
    return "\n".join(aligned([*study.facts, *study.remarks]))


def screen(study: Watched, width: int, height: int) -> list[Line]:
    """Fit the study into a terminal of `width` columns and `height` lines.

    The lines above the table of configurations are cut before its last few rows are.
    """
    facts = list(study.facts)
    if study.last is not None:
        facts.append(("last event", last_event_text(study.last)))
    rows = [*facts, *study.remarks]
    styles = (_STYLES.get(name, "") for name, _ in rows)
    lines = list(map(Line, aligned(rows), styles))
    full = math.floor(study.budget_used * _BAR)
    bar = f"[{'#' * full}{'.' * (_BAR - full)}] {study.budget_used:.0%} of the budget"
    lines.insert(1, Line(bar, "cyan"))
    footer = "q leaves; the study goes on" if not study.over else f"{study.state}; q leaves"
    least = min(len(study.configurations), _LEAST_ROWS) + 1
    room = max(0, height - 2)  # the empty line above the table, and the footer
    lines = lines[: max(0, room - least)]
    shown = max(0, room - len(lines) - 1)
    body = [*lines, Line(""), *_table(study, shown)][: max(0, height - 1)]
    return [
        Line(shortened_end(line.text, width), line.style) for line in (*body, Line(footer, "dim"))
    ]


def shortened_end(text: str, width: int) -> str:
    """Cut a line at its end to the width of the terminal."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"[: width > 0]


def _table(study: Watched, count: int) -> Iterator[Line]:
    rows = _shown_rows(study.configurations, count)
    cells = [row.cells(study.horizon, study.names) for row in rows]
    names = header([printable(shortened(name, 24), keep_lines=False) for name in study.names])
    head, *lines = columns(names, cells, indent="").split("\n")
    yield Line(head, "bold")
    for row, line in zip(rows, lines, strict=True):
        yield Line(line, _style_of_row(row))


def _shown_rows(rows: Sequence[ConfigurationRow], count: int) -> list[ConfigurationRow]:
    """Choose what is shown of many.

    The incumbent comes first, then what is in training, then the newest.
    """
    running = [row for row in rows if row.state == RUNNING]
    incumbent = [row for row in rows if row.incumbent and row.state != RUNNING]
    past = [row for row in reversed(rows) if row.state != RUNNING and not row.incumbent]
    return [*incumbent, *reversed(running), *past][:count]


def _style_of_row(row: ConfigurationRow) -> str:
    if row.failed:
        return "red"
    if row.incumbent:
        return "bold green"
    return {RUNNING: "cyan", PRUNED: "dim"}.get(row.state, "")
