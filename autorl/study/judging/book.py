"""The folder of judgements: what was looked at, and what was kept.

    judgements.jsonl    a line when a judgement begins, a line when it ends
    runs/KEY/           the runs of a configuration with its code and environment, a log each
    worktrees/COMMIT/   revisions

A line is on the disk before anything follows from it. A judgement that was cut off goes on with the
runs that there are, and comes to the same verdict: it is a function of the runs alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autorl.core.plain_text import counted
from autorl.core.types import InputError, StudyError
from autorl.statistics import verdict
from autorl.statistics.noise import posterior
from autorl.store.lock import FolderLock
from autorl.store.sessions import changes
from autorl.study.judging.judgement import Judgement, Terms, judge_on
from autorl.study.judging.runs import FILE, Side, bench_of, describe, side_again

FIRST_POOL = 30


class Entry(NamedTuple):
    """A judgement in the book, over or open."""

    number: int
    begun: Mapping[str, Any]
    ended: Mapping[str, Any] | None

    @property
    def verdict(self) -> str:
        return "open" if self.ended is None else str(self.ended["verdict"])

    @property
    def charged(self) -> bool:
        """Say whether it has spent error: a confirmation that kept nothing."""
        ended = self.ended
        return ended is not None and ended["role"] == "test" and ended["verdict"] != "keep"


@dataclass(frozen=True)
class Answer:
    """A judgement with its place in the book.

    Attributes:
        trained_now: runs that this call has trained; the others were there.
        notes: what changed since, for people.
    """

    entry: Entry
    judgement: Judgement
    trained_now: int
    notes: Sequence[str] = ()

    @property
    def document(self) -> dict[str, Any]:
        """The answer as JSON."""
        begun = self.entry.begun
        return {
            "number": self.entry.number,
            "baseline": begun["baseline"]["label"],
            "edit": begun["edit"]["label"],
            **asdict(self.judgement),
            "exit_code": self.judgement.exit_code,
            "trained_now": self.trained_now,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        begun = self.entry.begun
        head = f"{begun['edit']['label']} against {begun['baseline']['label']}"
        runs = counted(len(self.judgement.all_scores), "run")
        cost = f"  {runs} decided; {counted(self.trained_now, 'run')} trained now"
        return "\n".join([head, str(self.judgement), cost, *(f"  {note}" for note in self.notes)])


class Book:
    """Judgements of one folder.

    Args:
        folder: made if it is not there.
        ledger: whether its judgements are one session: against one baseline that moves, with one
            error for all of them.
        pool: tuning runs that a ledger's first baseline has.

    Raises:
        InputError: another process has it, or it was begun as the other kind.
    """

    def __init__(self, folder: Path, *, ledger: bool = False, pool: int | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(folder)
        self._file = folder / FILE
        lines = read_lines(self._file)
        if not lines:
            # It may lie in the repository that is judged.
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
            lines = [{"ledger": ledger, "pool": (pool or FIRST_POOL) * ledger}]
            add_line(self._file, lines[0])
        self.is_ledger = bool(lines[0]["ledger"])
        self.pool = int(lines[0]["pool"])
        self.entries = entries_of(lines)
        if self.is_ledger != ledger or pool not in (None, self.pool):
            self.close()
            kind = f"a ledger with --pool {self.pool}" if self.is_ledger else "no ledger"
            raise InputError(f"was begun as {kind}: choose another folder", file=str(folder))

    def judge(
        self, baseline: Side | None, edit: Side, terms: Terms, workers: int | None = None
    ) -> Answer:
        """Judge an edit, or go on where it was cut off.

        A judgement that ended is read again from its runs.

        Raises:
            InputError: a ledger has another baseline, or has none and none is given.
            StudyError: every run of both sides failed.
        """
        block = 0
        notes = []
        described = current_baseline(self.entries) if self.is_ledger else None
        if described is not None:
            current = side_again(described, self.folder)
            if baseline is not None and baseline.content != current.content:
                message = f"the baseline is {current.label} by now: give the edit alone"
                raise InputError(message, file=str(self.folder))
            baseline = current
            block = described["block"]
            if changed := changes([described["facts"], current.facts]):
                notes.append(f"the baseline is measured again with other {', '.join(changed)}")
        if baseline is None:
            raise InputError("a ledger begins with a baseline: give A and B", file=str(self.folder))
        entry = self._entry(baseline, edit, terms, block)
        blocks = [entry.begun[side]["block"] for side in ("baseline", "edit")]
        with bench_of(self.folder, (baseline, edit), blocks, workers) as bench:
            judgement = judge_on(bench, Terms(**entry.begun["terms"]))
            trained = bench.trained_now()
            failures = [(runs.side.label, runs.failure()) for runs in bench.sides]
        notes += [f"a run of {label} failed: {why}" for label, why in failures if why]
        if not any(score is not None for score in judgement.all_scores):
            raise StudyError(f"every run failed: {notes[-1]}")
        if entry.ended is None:
            names = ("verdict", "role", "difference", "interval", "at_least", "hours")
            summary = {name: getattr(judgement, name) for name in names}
            summary |= {"summaries": _summaries(judgement)}
            add_line(self._file, {"number": entry.number, "ended": summary})
            entry = entry._replace(ended=summary)
            self.entries[entry.number] = entry
        return Answer(entry, judgement, trained, notes)

    def _entry(self, baseline: Side, edit: Side, terms: Terms, block: int) -> Entry:
        """Find the judgement of two sides, or begin it."""
        asked = [baseline.key, edit.key, terms.min_effect, terms.max_runs, terms.max_hours]
        earlier = [entry for entry in self.entries if entry.begun.get("asked") == asked]
        if earlier:
            return earlier[-1]
        number = len(self.entries)
        level = verdict.ALPHA
        if self.is_ledger:
            level = verdict.level_after(sum(entry.charged for entry in self.entries))
        # A judgement has held-out seeds of its own, which no look of another has used.
        block_of_edit = 1 + number * self.is_ledger
        begun = {
            "asked": asked,  # equal ones are the same judgement
            "baseline": describe(baseline, block),
            "edit": describe(edit, block_of_edit),
            "terms": {**asdict(terms), "level": level, "pools": verdict.pools(number, self.pool)},
        }
        add_line(self._file, {"number": number, "begun": begun})
        self.entries.append(Entry(number, begun, None))
        return self.entries[number]

    def close(self) -> None:
        self._lock.release()


def add_line(file: Path, line: Mapping[str, object]) -> None:
    """Add a line of JSON, which is on the disk afterwards."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Read lines of JSON, but for one that a kill has torn.

    Raises:
        InputError: a line before the last is no JSON.
    """
    if not file.exists():
        return []
    lines, _, torn = file.read_bytes().rpartition(b"\n")
    if torn:
        os.truncate(file, len(lines) + bool(lines))
    try:
        return [json.loads(line) for line in lines.splitlines()]
    except ValueError as error:
        raise InputError(f"is no file of judgements ({error})", file=str(file)) from None


def entries_of(lines: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Put the lines of a book together, after the first."""
    ends = {line["number"]: line["ended"] for line in lines if "ended" in line}
    begun = {line["number"]: line["begun"] for line in lines if "begun" in line}
    return [Entry(number, of, ends.get(number)) for number, of in begun.items()]


