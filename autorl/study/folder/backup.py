"""Copies a study, also while it runs, to be resumed elsewhere.

The log is copied first, in one read transaction, then the checkpoints it names. The driver records
that it gives a checkpoint up before it deletes it: one that vanishes meanwhile is no longer named
by a newer log, which is then taken.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from autorl.core.masking import MASK
from autorl.core.plain_text import one_line
from autorl.core.types import Checkpoint, InputError, SegmentId
from autorl.store.checkpoints import stays_inside, sync_tree
from autorl.store.folder import DATABASE, STUDY_FILE, check_database_file, check_recorded
from autorl.store.integrity import check_chain, check_database, rebuilt, saved_checkpoints
from autorl.store.outputs import free_output
from autorl.store.remote import RemoteFolder
from autorl.store.snapshot import snapshot
from autorl.store.study_file import check_unchanged
from autorl.store.tables import StudyTables
from autorl.study.folder.checks import SEGMENT_NAME, storage_of, with_storage
from autorl.study.folder.verify import checkpoint_damage


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
    scratch: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target: a rename is one step within a file system only.
        scratch = Path(tempfile.mkdtemp(prefix=f".tmp-{target.name}-", dir=target.parent))
        # `mkdtemp` makes folders that only their owner can open.
        shutil.copymode(folder, scratch)
        made = _write(folder, scratch, until)
        # Before the rename, so that a power loss leaves no copy with the name and without the
        # content.
        sync_tree(scratch)
        scratch.rename(target)
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror or one_line(error)})", file=str(target)
        ) from error
    except sqlite3.Error as error:
        raise InputError(
            f"cannot be copied ({one_line(error)})", file=str(folder / DATABASE)
        ) from error
    finally:
        if scratch is not None:
            # It is not there any more once it was renamed.
            shutil.rmtree(scratch, ignore_errors=True)
    return made


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
    # A checkpoint deleted while it is listed would pass for a smaller one that is whole.
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
