"""The store of one study: a folder with the frozen study file, the event log, checkpoints and logs.

    study.yaml      the study file as it was when the study began; never rewritten
    study.sqlite    WAL, one writer; `event` is append-only, the other tables are derived from it (`schema.py`)
    checkpoints/    one folder per saved segment
    logs/           what each segment printed, its beginning and its end (`log_files.py`)

The driver is the only writer. A `Store` without a folder lives in memory (the embedded `Tuner`). Only the thread that
opened a store may use it, as SQLite demands of a connection.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorl.store import schema
from autorl.store.codec import dumps, loads
from autorl.store.lock import FolderLock
from autorl.types import FrozenMap, InputError, StudyError

DATABASE = "study.sqlite"
STUDY_FILE = "study.yaml"


@dataclass(frozen=True)
class Recorded:
    """One stored event: its place in the log, kind, body and the wall-clock time it was written."""

    seq: int
    kind: str
    body: FrozenMap
    time: float


class Store:
    """Append-only record of one study. Use `create`, `open` or `in_memory`; close it when done.

    `on_append` is called with (kind, body) after every durable event.
    """

    def __init__(self, connection: sqlite3.Connection, folder: Path | None, lock: FolderLock | None) -> None:
        self.folder = folder
        self.on_append: Callable[[str, Mapping[str, Any]], None] | None = None
        self._connection = connection
        self._thread = threading.get_ident()
        self._lock = lock
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def create(cls, folder: Path, study_file: str) -> Store:
        """Start a study in `folder`, which must not hold one yet.

        Raises:
            InputError: the folder already holds a study, holds other files, or cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            strangers = [entry.name for entry in folder.iterdir() if not _is_ours(entry.name)]
            if (folder / STUDY_FILE).exists():
                raise InputError("already holds a study: use `autorl resume` to go on with it", file=str(folder))
            if strangers:
                raise InputError(
                    f"is not empty ({sorted(strangers)[0]}): a study needs a folder of its own", file=str(folder)
                )
            lock = FolderLock(folder)
            _write_atomically(folder / STUDY_FILE, study_file)
        except OSError as error:
            raise InputError(f"cannot be written ({error.strerror})", file=str(folder)) from error
        return cls(_connect(folder / DATABASE), folder, lock)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Take up the study in `folder`.

        Raises:
            InputError: there is no study, another driver works on it, or its files cannot be read or written.
        """
        if not (folder / STUDY_FILE).is_file():
            raise InputError(f"holds no study ({STUDY_FILE} is missing)", file=str(folder))
        try:
            lock = FolderLock(folder)
        except OSError as error:
            raise InputError(f"cannot be written ({error.strerror})", file=str(folder)) from error
        try:
            return cls(_connect(folder / DATABASE), folder, lock)
        except InputError:
            lock.release()
            raise

    @classmethod
    def in_memory(cls) -> Store:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        schema.create(connection)
        return cls(connection, None, None)

    def check_thread(self) -> None:
        """Raise `StudyError` in any other thread than the one that opened the store."""
        if threading.get_ident() != self._thread:
            raise StudyError(
                "a study belongs to the thread that opened it: train in other threads, but call its methods "
                "(of a Tuner: ask, tell and the rest) from that one"
            )

    def append(self, kind: str, body: Mapping[str, Any]) -> None:
        """Record one event durably, with the tables derived from it, in one transaction.

        Raises:
            StudyError: the disk is full or the folder has become unwritable, or this is another thread. Nothing of the
                event is kept, everything before it is.
        """
        self.check_thread()
        text = dumps(body)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            row = (kind, text, time.time())
            inserted = self._connection.execute("INSERT INTO event (kind, body, time) VALUES (?, ?, ?)", row)
            assert inserted.lastrowid is not None
            schema.apply(self._connection, inserted.lastrowid, kind, body)
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise StudyError(
                f"{self.folder}: the study cannot be written ({error}); what was recorded is kept"
            ) from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if self.on_append is not None:
            self.on_append(kind, body)

    def events(self) -> Iterator[Recorded]:
        """Every event in the order it was recorded.

        Raises:
            InputError: the log is damaged.
        """
        self.check_thread()
        try:
            rows = self._connection.execute("SELECT seq, kind, body, time FROM event ORDER BY seq").fetchall()
            bodies = [loads(body) for _, _, body, _ in rows]
        except (sqlite3.DatabaseError, ValueError) as error:
            raise InputError(f"is damaged ({error})", file=str((self.folder or Path()) / DATABASE)) from error
        for (seq, kind, _, when), body in zip(rows, bodies, strict=True):
            yield Recorded(seq, kind, FrozenMap(body), when)

    def query(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Read-only SQL over the event log and the derived tables."""
        self.check_thread()
        return self._connection.execute(sql, parameters).fetchall()

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie; for a store in memory a temporary folder that goes with it."""
        if self.folder is not None:
            return self.folder / "checkpoints"
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="autorl-")
        return Path(self._scratch.name)

    def relative(self, path: str) -> str:
        """`path` as it is stored: relative to the folder if inside, so that a study can be moved."""
        if self.folder is not None and Path(path).is_relative_to(self.folder):
            return Path(path).relative_to(self.folder).as_posix()
        return path

    def locate(self, stored: str) -> str:
        """The inverse of `relative`."""
        return stored if self.folder is None or Path(stored).is_absolute() else str(self.folder / stored)

    def owns(self, path: Path) -> bool:
        """Whether `path` is one of the study's checkpoints (others belong to the caller)."""
        return path.is_relative_to(self.checkpoints)

    def close(self) -> None:
        self.check_thread()
        self._connection.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        if self._lock is not None:
            self._lock.release()


def _connect(path: Path) -> sqlite3.Connection:
    fresh = not path.exists() or path.stat().st_size == 0
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and (fresh or not schema.holds_events(connection)):
            schema.create(connection)
            version = schema.SCHEMA_VERSION
        if version < schema.SCHEMA_VERSION:
            schema.upgrade(connection)
    except (sqlite3.Error, ValueError) as error:
        raise InputError(f"cannot be used ({error})", file=str(path)) from error
    if version > schema.SCHEMA_VERSION:
        connection.close()
        raise InputError(
            f"was written by a newer autorl (schema {version}; this one reads up to {schema.SCHEMA_VERSION})",
            file=str(path),
        )
    return connection


def _is_ours(name: str) -> bool:
    ours = (DATABASE, STUDY_FILE, "study.lock", "checkpoints", "logs")
    return name in ours or name.startswith((f"{DATABASE}-", ".tmp"))


def _write_atomically(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
