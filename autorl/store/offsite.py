"""The files of a study in its storage, and who may write.

    study.yaml                          the study file
    backups/EPOCH-EVENTS-HEAD.sqlite    copies of the database, by the hash of their last event
    checkpoints/NAME/                   `autorl.store.remote`; NAME is SEGMENT-EPOCH-ATTEMPT
    checkpoints/damaged/                those set aside
    lease/                              `autorl.store.lease`

The database in use stays on the driver's own disk: SQLite needs locks that buckets do not have. The
newest copy is that of the highest epoch, so a driver that was taken over and still writes changes
nothing that others read.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
import time
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from autorl.core.types import InputError, StorageError
from autorl.store.checkpoints import DAMAGED
from autorl.store.folder import DATABASE, STUDY_FILE
from autorl.store.integrity import check_chain
from autorl.store.lease import Lease, current_holder, refuse_other_study
from autorl.store.log import EventLog
from autorl.store.remote import RemoteFolder, shown_url

CHECKPOINTS = "checkpoints"
BACKUP_SECONDS = 60.0
_BACKUPS = "backups"
_MOST_COPIES = 2
_COPY = re.compile(r"(\d+)-(\d+)-([0-9a-f]+)\.sqlite")
_CHECKPOINT = re.compile(r"[^/]+-(\d+)-\d+")
_DIGITS = 16  # of a hash


class Database(Protocol):
    """The database that is copied: a `Store`."""

    folder: Path | None

    @property
    def log(self) -> EventLog: ...
    def copy_to(self, file: Path) -> None: ...


class DatabaseCopy(NamedTuple):
    """A copy of the database in a storage.

    Attributes:
        events: number of its last event.
        head: the first digits of the hash of that event.
    """

    epoch: int
    events: int
    head: str

    @property
    def file(self) -> str:
        """Its name in the storage."""
        return f"{_BACKUPS}/{self.epoch}-{self.events}-{self.head}.sqlite"


class Offsite:
    """The storage of a study whose lease this process holds.

    Args:
        folder: the storage.
        lease: held; `close` releases it.

    Attributes:
        url: of the storage.
    """

    def __init__(self, folder: RemoteFolder, lease: Lease) -> None:
        self.url = folder.url
        self._folder = folder
        self._lease = lease
        self._last_look = float("-inf")

    @classmethod
    def take(cls, url: str, store: Database) -> Offsite:
        """Take the lease on a storage for the study of `store`.

        Its study file is put there.

        Raises:
            InputError: it cannot be used or written, holds another study, another driver has it, or
                it has gone on from elsewhere.
            StorageError: it does not answer.
        """
        folder = RemoteFolder(url)
        folder.check_writable()
        # Before the lease, which would stop the driver that has gone on.
        _refuse_diverged(folder, store)
        log = store.log
        lease = Lease.take(folder, log.identity(), log.last_epoch())
        offsite = cls(folder, lease)
        try:
            # And again: its last copy may have come in between.
            _refuse_diverged(folder, store)
            if store.folder is not None:
                folder.write(STUDY_FILE, (store.folder / STUDY_FILE).read_bytes())
        except BaseException:
            offsite.let_go()
            raise
        return offsite

    @property
    def epoch(self) -> int:
        """The driver's session on the study, by the lease."""
        return self._lease.epoch

    def begin_session(self, store: Database) -> int:
        """Return the epoch of the session that begins now.

        It is that of the lease, unless a session of this process has had it: two sessions with one
        epoch would give two attempts one name.

        Raises:
            StudyError: another driver has taken over.
            StorageError: the storage does not answer.
        """
        log = store.log
        last = log.last_epoch()
        if last >= self._lease.epoch:
            self._lease.check()
            self._lease.release()
            self._lease = Lease.take(self._folder, log.identity(), last)
        return self._lease.epoch

    def close(self, store: Database) -> None:
        """Copy what was recorded since the last copy, and release the lease.

        Raises:
            StudyError: another driver has taken over: nothing is written.
            StorageError: it cannot be written.
        """
        try:
            self.back_up(store, at_once=True)
        except BaseException:
            self._lease.abandon()
            raise
        self._lease.release()

    def let_go(self) -> None:
        """Release the lease and write nothing else.

        The study could not be opened.
        """
        # Others wait until it expires.
        with suppress(StorageError):
            self._lease.release()

    # -- the database ------------------------------------------------------------------------------

    def back_up(self, store: Database, *, at_once: bool = False) -> None:
        """Copy the database where it has changed, every `BACKUP_SECONDS` at most.

        Raises:
            StudyError: another driver has taken over: nothing is written.
            StorageError: it cannot be written.
        """
        now = time.monotonic()
        if not at_once and now < self._last_look + BACKUP_SECONDS:
            return
        self._last_look = now
        # First: a driver that has nothing to write stops as well.
        self._lease.check()
        log = store.log
        events = log.last_number()
        copy = DatabaseCopy(self.epoch, events, log.hash_of(events)[:_DIGITS])
        copies = database_copies(self._folder)
        if copy in copies:
            return
        with tempfile.TemporaryDirectory(prefix="autorl-") as scratch:
            file = Path(scratch) / DATABASE
            store.copy_to(file)
            self._folder.send(file, copy.file)
        for old in sorted([copy, *copies], reverse=True)[_MOST_COPIES:]:
            self._folder.remove(old.file)

    # -- checkpoints -------------------------------------------------------------------------------

    def checkpoint_url(self, name: str) -> str:
        """Return the URL of the checkpoint that is called `name`."""
        return f"{self.url}/{CHECKPOINTS}/{name}"

    def remove(self, urls: Collection[str]) -> None:
        """Delete checkpoints.

        Raises:
            StudyError: another driver has taken over: nothing is deleted.
            StorageError: the storage does not answer.
        """
        if urls:
            self._lease.check()
        for url in urls:
            RemoteFolder(url).delete()

    def set_aside(self, url: str) -> str:
        """Move a damaged checkpoint to `damaged/` beside it.

        Returns:
            Its new place, for people.

        Raises:
            StudyError: another driver has taken over: nothing is moved.
            StorageError: the storage does not answer.
        """
        self._lease.check()
        name = url.rpartition("/")[2]
        target = self._folder.below(f"{CHECKPOINTS}/{DAMAGED}/{name}")
        if not RemoteFolder(url).move(target):
            return "there is no such folder"
        return f"moved to {shown_url(target.url)}"

    def sweep(self, saved: Collection[str]) -> None:
        """Delete checkpoints that nothing will name.

        They are half written, given up by the log, or were saved after the last copy of a database
        that was lost: what they are of is trained again.

        Args:
            saved: URLs that the log names.

        Raises:
            StudyError: another driver has taken over: nothing is deleted.
            StorageError: the storage does not answer.
        """
        stored = {self.checkpoint_url(name) for name in checkpoint_names(self._folder)}
        unnamed = {
            url: _CHECKPOINT.fullmatch(url.rpartition("/")[2]) for url in stored.difference(saved)
        }
        # Checkpoints of a higher epoch are of a driver that has come meanwhile.
        self.remove([url for url, name in unnamed.items() if name and int(name[1]) <= self.epoch])