def current_baseline(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Describe the baseline that a ledger has now."""
    sides = [entry.begun["baseline"] for entry in entries[:1]]
    sides += [entry.begun["edit"] for entry in entries if entry.verdict == "keep"]
    return dict(sides[-1]) if sides else None


def _summaries(judgement: Judgement) -> dict[str, dict[str, Any]]:
    """Summarise the runs of each side, on seeds of both roles.

    There is no mean where a run failed.
    """
    summaries = {}
    for side in ("baseline", "edit"):
        scores = [score for of in judgement.scores.values() for score in of[side]]
        failed = None in scores
        values = np.zeros(2) if failed else np.array(scores, dtype=float)
        mean = None if failed else float(values.mean())
        spread = float(values.std(ddof=1))
        summaries[side] = {"mean": mean, "spread": spread, "runs": len(scores)}
    return summaries


def expected_gains(entries: Sequence[Entry]) -> dict[int, float]:
    """Return the gains that are expected to survive, by number.

    A configuration counts with the most runs that any judgement had of it: an edit that was kept is
    trained again as the baseline, on seeds that were not chosen for it. Gains are posterior means
    given all edits that were judged (`autorl.statistics.noise`).
    """
    summaries = [
        (entry.begun[side]["key"], summary)
        for entry in entries
        if entry.ended
        for side, summary in entry.ended["summaries"].items()
    ]
    # The longest of each key comes last, and stays.
    longest = dict(sorted(summaries, key=lambda of: int(of[1]["runs"])))
    rows = {}
    for entry in (entry for entry in entries if entry.ended):
        before, after = (longest[entry.begun[side]["key"]] for side in ("baseline", "edit"))
        if None not in (before["mean"], after["mean"]):
            seeds = 1 / (1 / before["runs"] + 1 / after["runs"])
            variance = sum(of["spread"] ** 2 / of["runs"] for of in (before, after))
            rows[entry.number] = (after["mean"] - before["mean"], (variance * seeds) ** 0.5, seeds)
    if len(rows) < 2:
        return {}
    return dict(zip(rows, posterior(*zip(*rows.values(), strict=True)).mean.tolist(), strict=True))
