"""Checks whether a study's folder is whole.

That is its log, what follows from it, its checkpoints, and what no event names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from autorl.core.plain_text import counted, one_line
from autorl.core.types import Checkpoint, InputError, SegmentId
from autorl.store import checkpoints, schema
from autorl.store.events import ProposalMade
from autorl.store.folder import (
    DATABASE,
    JOBS,
    LOCK_FILE,
    STUDY_FILE,
    check_database_file,
    check_recorded,
)
from autorl.store.integrity import (
    Chain,
    check_chain,
    check_pages,
    saved_checkpoints,
    table_differences,
)
from autorl.store.outputs import REPORT
from autorl.store.remote import RemoteFolder
from autorl.store.snapshot import snapshot
from autorl.store.study_file import check_unchanged, recordable
from autorl.store.tables import StudyTables
from autorl.study.folder.checks import SEGMENT_NAME, check_space, storage_of
from autorl.study.spec import thaw

_OURS = (*(STUDY_FILE, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"), *(LOCK_FILE, JOBS, REPORT))
_INNER = ("checkpoints", "logs")
_TRACKERS = "logs/trackers"  # what callbacks write into the folder
_MOST_NAMES = 3  # in one line


@dataclass
class Verdict:
    """The verdict of `verify` on a folder.

    Attributes:
        events: number of events in the log that fit all before them.
        problems: what is damaged or missing, one line each; a study without any is whole.
        notes: what is worth knowing and no damage.
        advice: what can be saved and how; empty for a whole study.
    """

    events: int = 0
    checkpoints: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    advice: str = ""

    @property
    def whole(self) -> bool:
        return not self.problems


def verify(folder: Path) -> Verdict:
    """Check a study's folder without writing to it.

    It may be in use.

    Raises:
        InputError: there is no such folder, or it holds neither a study file nor a database.
    """
    if not (folder / STUDY_FILE).exists() and not (folder / DATABASE).exists():
        raise InputError(
            f"holds no study ({STUDY_FILE} and {DATABASE} are missing)", file=str(folder)
        )
    verdict = Verdict()
    # Before the log is read: nothing is trained before its proposal is recorded.
    listed = _entries(folder)
    try:
        check_database_file(folder)
        with closing(snapshot(folder / DATABASE)) as connection:
            check_recorded(folder, connection)
            _verify_log(folder, connection, listed, verdict)
    except InputError as error:
        verdict.problems.append(error.message)
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        # Damaged rows raise any of these where they are read as values.
        verdict.problems.append(f"{DATABASE} cannot be read ({one_line(error)})")
    if not verdict.whole and not verdict.advice:
        verdict.advice = (
            f"nothing can be read from the log; what lies in {folder} was left as it is"
        )
    return verdict


def _verify_log(
    folder: Path, connection: sqlite3.Connection, listed: list[Path], verdict: Verdict
) -> None:
    chain = check_chain(connection)
    verdict.events = chain.head.seq
    if (pages := check_pages(connection)) is not None:
        verdict.problems.append(f"{DATABASE}: SQLite says: {pages}")
    if chain.problem:
        verdict.problems.append(f"{DATABASE}: {chain.problem}")
    _verify_study_file(folder, connection, verdict)
    _verify_tables(connection, chain, verdict)
    saved, ended = saved_checkpoints(connection, chain.head.seq)
    verdict.checkpoints = len(saved)
    _verify_checkpoints(folder, saved, verdict)
    _verify_names(folder, connection, listed, saved, ended, verdict)
    if not verdict.whole and chain.head.seq:
        verdict.advice = (
            f"events 1 to {chain.head.seq} are whole: `autorl backup {folder} COPY --until "
            f"{chain.head.seq}` makes a "
            "study of them, and of the checkpoints they name that are whole, which can be resumed"
        )


def _verify_study_file(folder: Path, connection: sqlite3.Connection, verdict: Verdict) -> None:
    file = folder / STUDY_FILE
    tables = StudyTables.of(connection)
    try:
        text = file.read_text(encoding="utf-8")
        recorded = tables.study_file()
        check_unchanged(recorded, text, file)
        check_space(thaw(text, str(file)), tables, folder)
    except InputError as error:
        verdict.problems.append(
            f"{STUDY_FILE}: {': '.join(part for part in (error.key, error.message) if part)}"
        )
    except (OSError, ValueError, sqlite3.Error) as error:
        verdict.problems.append(f"{STUDY_FILE} cannot be compared with the log ({one_line(error)})")
    else:
        if recorded.text != recordable(text):
            verdict.notes.append(f"{STUDY_FILE} was edited, but no key that the table depends on")


def _verify_tables(connection: sqlite3.Connection, chain: Chain, verdict: Verdict) -> None:
    """Compare the schema with ours, and the tables with the events."""
    if (difference := schema.difference(connection)) is not None:
        verdict.problems.append(f"{DATABASE} {difference}")
        return
    if chain.problem:
        verdict.notes.append("the tables are not compared with the events, which are damaged")
        return
    try:
        lines = table_differences(connection, chain.head.seq)
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        lines = [f"the tables cannot be derived from the events ({one_line(error)})"]
    verdict.problems += lines


def _verify_checkpoints(
    folder: Path, saved: Mapping[SegmentId, Checkpoint], verdict: Verdict
) -> None:
    storage = storage_of(folder)
    problems = {
        segment: checkpoint_damage(folder, checkpoint, storage)
        for segment, checkpoint in saved.items()
    }
    damaged = {segment: problem for segment, problem in problems.items() if problem is not None}
    if damaged:
        # A study that runs has collected some meanwhile.
        with closing(snapshot(folder / DATABASE)) as connection:
            still, _ = saved_checkpoints(connection, check_chain(connection).head.seq)
        damaged = {segment: problem for segment, problem in damaged.items() if segment in still}
    verdict.problems += [f"checkpoint {segment}: {problem}" for segment, problem in damaged.items()]
    unhashed = sum(not checkpoint.files for checkpoint in saved.values())
    if unhashed:
        verdict.notes.append(
            f"of {counted(unhashed, 'checkpoint')} the log holds no hashes: "
            "their files are not compared"
        )


def checkpoint_damage(
    folder: Path, checkpoint: Checkpoint, storage: str | None = None
) -> str | None:
    """Say in one phrase what is wrong with a checkpoint below `folder`.

    The result is None when it is whole, or the caller's own, outside the folder. One that is not
    there lies in `storage`.

    Raises:
        StorageError: that does not answer.
    """
    if Path(checkpoint.path).is_absolute():
        return None
    if not checkpoints.stays_inside(checkpoint.path):
        return "its path leads out of the folder"
    path = folder / checkpoint.path
    if not path.is_dir() and storage is not None:
        return RemoteFolder(f"{storage}/{checkpoint.path}").damage(checkpoint.files)
    if not path.is_dir():
        return "the folder is missing"
    return checkpoints.damage(path, checkpoint.files)


def _verify_names(
    folder: Path,
    connection: sqlite3.Connection,
    listed: list[Path],
    saved: Mapping[SegmentId, Checkpoint],
    ended: Collection[str],
    verdict: Verdict,
) -> None:
    """List what lies in the folder and no event names.

    More than the log knows is damage, leftovers are a note.
    """
    proposals = StudyTables.of(connection).count_events(ProposalMade)
    named = {checkpoint.path for checkpoint in saved.values()}
    unknown = []
    leftover = []
    for entry in listed:
        name = entry.relative_to(folder).as_posix()
        match = SEGMENT_NAME.fullmatch(entry.name) if entry.parent != folder else None
        # A proposal is recorded before anything of it is trained: no kill leaves such a folder.
        if match is not None and int(match["proposal"]) >= proposals:
            unknown.append(name)
        # No event names a log.
        elif name == _TRACKERS or (match is not None and entry.parent.name == "logs"):
            continue
        elif match is not None and match["segment"] not in ended:
            verdict.notes.append(f"{name} is of a segment that has not ended: it is trained again")
        elif match is None or name not in named:
            leftover.append(name)
    if unknown:
        verdict.problems.append(
            f"{DATABASE} is older than the folder: it ends with {counted(proposals, 'proposal')}, "
            f"and {_some(unknown)} are of later ones"
        )
    if leftover:
        verdict.notes.append(f"no event names {_some(leftover)}")


def _some(names: list[str]) -> str:
    """Name the first of some names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(sorted(names)[:_MOST_NAMES]) + more


def _entries(folder: Path) -> list[Path]:
    """List what lies in a study's folder.

    Left out are the files that every study has and what is being written.
    """
    outer = [entry for entry in folder.iterdir() if entry.name not in (*_OURS, *_INNER)]
    inner = [
        entry for name in _INNER if (folder / name).is_dir() for entry in (folder / name).iterdir()
    ]
    # Checkpoints in writing and those that are being replaced: `Work.sweep` removes them.
    return [entry for entry in (*outer, *inner) if not entry.name.startswith((".tmp", ".old-"))]
