"""The lease on a storage: which driver may write to it.

    lease/EPOCH.json       who took it: written once, by put-if-absent, never changed
    lease/EPOCH.beat.json  that its holder was there: renewed by a thread every few seconds

The highest epoch holds the lease. A driver that sees a higher one than its own stops before it
writes again. Between that look and a write another driver may come, so nothing that counts rests on
it: checkpoints and copies of the database have the epoch in their names.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autorl.core.plain_text import printable, shortened
from autorl.core.types import InputError, StorageError, StudyError
from autorl.store.host import host_identity, lives
from autorl.store.remote import RemoteFolder, shown_url

RENEW_SECONDS = 20.0
EXPIRE_SECONDS = 120.0
_FOLDER = "lease"
_TRIES = 10  # epochs that others may take while this one is taking its own


@dataclass(frozen=True)
class Holder:
    """The driver that took an epoch, as it wrote itself down.

    Attributes:
        study: identity of its study.
        seconds: since it was last there, by the clock of this machine.
        released: it has ended its session.
    """

    epoch: int
    study: str = ""
    host: str = "?"
    pid: int = 0
    place: str = ""
    seconds: float = 0.0
    released: bool = False

    def __str__(self) -> str:
        host = printable(shortened(self.host), keep_lines=False)
        return f"process {self.pid} on {host}, epoch {self.epoch}"

    @property
    def gone(self) -> bool:
        """Say whether the driver has ended or its lease has expired.

        It expires when the driver has not been there for `EXPIRE_SECONDS`. The clocks of two
        machines may differ by less than that.
        """
        if self.released or self.seconds > EXPIRE_SECONDS:
            return True
        return self.place == host_identity() and not lives(self.pid)


class Lease:
    """The lease of this process on a storage.

    It is renewed until it is released.

    Attributes:
        epoch: number of this driver's session on the study.
    """

    def __init__(self, storage: RemoteFolder, epoch: int, study: str, token: str) -> None:
        self.epoch = epoch
        self._storage = storage
        self._study = study
        self._token = token
        self._over = threading.Event()
        self._write(released=False)
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
            holder = current_holder(storage)
            if holder is not None:
                refuse_other_study(storage, holder.study, study)
                if not holder.gone:
                    raise InputError(
                        f"{shown_url(storage.url)}: another driver works on this study ({holder}, "
                        f"last there {holder.seconds:.0f} s ago): stop it, or wait until it "
                        f"has been gone for {EXPIRE_SECONDS:.0f} s",
                        key="storage",
                    )
            epoch = 1 + max(after, 0 if holder is None else holder.epoch)
            token = secrets.token_hex(16)
            body = {
                "study": study,
                "epoch": epoch,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "place": host_identity(),
                "token": token,
                "time": time.time(),
            }
            if storage.create(f"{_FOLDER}/{epoch}.json", json.dumps(body).encode()):
                return cls(storage, epoch, study, token)
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
        newest = max(_epochs(self._storage), default=0)
        if newest <= self.epoch:
            return
        holder = _holder(self._storage, newest)
        raise StudyError(
            f"{shown_url(self._storage.url)}: was taken over by another driver ({holder}): this "
            "one stops, and writes nothing there any more"
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
            # The next time may do: others wait for several. What is written is checked elsewhere.
            with suppress(StorageError):
                self._write(released=False)

    def _write(self, *, released: bool) -> None:
        body = {"token": self._token, "time": time.time(), "released": released}
        self._storage.write(f"{_FOLDER}/{self.epoch}.beat.json", json.dumps(body).encode())


def current_holder(storage: RemoteFolder) -> Holder | None:
    """Return who took the highest epoch, None where nobody has taken any."""
    newest = max(_epochs(storage), default=0)
    return _holder(storage, newest) if newest else None


def refuse_other_study(storage: RemoteFolder, stored: str, study: str) -> None:
    """Refuse a storage that holds another study.

    Raises:
        InputError: it does.
    """
    if stored and stored != study:
        raise InputError(
            f"{shown_url(storage.url)} holds another study: choose another folder", key="storage"
        )


def _epochs(storage: RemoteFolder) -> list[int]:
    names = (name.removesuffix(".json") for name in storage.below(_FOLDER).objects())
    return [int(name) for name in names if name.isdecimal()]


def _holder(storage: RemoteFolder, epoch: int) -> Holder:
    taken = _mapping(storage.read(f"{_FOLDER}/{epoch}.json"))
    beat = _mapping(storage.read(f"{_FOLDER}/{epoch}.beat.json"))
    last = beat.get("time", taken.get("time"))
    # A lease appears with its content: one that cannot be read is of nobody.
    seconds = time.time() - last if isinstance(last, int | float) else math.inf
    pid = taken.get("pid")
    return Holder(
        epoch,
        study=str(taken.get("study", "")),
        host=str(taken.get("host", "?")),
        pid=pid if isinstance(pid, int) else 0,
        place=str(taken.get("place", "")),
        seconds=max(0.0, seconds),
        released=beat.get("released") is True,
    )


def _mapping(content: bytes | None) -> Mapping[str, Any]:
    try:
        body = json.loads(content or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
