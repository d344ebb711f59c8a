"""The store of one study: a folder that keeps everything.

    study.yaml      the study file as it was when the study began, never rewritten
    study.sqlite    WAL, one writer. `event` is append-only and chained by hashes (`integrity.py`).
                    Its first row holds the study file, and the other tables are derived from
                    it (`schema.py`).
    checkpoints/    one folder per saved segment, `SEGMENT-EPOCH-ATTEMPT`; `.tmp-` before the
                    name while the attempt runs, `damaged` for those set aside
    logs/           what each segment printed, its beginning and its end (`log_files.py`)

The driver is the only writer. A `Store` without a folder lives in memory (the embedded `Tuner`).
Only the thread that opened a store may use it, as SQLite demands of a connection.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autorl.core.plain_text import one_line
from autorl.core.signals import held
from autorl.core.types import InputError, StorageError, StudyError
from autorl.store import integrity, schema, study_file
from autorl.store.codec import body_of, dumps, read_event
from autorl.store.events import CheckpointRegained, SegmentEnded, StudyEvent
from autorl.store.folder import (
    DATABASE,
    STUDY_FILE,
    check_database_file,
    check_free,
    check_recorded,
    no_study,
    remove_unstarted,
)
from autorl.store.integrity import Head, event_hash
from autorl.store.lock import FolderLock
from autorl.store.log import E, EventLog, Recorded, add_event, recorded_until, saved_checkpoint
from autorl.store.offsite import CHECKPOINTS, Offsite
from autorl.store.outputs import refuse_inside, write_whole
from autorl.store.remote import is_url

__all__ = ["DATABASE", "STUDY_FILE", "Recorded", "Store"]


@dataclass(frozen=True)
class _Entry:
    """An event that will stand in the log.

    `text` is its body as JSON, which is None in memory until the event is written.
    """

    event: StudyEvent
    time: float
    text: str | None


@dataclass
class _Batch:
    """The events of a batch that are not in the log yet.

    With them, the actions that wait until they are.
    """

    entries: list[_Entry] = field(default_factory=list)
    actions: list[Callable[[], None]] = field(default_factory=list)


class Store:
    """Append-only record of one study.

    Use `create`, `open` or `in_memory`, and close it when done.

    Attributes:
        offsite: the storage that the study's checkpoints lie in; None: its folder.

    Args:
        head: the last event of the log, which the next one is chained to. A reader, which appends
            nothing, gives none.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        folder: Path | None,
        lock: FolderLock | None,
        head: Head | None = None,
    ) -> None:
        # Workers have working folders of their own, and a Python function may change the driver's.
        self.folder = None if folder is None else folder.resolve()
        self.offsite: Offsite | None = None
        self._connection = connection
        self._head = head or Head()
        self._batch: _Batch | None = None
        self._unread: list[_Entry] = []
        self._behind = False  # a batch could not be written: the log lacks what its events changed
        # A reader, which has no lock, does not mind when the file loses its name.
        self._file = None if self.folder is None or lock is None else self.folder / DATABASE
        self._identity = self._file and _identity(self._file)
        self._thread = threading.get_ident()
        self._lock = lock
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def create(cls, folder: Path, study_text: str, space_hash: str) -> Store:
        """Start a study in `folder`, which must not hold one yet.

        The database comes first, with the study file in its first event: where there is a study
        file, there is a log.

        Args:
            folder: of the study; made if it does not exist.
            study_text: the study file.
            space_hash: of the search space it describes.

        Raises:
            InputError: the folder already holds a study, holds other files, lies in a study or a
                landscape, or cannot be written.
        """
        try:
            refuse_inside(folder)
            folder.mkdir(parents=True, exist_ok=True)
            check_free(folder)
            with ExitStack() as undo:
                lock = FolderLock(folder)
                undo.callback(lock.release)
                check_free(folder)  # again: another driver may have come and gone
                remove_unstarted(folder)
                store = cls(_connect(folder / DATABASE), folder, lock)
                undo.callback(store._connection.close)
                schema.create(store._connection)
                store.append(study_file.study_begun(study_text, space_hash))
                write_whole(folder / STUDY_FILE, study_text)
                undo.pop_all()
        except OSError as error:
            raise InputError(f"cannot be written ({error.strerror})", file=str(folder)) from error
        # A full disk: what there is holds no study and is begun anew.
        except (sqlite3.Error, StudyError) as error:
            raise InputError(
                "cannot be written (the disk is full, or not writable)", file=str(folder)
            ) from error
        return store

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Take up the study in `folder`.

        Its log and tables must be whole, and its study file the one it began with.

        Raises:
            InputError: there is no study, another driver works on it, its files cannot be read or
                written, its record is missing or damaged, or its study file was changed.
        """
        file = folder / STUDY_FILE
        if not file.is_file():
            raise no_study(folder)
        check_database_file(folder)
        try:
            with ExitStack() as undo:
                lock = FolderLock(folder)
                undo.callback(lock.release)
                connection = _connect(folder / DATABASE)
                undo.callback(connection.close)
                check_recorded(folder, connection)
                head = integrity.check_database(connection, folder / DATABASE)
                store = cls(connection, folder, lock, head)
                text = file.read_text(encoding="utf-8")
                recorded = store.log.study_file()
                study_file.check_unchanged(recorded, text, file)
                undo.pop_all()
        except OSError as error:
            raise InputError(f"cannot be written ({error.strerror})", file=str(folder)) from error
        except (sqlite3.Error, ValueError) as error:
            raise InputError(f"cannot be used ({one_line(error)})", file=str(folder)) from error
        return store

    @classmethod
    def in_memory(cls) -> Store:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        schema.create(connection)
        return cls(connection, None, None)

    def check_thread(self) -> None:
        """Refuse any other thread than the one that opened the store.

        Raises:
            StudyError: in any other thread.
        """
        if threading.get_ident() != self._thread:
            raise StudyError(
                "a study belongs to the thread that opened it: train in other threads, but call "
                "its methods "
                "(of a Tuner: ask, tell and the rest) from that one"
            )

    def append(self, event: StudyEvent) -> None:
        """Record one event durably, with the tables derived from it.

        Both are done in one transaction. Inside `batch` that is the one at its end.

        Raises:
            StudyError: the disk is full or the folder has become unwritable, or this is another
                thread. Nothing of the event is kept, everything before it is.
        """
        self.check_thread()
        if self._behind:
            raise StudyError(f"{self.folder}: an earlier write failed: open the study again")
        event = _with_path(event, self.relative)
        text = None if self.folder is None else dumps(body_of(event))
        # The column holds floats, and the hash is of what it holds.
        entry = _Entry(event, float(time.time()), text)
        if self._batch is None:
            self._write([entry])
        else:
            self._batch.entries.append(entry)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make the events of the block durable at once, at its end.

        They become one transaction, with one wait for the disk. `when_durable` is held back until
        then. An exception in the block passes on when the events before it are
        durable. A batch inside another is a part of it.

        Raises:
            StudyError: the events cannot be written. None of them is kept, nothing that waited for
                them is done, and nothing more is recorded: whoever applied them is ahead of the
                log.
        """
        if self._batch is not None:
            yield
            return
        self._batch = _Batch()
        try:
            yield
        finally:
            try:
                self._flush()
            finally:
                self._batch = None

    def when_durable(self, action: Callable[[], None]) -> None:
        """Call `action` as soon as every event so far is durable.

        That is at once, but for inside `batch`.
        """
        if self._batch is None:
            action()
        else:
            self._batch.actions.append(action)

    def _flush(self) -> None:
        """Write what the batch holds, and do what waited for it."""
        # Again, where an action has recorded more.
        while (batch := self._batch) is not None and (batch.entries or batch.actions):
            self._batch = _Batch()
            if batch.entries:
                self._behind = True
                # A signal in the middle would take the transaction back, and the batch were lost.
                with held():
                    self._write(batch.entries)
                    self._behind = False
            for action in batch.actions:
                action()

    def _write(self, entries: Sequence[_Entry]) -> None:
        """Write events.

        In memory, where nothing outlives the process, as soon as somebody reads.
        """
        if self.folder is None:
            self._unread += entries
        else:
            self._commit(entries)

    def _commit(self, entries: Sequence[_Entry]) -> None:
        """Write events and their tables in one transaction."""
        head = self._head
        with self._answering():
            try:
                # The write lock first: nobody comes between the look at the last event and the
                # next.
                self._connection.execute("BEGIN IMMEDIATE")
                self._check_alone()
                for entry in entries:
                    kind = entry.event.kind
                    text = entry.text or dumps(body_of(entry.event))
                    seq = head.seq + 1
                    link = event_hash(head.hash, seq, kind.encode(), text.encode(), entry.time)
                    add_event(self._connection, seq, kind, text, entry.time, link)
                    head = Head(seq, link)
                    # As it is stored: tables follow from the log and from nothing besides.
                    schema.apply(self._connection, seq, read_event(kind, json.loads(text)))
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        self._head = head
        # A file that was removed takes writes without an error.
        if self._file is not None and _identity(self._file) != self._identity:
            raise StudyError(
                f"{self._file}: was removed, moved or replaced while the study ran: this driver "
                "stops, what it writes from now on would be lost"
            )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn what the disk answers SQLite into a `StorageError`."""
        try:
            yield
        except sqlite3.OperationalError as error:
            file = (self.folder or Path()) / DATABASE
            raise StorageError(f"{file} cannot be read or written ({error})") from error

    def _check_alone(self) -> None:
        """Refuse a log that somebody else has written to.

        There are two drivers then, on a disk that knows no locks.

        Raises:
            StudyError: the last event is not the one this driver wrote.
        """
        last = EventLog.of(self._connection).last_number()
        if last != self._head.seq:
            raise StudyError(
                f"{self.folder}: another process has written to this study (event {last} after our "
                f"{self._head.seq}): this driver stops, what was recorded is kept"
            )

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Read the events after number `after`, in the order they were recorded.

        Raises:
            InputError: the log is damaged.
        """
        self.check_thread()
        last = self.log.last_number()
        try:
            with self._answering():
                for seq, event, when in recorded_until(self._connection, last, after=after):
                    yield Recorded(seq, self.located(event), when)
        except (sqlite3.DatabaseError, ValueError) as error:
            raise InputError(
                f"is damaged ({error})", file=str((self.folder or Path()) / DATABASE)
            ) from error

    def located(self, event: E) -> E:
        """Return an event of the log with its checkpoint's real path."""
        return _with_path(event, self.locate)

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Run read-only SQL over the event log and the derived tables."""
        self.check_thread()
        self._flush()  # inside a batch: what was recorded is read
        if self._unread:
            self._commit(self._unread)
            self._unread = []
        with self._answering():
            return self._connection.execute(sql, parameters).fetchall()

    @property
    def log(self) -> EventLog:
        """The log, to be asked."""
        return EventLog(self.query)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints.

        For a store in memory it is a temporary folder that goes with it.
        """
        if self.folder is not None:
            return self.folder / "checkpoints"
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="autorl-")
        return Path(self._scratch.name)

    def relative(self, path: str) -> str:
        """Return `path` as it is stored.

        It is relative to the folder or the storage if inside, so that both can be moved.
        """
        if self.offsite is not None and path.startswith(f"{self.offsite.url}/"):
            return path.removeprefix(f"{self.offsite.url}/")
        if self.folder is not None:
            # A caller of `Tuner.tell` may give a relative one.
            for full in (Path(path), Path(path).absolute()):
                if full.is_relative_to(self.folder):
                    return full.relative_to(self.folder).as_posix()
        return path

    def locate(self, stored: str) -> str:
        """Return the path of a stored one: the inverse of `relative`."""
        if self.folder is None:
            return stored
        url = None if self.offsite is None else self.offsite.url
        return located(stored, self.folder, url)

    def owns(self, path: str | Path) -> bool:
        """Say whether `path` is one of the study's checkpoints.

        Others belong to the caller. A database of somebody else may name any path,
        `checkpoints/../..` too: what is owned may be moved and deleted.
        """
        if isinstance(path, str) and is_url(path):
            folder, _, name = path.rpartition("/")
            is_ours = self.offsite is not None and folder == f"{self.offsite.url}/{CHECKPOINTS}"
            return is_ours and name not in ("", ".", "..")
        place = Path(path)
        return place.parent == self.checkpoints and place.name not in ("", ".", "..")

    def copy_to(self, file: Path) -> None:
        """Copy the database as it is now to a new file, whole."""
        self.check_thread()
        with closing(sqlite3.connect(file, isolation_level=None)) as copy:
            self._connection.backup(copy)
            # A copy is one file: no log lies beside it.
            copy.execute("PRAGMA journal_mode = DELETE")

    def close(self) -> None:
        self.check_thread()
        self._connection.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        if self._lock is not None:
            self._lock.release()


