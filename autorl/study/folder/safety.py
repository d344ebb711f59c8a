"""Checks whether a study's folder is whole, and copies it.

Whole are its log, what follows from it, its checkpoints, and what no event names. A copy can be
resumed elsewhere, and is made also while the study runs: the log is copied first, in one read
transaction, then the checkpoints it names. The driver records that it gives a checkpoint up before
it deletes it: one that vanishes meanwhile is no longer named by a newer log, which is then taken.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from autorl.core.masking import MASK
from autorl.core.plain_text import counted, listed, one_line
from autorl.core.types import Checkpoint, InputError, SegmentId
from autorl.store import checkpoints, schema
from autorl.store.checkpoints import STAGES, stays_inside
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
    check_database,
    check_pages,
    rebuilt,
    saved_checkpoints,
    table_differences,
)
from autorl.store.outputs import REPORT, free_output, whole_folder
from autorl.store.remote import RemoteFolder
from autorl.store.snapshot import snapshot
from autorl.store.study_file import check_unchanged, recordable
from autorl.store.tables import StudyTables
from autorl.study.folder.checks import SEGMENT_NAME, check_space, storage_of, with_storage
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
    entries = _entries(folder)
    try:
        check_database_file(folder)
        with closing(snapshot(folder / DATABASE)) as connection:
            check_recorded(folder, connection)
            _verify_log(folder, connection, entries, verdict)
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
    folder: Path, connection: sqlite3.Connection, entries: list[Path], verdict: Verdict
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
    _verify_names(folder, connection, entries, saved, ended, verdict)
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
    entries: list[Path],
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
    for entry in entries:
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
            f"and {listed(sorted(unknown), _MOST_NAMES)} are of later ones"
        )
    if leftover:
        verdict.notes.append(f"no event names {listed(sorted(leftover), _MOST_NAMES)}")


def _entries(folder: Path) -> list[Path]:
    """List what lies in a study's folder.

    Left out are the files that every study has and what is being written.
    """
    outer = [entry for entry in folder.iterdir() if entry.name not in (*_OURS, *_INNER)]
    inner = [
        entry for name in _INNER if (folder / name).is_dir() for entry in (folder / name).iterdir()
    ]
    # Checkpoints in writing and those that are being replaced: `Work.sweep` removes them.
    # Policies of first stages are trained again if they are gone.
    return [
        entry for entry in (*outer, *inner) if not entry.name.startswith((".tmp", ".old-", STAGES))
    ]


@dataclass
class Backup:
    """Counts and faults of a copy of a study."""

    events: int = 0
    checkpoints: int = 0
    logs: int = 0
    notes: list[str] = field(default_factory=list)


def backup(folder: Path, target: Path, until: int | None = None) -> Backup:
    """Copy the study in `folder` to `target`.

    The copy appears whole or not at all, and `folder` is not written to.

    Args:
        folder: of the study; its driver may be at work.
        target: the copy; must not exist.
        until: copy this many events only, with tables derived from them anew; default all, and then
            the study must be whole but for its checkpoints and its study file.

    Raises:
        InputError: there is no study, its log is damaged up to `until`, or the target exists or
            cannot be written.
    """
    free_output(target)
    check_database_file(folder)
    try:
        with whole_folder(target) as scratch:
            shutil.copymode(folder, scratch)
            return _write(folder, scratch, until)
    except sqlite3.Error as error:
        message = f"cannot be copied ({one_line(error)})"
        raise InputError(message, file=str(folder / DATABASE)) from error


def _write(folder: Path, scratch: Path, until: int | None) -> Backup:
    made = Backup()
    copied = dict[SegmentId, str]()
    vanished = dict[SegmentId, str]()
    while True:
        with closing(_log(folder, until)) as log:
            last = check_chain(log).head.seq
            saved, ended = saved_checkpoints(log, last)
            problems = _copy_checkpoints(folder, scratch, saved, copied)
            if until is None and set(problems) - set(vanished):
                vanished = problems  # named by an older log than the one that is looked at next
                continue
            for segment in copied.keys() - saved.keys():  # given up while the others were copied
                shutil.rmtree(scratch / copied.pop(segment))
            with closing(sqlite3.connect(scratch / DATABASE, isolation_level=None)) as database:
                log.backup(database)
            _write_study_file(folder, scratch, log, made)
            made.events = last
            made.checkpoints = len(copied)
            made.logs = _copy_logs(folder, scratch, ended)
            made.notes += [
                f"checkpoint {segment} is left out: {problem}"
                for segment, problem in problems.items()
            ]
            return made


def _log(folder: Path, until: int | None) -> sqlite3.Connection:
    """Read a whole log into memory.

    It has all events as they are, or the first `until` with their tables derived anew.
    """
    with closing(snapshot(folder / DATABASE)) as connection:
        check_recorded(folder, connection)
        if until is None:
            return rebuilt(connection, check_database(connection, folder / DATABASE).seq)
        n_whole = check_chain(connection).head.seq
        if not 1 <= until <= n_whole:
            raise InputError(
                f"expected 1 to {n_whole}, the events that are whole, got {until}", key="--until"
            )
        return rebuilt(connection, until)


def _copy_checkpoints(
    folder: Path, scratch: Path, saved: Mapping[SegmentId, Checkpoint], copied: dict[SegmentId, str]
) -> dict[SegmentId, str]:
    """Copy the checkpoints that are not in `copied`, and add their paths.

    Returns:
        Faults of the others, by segment.
    """
    problems = {}
    storage = storage_of(folder)
    for segment, checkpoint in saved.items():
        if segment in copied or Path(checkpoint.path).is_absolute():
            continue
        source = folder / checkpoint.path
        target = scratch / checkpoint.path
        if not stays_inside(checkpoint.path):
            problems[segment] = checkpoint_damage(folder, checkpoint) or ""
            continue
        try:
            if source.is_dir() or storage is None:
                _copy_folder(source, target)
                problem = None
            else:
                target.mkdir(parents=True)
                problem = RemoteFolder(f"{storage}/{checkpoint.path}").fetch(
                    target, checkpoint.files
                )
            problem = problem or checkpoint_damage(scratch, checkpoint)
        except FileNotFoundError:
            problem = "the folder is missing"
        if problem is None:
            copied[segment] = checkpoint.path
        else:
            problems[segment] = problem
            shutil.rmtree(target, ignore_errors=True)
    return problems


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder of files.

    Raises:
        FileNotFoundError: a part of it was deleted meanwhile.
    """
    names = _names(source)
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir() and not (source / name).is_symlink():
            (target / name).mkdir(exist_ok=True)
        else:
            # No hard link: one damage would then be of the study and of its copy.
            shutil.copy2(source / name, target / name, follow_symlinks=False)
    target.mkdir(parents=True, exist_ok=True)
    # A checkpoint deleted while it is entries would pass for a smaller one that is whole.
    if _names(source) != names:
        raise FileNotFoundError(source)


