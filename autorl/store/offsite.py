"""The files of a study in its storage, and who may write.

    study.yaml                     the study file
    backups/EPOCH-EVENTS.sqlite    copies of the database, whole
    backups/EPOCH.json             the copies of an epoch, the newest first: written after them
    checkpoints/NAME/              `autorl.store.remote`; NAME is SEGMENT-EPOCH-ATTEMPT
    checkpoints/damaged/           those set aside
    lease/                         `autorl.store.lease`

The database in use stays on the driver's own disk: SQLite needs locks that buckets do not have. The
newest copy is the first of the highest epoch, so a driver that was taken over and still writes
changes nothing that others read.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from autorl.core.types import InputError, StorageError
from autorl.store.checkpoints import DAMAGED
from autorl.store.folder import DATABASE, STUDY_FILE
from autorl.store.lease import Lease, current_holder, refuse_other_study
from autorl.store.remote import MANIFEST, RemoteFolder, shown_url

CHECKPOINTS = "checkpoints"
BACKUP_SECONDS = 60.0
_BACKUPS = "backups"
_MOST_COPIES = 2
_NAME = re.compile(r"[^/]+-(\d+)-\d+")


class Database(Protocol):
    """The database that is copied: a `Store`."""

    folder: Path | None

    def identity(self) -> str: ...
    def last_number(self) -> int: ...
    def hash_of(self, seq: int) -> str: ...
    def last_epoch(self) -> int: ...
    def copy_to(self, file: Path) -> None: ...


@dataclass(frozen=True)
class DatabaseCopy:
    """A copy of the database in a storage.

    Attributes:
        study: identity of the study (`Database.identity`).
        events: number of its last event.
        head: hash of that event.
        file: its name in the storage.
        sha256: of the file.
    """

    study: str
    events: int
    head: str
    file: str
    sha256: str


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
        self._copies: list[DatabaseCopy] = []
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
        lease = Lease.take(folder, store.identity(), store.last_epoch())
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
        last = store.last_epoch()
        if last >= self._lease.epoch:
            self._lease.check()
            self._lease.release()
            self._lease = Lease.take(self._folder, store.identity(), last)
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
        events = store.last_number()
        if self._copies and self._copies[0].events == events:
            return
        name = f"{_BACKUPS}/{self.epoch}-{events}.sqlite"
        with tempfile.TemporaryDirectory(prefix="autorl-") as scratch:
            file = Path(scratch) / DATABASE
            store.copy_to(file)
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            self._folder.send(file, name)
        copy = DatabaseCopy(store.identity(), events, store.hash_of(events), name, digest)
        copies = [copy, *self._copies][:_MOST_COPIES]
        self._lease.check()
        listed = json.dumps([asdict(item) for item in copies], sort_keys=True).encode()
        self._folder.write(f"{_BACKUPS}/{self.epoch}.json", listed)
        self._copies = copies
        self._remove_old_copies()

    def _remove_old_copies(self) -> None:
        """Remove copies, and lists of copies, that are not this epoch's newest."""
        spared = {copy.file for copy in self._copies} | {f"{_BACKUPS}/{self.epoch}.json"}
        for name in self._folder.below(_BACKUPS).objects():
            epoch = re.match(r"\d+", name)
            stored = f"{_BACKUPS}/{name}"
            # Those of a higher epoch are of a driver that has come meanwhile.
            if epoch is not None and int(epoch[0]) <= self.epoch and stored not in spared:
                self._folder.remove(stored)

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
            Where it lies then, for people.

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

    def sweep(self, saved: Collection[str], running: Collection[str] = ()) -> None:
        """Delete checkpoints that nothing will name.

        They are half written, given up by the log, or were saved after the last copy of a database
        that was lost: what they are of is trained again.

        Args:
            saved: URLs that the log names.
            running: URLs that segments under way write.

        Raises:
            StudyError: another driver has taken over: nothing is deleted.
            StorageError: the storage does not answer.
        """
        spared = {*saved, *running}
        stored = (self.checkpoint_url(name) for name in checkpoint_names(self._folder))
        self.remove([url for url in stored if url not in spared and self._is_earlier(url)])

    def _is_earlier(self, url: str) -> bool:
        """Say whether a checkpoint is of this epoch or of one before."""
        name = _NAME.fullmatch(url.rpartition("/")[2])
        return name is not None and int(name[1]) <= self.epoch


def _refuse_diverged(folder: RemoteFolder, store: Database) -> None:
    """Refuse a storage whose newest copy this log does not continue.

    Such a copy has events that the log does not have.

    Raises:
        InputError: it is of another study, or another driver has gone on with it.
    """
    copies = database_copies(folder)
    if not copies:
        return
    refuse_other_study(folder, copies[0].study, store.identity())
    if store.hash_of(copies[0].events) != copies[0].head:
        raise InputError(
            f"{shown_url(folder.url)} has gone on from another folder, with events that are not in "
            f"{store.folder}: `autorl resume NEW --storage {shown_url(folder.url)}` makes a folder "
            "of it and goes on there",
            key="storage",
        )


def database_copies(folder: RemoteFolder) -> list[DatabaseCopy]:
    """List the copies of the database in a storage, the newest first.

    Raises:
        InputError: their list cannot be read.
        StorageError: the storage does not answer.
    """
    names = (name.removesuffix(".json") for name in folder.below(_BACKUPS).objects())
    epochs = [int(name) for name in names if name.isdecimal()]
    if not epochs:
        return []
    name = f"{_BACKUPS}/{max(epochs)}.json"
    try:
        copies = [DatabaseCopy(**entry) for entry in json.loads(folder.read(name) or b"[]")]
    except (ValueError, TypeError):
        raise InputError(f"{shown_url(folder.url)}: {name} cannot be read", key="storage") from None
    return [copy for copy in copies if re.fullmatch(rf"{_BACKUPS}/[\d-]+\.sqlite", copy.file)]


def checkpoint_names(folder: RemoteFolder, *, whole: bool = False) -> Iterator[str]:
    """Name the checkpoints in a storage, but for damaged ones.

    `whole`: only those with a manifest.
    """
    names = folder.below(CHECKPOINTS).objects()
    places = {name.partition("/")[0] for name in names if "/" in name} - {DAMAGED}
    for place in sorted(places):
        if not whole or f"{place}/{MANIFEST}" in names:
            yield place


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
