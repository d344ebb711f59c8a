"""Reads a study's database while its driver may be writing it.

A copy lies in memory, nothing is left behind, and no file beside the database is touched.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote


def snapshot(path: Path) -> sqlite3.Connection:
    """Copy the database as it is now into memory.

    It is done in one read transaction; the file is let go at once.
    """
    log = path.with_name(f"{path.name}-wal")
    index = path.with_name(f"{path.name}-shm")
    if not log.exists():
        # Told so, SQLite leaves no empty log behind, and reads in a read-only folder.
        try:
            copy = _copied(path, "mode=ro&immutable=1")
        except sqlite3.DatabaseError:
            if not log.exists():
                raise
        else:
            if not log.exists():
                return copy
            copy.close()  # a driver began to write: pages may have changed while they were copied
    if not index.exists():  # which a driver has: nobody writes, and a reader would make it
        with tempfile.TemporaryDirectory(prefix="autorl-") as scratch, suppress(FileNotFoundError):
            for file in (path, log):  # a driver that ended meanwhile has removed its log
                shutil.copyfile(file, Path(scratch) / file.name)
            return _copied(Path(scratch) / path.name, "mode=ro")
    # Told not to write to it, SQLite reads a log with any index, of a killed driver too.
    return _copied(path, f"mode=ro{'&readonly_shm=1' if index.exists() else ''}")


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