def _names(folder: Path) -> list[str]:
    """List everything below a folder, parents first."""

    def fail(error: OSError) -> None:
        raise error

    # `os.walk` passes over a folder that it cannot list, unless it is told to fail.
    return sorted(
        (Path(parent) / name).relative_to(folder).as_posix()
        for parent, folders, files in os.walk(folder, onerror=fail)
        for name in (*folders, *files)
    )


def _copy_logs(folder: Path, scratch: Path, segments: Collection[str]) -> int:
    """Copy what segments that have ended printed, and their training logs.

    Segments under way print into a log of their own later.

    Returns:
        How many have printed something.
    """
    entries = sorted((folder / "logs").glob("*"))
    matches = [(log, SEGMENT_NAME.fullmatch(log.name)) for log in entries]
    # By the names that lie there: a database may be a stranger's, and name what leads elsewhere.
    ended = [
        (log, bool(match["log"]))
        for log, match in matches
        if match is not None and match["segment"] in segments
    ]
    printed = [log for log, is_log in ended if is_log and log.is_file()]
    folders = [log for log, is_log in ended if not is_log and log.is_dir() and not log.is_symlink()]
    if printed or folders:
        (scratch / "logs").mkdir()
    for log in printed:
        shutil.copy2(log, scratch / "logs" / log.name)
    for log in folders:
        shutil.copytree(log, scratch / "logs" / log.name, symlinks=True)
    return len(printed)


def _write_study_file(folder: Path, scratch: Path, log: sqlite3.Connection, made: Backup) -> None:
    """Write the study file as it is, if it is the study's.

    Otherwise as the log holds it.
    """
    file = folder / STUDY_FILE
    recorded = StudyTables.of(log).study_file()
    try:
        text = file.read_text(encoding="utf-8")
        check_unchanged(recorded, text, file)
    except (OSError, UnicodeDecodeError, InputError):
        text = recorded.text
        if MASK in text:
            made.notes.append(
                f"the log holds no secrets: put them in the copy's {STUDY_FILE} where it says "
                f"{MASK}"
            )
        made.notes.append(
            f"{STUDY_FILE} was changed or is missing: the copy has the one the study began with"
        )
    (scratch / STUDY_FILE).write_text(with_storage(text, None), encoding="utf-8")