def _refuse_diverged(folder: RemoteFolder, store: Database) -> None:
    """Refuse a storage whose newest copy this log does not continue.

    Such a copy has events that the log does not have.

    Raises:
        InputError: it is of another study, or another driver has gone on with it.
    """
    log = store.log
    refuse_other_study(folder, log.identity())
    copies = database_copies(folder)
    if copies and log.hash_of(copies[0].events)[:_DIGITS] != copies[0].head:
        raise InputError(
            f"{shown_url(folder.url)} has gone on from another folder, with events that are not in "
            f"{store.folder}: `autorl resume NEW --storage {shown_url(folder.url)}` makes a folder "
            "of it and goes on there",
            key="storage",
        )


def database_copies(folder: RemoteFolder) -> list[DatabaseCopy]:
    """List the copies of the database in a storage, the newest first.

    Raises:
        StorageError: the storage does not answer.
    """
    matches = map(_COPY.fullmatch, folder.below(_BACKUPS).objects())
    copies = [DatabaseCopy(int(m[1]), int(m[2]), m[3]) for m in matches if m is not None]
    return sorted(copies, reverse=True)


def fetch_database(folder: RemoteFolder, file: Path) -> None:
    """Copy the newest database that is whole.

    Raises:
        InputError: none is.
        StorageError: the storage does not answer.
    """
    for copy in database_copies(folder):
        if folder.receive(copy.file, file):
            with closing(sqlite3.connect(file)) as connection:
                head = check_chain(connection).head
            if head.seq == copy.events and head.hash.startswith(copy.head):
                return
    raise InputError(
        f"{shown_url(folder.url)}: no copy of the database there is whole", key="--storage"
    )


def checkpoint_names(folder: RemoteFolder) -> list[str]:
    """Name the checkpoints in a storage, but for damaged ones."""
    names = folder.below(CHECKPOINTS).objects()
    return sorted({name.partition("/")[0] for name in names if "/" in name} - {DAMAGED})


def check_free(url: str) -> None:
    """Check that a new study can begin in a storage.

    Raises:
        InputError: it cannot be used or written, or holds a study.
    """
    folder = RemoteFolder(url)
    folder.check_writable()
    # One that was killed at its start has left a lease alone.
    begun = current_holder(folder) is not None or folder.read(STUDY_FILE) is not None
    if begun or database_copies(folder):
        raise InputError(
            f"{shown_url(url)} holds a study already: go on with `autorl resume DIR --storage "
            f"{shown_url(url)}`, or choose another folder",
            key="storage",
        )
