"""The lease on a storage: one driver, the highest epoch."""

import json
import os

import pytest

from autorl.store import lease as leases
from autorl.store.lease import Lease, current_holder
from autorl.store.remote import RemoteFolder
from autorl.types import InputError, StudyError


@pytest.fixture
def storage(tmp_path):
    return RemoteFolder(f"file://{tmp_path}/storage")


def test_epochs_go_up_and_never_fall_behind_the_log(storage):
    first = Lease.take(storage, "s")
    first.release()
    second = Lease.take(storage, "s", after=7)
    second.release()
    third = Lease.take(storage, "s", after=2)
    third.release()
    assert [first.epoch, second.epoch, third.epoch] == [1, 8, 9]


def test_a_driver_that_lives_is_not_disturbed(storage):
    held = Lease.take(storage, "s")
    with pytest.raises(
        InputError, match=rf"another driver works on this study \(process {os.getpid()} "
    ):
        Lease.take(storage, "s")
    held.check()
    held.release()


def test_the_second_takes_it_and_the_first_stops(storage):
    first = Lease.take(storage, "s")
    second = Lease.take(storage, "s", take_over=True)
    second.check()
    with pytest.raises(
        StudyError, match=r"was taken over by another driver \(.*epoch 2\): this one stops"
    ):
        first.check()
    first.abandon()
    second.release()


def test_another_study_is_refused(storage):
    Lease.take(storage, "s").release()
    with pytest.raises(InputError, match="holds another study"):
        Lease.take(storage, "t", take_over=True)
    assert current_holder(storage).epoch == 1


def test_the_lease_of_a_killed_driver_is_free(storage):
    child = os.fork()
    if child == 0:
        Lease.take(storage, "s")
        os._exit(0)  # as a kill: nothing is released
    os.waitpid(child, 0)
    taken = Lease.take(storage, "s")
    assert taken.epoch == 2
    taken.release()


def age(storage, seconds, **changes):
    """Let the holder have been there so long ago, on another machine."""
    taken = json.loads(storage.read("lease/1.json"))
    beat = json.loads(storage.read("lease/1.beat.json"))
    storage.write("lease/1.json", json.dumps({**taken, "place": "elsewhere", **changes}).encode())
    beat["time"] -= seconds
    storage.write("lease/1.beat.json", json.dumps(beat).encode())


def test_a_lease_of_another_machine_expires(storage):
    held = Lease.take(storage, "s")
    held.abandon()
    age(storage, leases.EXPIRE_SECONDS / 2)
    with pytest.raises(InputError, match="last there"):
        Lease.take(storage, "s")
    age(storage, leases.EXPIRE_SECONDS)
    Lease.take(storage, "s").release()


def test_a_holder_renews_its_lease(storage, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.001)
    renewed = leases.threading.Event()
    write = Lease._write

    def watched(self, *, released):
        write(self, released=released)
        if leases.threading.current_thread().name == "autorl-lease":
            renewed.set()

    monkeypatch.setattr(Lease, "_write", watched)
    held = Lease.take(storage, "s")
    assert renewed.wait(timeout=60)
    held.release()
    assert current_holder(storage).released


def test_a_torn_lease_stops_nobody_for_good(storage):
    storage.write("lease/3.json", b"")
    taken = Lease.take(storage, "s", take_over=True)
    assert taken.epoch == 4
    taken.release()
