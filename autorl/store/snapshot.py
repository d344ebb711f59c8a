"""Reads a study's database while its driver may be writing it.

A copy lies in memory, nothing is left behind, and no file beside the database is touched.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote


def snapshot(path: Path) -> sqlite3.Connection:
    """Copy the database as it is now into memory.

    It is done in one read transaction; the file is let go at once.

    If no driver has a log open, SQLite is told so: otherwise even a reader leaves an empty log
    behind, or cannot read a read-only folder.
    """
    log = path.with_name(f"{path.name}-wal")
    copy = None
    if not log.exists():
        copy = _copied_alone(path, log)
    if copy is None:  # there is a log, or a driver began one meanwhile
        copy = _copied_with_log(path, log)
    return copy


def _copied_alone(path: Path, log: Path) -> sqlite3.Connection | None:
    """Copy a database without a log into memory.

    The result is None when a driver began to write.
    """
    try:
        copy = _copied(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError:
        if log.exists():
            return None
        raise
    # A log that is there by now: pages may have changed while they were copied.
    return None if log.exists() else copy


def _copied_with_log(path: Path, log: Path) -> sqlite3.Connection:
    """Copy a database with its log into memory.

    A reader writes to `-shm`, its index of the log, and makes one after a kill that left none. Told
    not to, SQLite reads a log with any `-shm`, of a killed driver too, but none without.
    """
    try:
        return _copied(path, "mode=ro&readonly_shm=1")
    except sqlite3.OperationalError:
        copy = _copied_elsewhere(path, log)
    return _copied(path, "mode=ro") if copy is None else copy


def _copied_elsewhere(path: Path, log: Path) -> sqlite3.Connection | None:
    """Copy a database whose log nobody writes to.

    The result is None when a process wrote meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="autorl-") as scratch:
        before = _written(path, log)
        try:
            for file in (path, log):
                shutil.copyfile(file, Path(scratch) / file.name)
        except FileNotFoundError:  # a driver that ends removes the log
            return None
        if _written(path, log) != before:
            return None
        return _copied(Path(scratch) / path.name, "mode=ro")


def _written(*files: Path) -> list[tuple[int, int, int]]:
    """Return what changes when one of the files is written to."""
    statuses = [os.stat(file) for file in files if file.exists()]
    return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses]


def _copied(path: Path, access: str) -> sqlite3.Connection:
    """Copy a database into memory, opened as `access` says."""
    address = f"file:{quote(str(path.resolve()))}?{access}"
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=30)) as source:
            source.backup(copy)
    except BaseException:
        copy.close()
        raise
    return copy