def _with_path(event: E, change: Callable[[str], str]) -> E:
    """Change the path of the checkpoint that an event tells of.

    Any other event stays as it is.
    """
    saved = saved_checkpoint(event)
    if saved is None:
        return event
    moved = replace(saved, path=change(saved.path))
    if isinstance(event, SegmentEnded):
        return replace(event, outcome=replace(event.outcome, checkpoint=moved))
    assert isinstance(event, CheckpointRegained)
    return replace(event, checkpoint=moved)


def located(stored: str, folder: Path, storage: str | None) -> str:
    """Return the path or the URL of a checkpoint.

    `stored` is what the log says. The checkpoint is in `folder` where it lies there: a study may
    have been given a storage later.
    """
    if os.path.isabs(stored) or is_url(stored):
        return stored
    path = os.path.join(folder, stored)  # no `Path`: a log has ten thousand of them
    elsewhere = storage is not None and not os.path.exists(path)
    return f"{storage}/{stored}" if elsewhere else path


def shown_folder(folder: Path) -> str:
    """Name a folder as somebody in the working folder does."""
    with suppress(ValueError, OSError):  # it lies elsewhere, or there is no working folder any more
        return str(folder.relative_to(Path.cwd()))
    return str(folder)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        # Closed also where SQLite refuses the file: until the garbage collector came by, the
        # connection would leave its log beside the database.
        with ExitStack() as undo:
            # With `isolation_level=None` the module begins no transaction of its own.
            connection = sqlite3.connect(path, isolation_level=None, timeout=30)
            undo.callback(connection.close)
            connection.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the driver
            # With NORMAL a power loss takes the last transactions of a write-ahead log.
            connection.execute("PRAGMA synchronous = FULL")
            undo.pop_all()
    except sqlite3.Error as error:
        raise InputError(f"cannot be used ({one_line(error)})", file=str(path)) from error
    return connection


def _identity(file: Path) -> tuple[int, int] | None:
    """Identify a file beyond its name, None where there is none."""
    try:
        status = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
