"""Reads a study's database while its driver may be writing it.

A copy lies in memory, and nothing is left behind.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from autorl.store.log import EventLog
from autorl.store.schema import SCHEMA_VERSION, bring_up_to_date
from autorl.types import InputError


def snapshot(path: Path) -> sqlite3.Connection:
    """Copy the database as it is now into memory.

    It is done in one read transaction; the file is let go at once.

    Where no driver has a log open, SQLite is told so: otherwise even a reader leaves an empty log
    behind, or cannot read a read-only folder.
    """
    log = path.with_name(f"{path.name}-wal")
    copy = None
    if not log.exists():
        copy = _copied(path, log, immutable=True)
    if copy is None:  # there is a log, or a driver began one meanwhile
        copy = _copied(path, log, immutable=False)
    assert copy is not None
    (version,) = copy.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise InputError(
            f"was written by a newer autorl (schema {version}; "
            f"this one reads up to {SCHEMA_VERSION})",
            file=str(path),
        )
    # Its own tables are left as they are: only the copy has all.
    if version < SCHEMA_VERSION and EventLog.of(copy).has_log():
        try:
            bring_up_to_date(copy)
        except ValueError as error:
            raise InputError(f"is damaged ({error})", file=str(path)) from error
    return copy


def _copied(path: Path, log: Path, *, immutable: bool) -> sqlite3.Connection | None:
    """Copy a database into memory.

    None when it was taken as `immutable` and a driver began to write.
    """
    address = f"file:{quote(str(path.resolve()))}?mode=ro" + ("&immutable=1" if immutable else "")
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with closing(sqlite3.connect(address, uri=True, timeout=30)) as source:
        try:
            source.backup(copy)
        except sqlite3.DatabaseError:
            if immutable and log.exists():
                return None
            raise
    # A log that is there by now: pages may have changed while they were copied.
    return None if immutable and log.exists() else copy
