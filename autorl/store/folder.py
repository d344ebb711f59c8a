"""Checks of what a study's folder must hold.

They are made before anybody reads it, goes on with it, or begins a study in it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from autorl.core.plain_text import listed, shown
from autorl.core.types import InputError
from autorl.store.events import StudyBegun
from autorl.store.log import EventLog

DATABASE = "study.sqlite"
STUDY_FILE = "study.yaml"
JOBS = "jobs"  # files of the jobs on Slurm, while a driver runs
LOCK_FILE = "study.lock"
_DATA = ("checkpoints", "logs")
_BESIDE = ("-wal", "-shm", "-journal")  # that SQLite lays beside a database
_ADVICE = (
    "what was recorded cannot be read, and nothing was changed: put the whole database back (with "
    "study.sqlite-wal, if "
    "there was one), or begin anew in another folder"
)


def no_study(folder: Path) -> InputError:
    """Refuse a folder that is not a study, naming the studies inside."""
    inside = sorted(str(file.parent) for file in folder.glob(f"*/{STUDY_FILE}"))
    near = f"; the studies in it: {listed(inside)}" if inside else ""
    return InputError(f"holds no study ({STUDY_FILE} is missing){near}", file=str(folder))


def holds_study(folder: Path) -> bool:
    """Say whether `folder` holds a study.

    Raises:
        InputError: its path is none, for example too long or with a null character.
    """
    try:
        (folder / STUDY_FILE).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot be a study's folder ({reason})", file=shown(str(folder))
        ) from None
    return True


def check_database_file(folder: Path) -> None:
    """Refuse a study whose database is missing or empty.

    Its record is lost. A study begins with its database, so `study.yaml` alone is never the state
    of one that has just begun.

    Raises:
        InputError: naming the database.
    """
    path = folder / DATABASE
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise lost_record(folder, "is missing") from None
    if size == 0:
        raise lost_record(folder, "is empty (0 bytes)")


def check_recorded(folder: Path, connection: sqlite3.Connection) -> None:
    """Refuse a database without events although the study has begun.

    That is a database whose write-ahead log was left behind when it was copied.

    Raises:
        InputError: naming the database.
    """
    log = EventLog.of(connection)
    if not (log.has_log() and log.kinds()):
        raise lost_record(folder, "holds no events")


def check_free(folder: Path) -> None:
    """Raise `InputError` when a new study cannot begin in `folder`, which exists."""
    if (folder / STUDY_FILE).exists():
        raise InputError(
            "already holds a study: use `autorl resume` to go on with it", file=str(folder)
        )
    strangers = sorted(entry.name for entry in folder.iterdir() if not _may_lie_there(entry))
    if strangers:
        raise InputError(
            f"is not empty ({strangers[0]}): a study needs a folder of its own", file=str(folder)
        )


def remove_unstarted(folder: Path) -> None:
    """Remove the database of a study killed without a study file.

    Raises:
        InputError: the database holds more than the beginning of a study, or cannot be read.
    """
    path = folder / DATABASE
    if path.exists() and path.stat().st_size > 0 and _has_begun(path):
        raise InputError(
            f"holds the {DATABASE} of a study whose {STUDY_FILE} is missing: `autorl backup` makes "
            "a copy with both",
            file=str(folder),
        )
    for name in (DATABASE, *(f"{DATABASE}{ending}" for ending in _BESIDE)):
        (folder / name).unlink(missing_ok=True)


def lost_record(folder: Path, problem: str) -> InputError:
    """Make the error for a lost record beside a study file.

    The database is missing or holds nothing.
    """
    return InputError(f"{problem}: {_ADVICE}", file=str(folder / DATABASE))


def _has_begun(path: Path) -> bool:
    """Say whether a database holds more than a study file.

    That is the beginning of a study.
    """
    try:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            log = EventLog.of(connection)
            return log.has_log() and bool(set(log.kinds()) - {StudyBegun.kind})
    except sqlite3.Error as error:
        raise InputError(f"cannot be used ({error})", file=str(path)) from error


def _may_lie_there(entry: Path) -> bool:
    """Say whether a new study may begin beside `entry`.

    It may be a database or scratch files that a killed start left.
    """
    if entry.name in _DATA:
        return not (entry.is_dir() and any(entry.iterdir()))
    # `.tmp`: a study file that was being written.
    return entry.name in (DATABASE, LOCK_FILE) or entry.name.startswith((f"{DATABASE}-", ".tmp"))
