"""The lease on a storage: which driver may write to it.

    lease/EPOCH.json       who took it: created by put-if-absent, and written again by a thread of
                           its holder every few seconds

The highest epoch holds the lease. A driver that sees a higher one than its own stops before it
writes again. Between that look and a write another driver may come, so nothing that counts rests on
it: checkpoints and copies of the database have the epoch in their names.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import psutil
from pydantic import TypeAdapter

from autorl.core.os_processes import host_identity
from autorl.core.plain_text import one_line
from autorl.core.types import InputError, StorageError, StudyError
from autorl.store.remote import RemoteFolder, shown_url

RENEW_SECONDS = 20.0
EXPIRE_SECONDS = 120.0
_FOLDER = "lease"
_TRIES = 10  # epochs that others may take while this one is taking its own


@dataclass(frozen=True)
class Holder:
    """The driver that took an epoch, as its file describes it.

    Attributes:
        study: identity of its study.
        last_there: in seconds since 1970, by its clock.
        released: it has ended its session.
    """

    epoch: int = 0
    study: str = ""
    host: str = "?"
    pid: int = 0
    place: str = ""
    last_there: float = 0.0
    released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {one_line(self.host)}, epoch {self.epoch}"

    @property
    def seconds(self) -> float:
        """Seconds since it was last there, by the clock of this machine."""
        return max(0.0, time.time() - self.last_there)

    @property
    def gone(self) -> bool:
        """Say whether the driver has ended or its lease has expired.

        It expires when the driver has not been there for `EXPIRE_SECONDS`. The clocks of two
        machines may differ by less than that.
        """
        if self.released or self.seconds > EXPIRE_SECONDS:
            return True
        return self.place == host_identity() and not psutil.pid_exists(self.pid)


class Lease:
    """The lease of this process on a storage.

    It is renewed until it is released.

    Attributes:
        epoch: number of this driver's session on the study.
    """

    def __init__(self, storage: RemoteFolder, holder: Holder) -> None:
        self.epoch = holder.epoch
        self._storage = storage
        self._holder = holder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True, name="autorl-lease")
        self._thread.start()

    @classmethod
    def take(cls, storage: RemoteFolder, study: str, after: int = 0) -> Lease:
        """Take the next epoch of a storage.

        Args:
            storage: of the study.
            study: its identity.
            after: the epochs of the study's log, which the new one is above.

        Raises:
            InputError: another study or another driver holds it.
            StorageError: the storage does not answer.
        """
        for _ in range(_TRIES):
            refuse_other_study(storage, study)
            before = refuse_living_driver(storage, "storage")
            holder = Holder(
                1 + max(after, 0 if before is None else before.epoch),
                study,
                socket.gethostname(),
                os.getpid(),
                host_identity(),
                time.time(),
            )
            if storage.create(_name(holder.epoch), _text(holder)):
                return cls(storage, holder)
        raise InputError(
            f"{shown_url(storage.url)}: other drivers take this study over all the time",
            key="storage",
        )

    def check(self) -> None:
        """Stop a driver whose lease another has taken.

        Raises:
            StudyError: one line that names the other.
            StorageError: the storage does not answer.
        """
        holder = current_holder(self._storage)
        if holder is not None and holder.epoch > self.epoch:
            raise StudyError(
                f"{shown_url(self._storage.url)}: was taken over by another driver ({holder}): "
                "this one stops, and writes nothing there any more"
            )

    def release(self) -> None:
        """Say that this driver has ended.

        Another may take the lease at once.

        Raises:
            StorageError: the storage fails; others wait until the lease expires.
        """
        self.abandon()
        self._write(released=True)

    def abandon(self) -> None:
        """Stop to renew it, and say nothing."""
        self._over.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._over.wait(RENEW_SECONDS):
            # The next time may do: others wait for several. Other code checks the written lease.
            with suppress(StorageError):
                self._write(released=False)

    def _write(self, *, released: bool) -> None:
        holder = replace(self._holder, last_there=time.time(), released=released)
        self._storage.write(_name(self.epoch), _text(holder))


def current_holder(storage: RemoteFolder) -> Holder | None:
    """Return who took the highest epoch, None where nobody has taken any."""
    names = (name.removesuffix(".json") for name in storage.below(_FOLDER).objects())
    newest = max((int(name) for name in names if name.isdecimal()), default=0)
    if not newest:
        return None
    try:
        holder = TypeAdapter(Holder).validate_json(storage.read(_name(newest)) or b"{}")
    except ValueError:  # a lease appears with its content: one that cannot be read is of nobody
        holder = Holder()
    return replace(holder, epoch=newest)


def refuse_other_study(storage: RemoteFolder, study: str) -> None:
    """Refuse a storage that holds another study.

    Raises:
        InputError: it does.
    """
    holder = current_holder(storage)
    if holder is not None and holder.study and holder.study != study:
        raise InputError(
            f"{shown_url(storage.url)} holds another study: choose another folder", key="storage"
        )


def refuse_living_driver(storage: RemoteFolder, key: str) -> Holder | None:
    """Refuse a storage that a driver holds, and return its last holder.

    Raises:
        InputError: under a key; the driver lives.
    """
    holder = current_holder(storage)
    if holder is not None and not holder.gone:
        raise InputError(
            f"{shown_url(storage.url)}: another driver works on this study ({holder}, last there "
            f"{holder.seconds:.0f} s ago): stop it, or wait until it has been gone for "
            f"{EXPIRE_SECONDS:.0f} s",
            key=key,
        )
    return holder


def _name(epoch: int) -> str:
    return f"{_FOLDER}/{epoch}.json"


def _text(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()
