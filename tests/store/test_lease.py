"""The lease on a storage: one driver, the highest epoch."""

import json
import os
import time

import pytest
from patience import PATIENCE
from refusals import expect_error

from autorl.core.os_processes import host_identity
from autorl.core.types import InputError, StudyError
from autorl.store import lease as leases
from autorl.store.lease import Holder, Lease, current_holder
from autorl.store.remote import RemoteFolder

pytest.importorskip("fsspec", reason="the extra storage is not installed")


@pytest.fixture
def storage(tmp_path):
    return RemoteFolder(f"file://{tmp_path}/storage")


def test_epochs_go_up_and_never_fall_behind_the_log(storage):
    assert current_holder(storage) is None
    for after, epoch in ((0, 1), (7, 8), (2, 9)):
        taken = Lease.take(storage, "s", after)
        assert taken.epoch == epoch
        taken.release()
        assert current_holder(storage).gone
    expect_error("holds another study", Lease.take, storage, "t")


def test_a_driver_that_lives_is_not_disturbed_and_one_that_was_replaced_stops(storage, monkeypatch):
    first = Lease.take(storage, "s")
    holder = current_holder(storage)
    assert (holder.study, holder.pid) == ("s", os.getpid())
    assert not holder.released
    assert not holder.gone
    with pytest.raises(InputError, match=rf"works on this study \(process {os.getpid()} .*last th"):
        Lease.take(storage, "s")
    first.check()
    monkeypatch.setattr(leases, "EXPIRE_SECONDS", -1.0)
    second = Lease.take(storage, "s")
    second.check()
    expect_error(r"was taken over by .*epoch 2\): this one stops", first.check, kind=StudyError)
    first.abandon()
    second.release()


def test_the_lease_of_a_killed_driver_is_free(storage):
    child = os.fork()
    if child == 0:
        Lease.take(storage, "s")
        os._exit(0)  # as a kill: nothing is released
    os.waitpid(child, 0)
    taken = Lease.take(storage, "s")
    assert taken.epoch == 2
    taken.release()


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
    begun = current_holder(storage).last_there
    assert renewed.wait(PATIENCE)
    assert current_holder(storage).last_there >= begun
    assert held._thread.daemon, "it does not keep a driver alive"
    held.release()
    assert current_holder(storage).released


@pytest.mark.parametrize(
    ("holder", "gone"),
    [
        ({"seconds": 119.0}, False),  # five renewals of which none came
        ({"seconds": 120.5}, True),
        ({"seconds": -(10.0**9)}, False),  # by a clock that is ahead
        ({"released": True}, True),
        # A number of a process of another place says nothing.
        ({"place": "elsewhere", "pid": 2**22 + 1}, False),
        ({"place": host_identity(), "pid": 2**22 + 1}, True),
        ({"place": host_identity(), "pid": os.getpid()}, False),
    ],
)
def test_a_holder_is_gone_that_released_expired_or_was_killed_here(holder, gone):
    holder = {"seconds": 0.0, **holder}
    assert Holder(1, last_there=time.time() - holder.pop("seconds"), **holder).gone is gone


@pytest.mark.parametrize("text", [b"", b"[1", b'{"pid": "seven"}', b'{"last_there": "soon"}'])
def test_what_a_holder_wrote_may_be_anything_and_stops_nobody_for_good(storage, text):
    storage.write("lease/3.json", text)
    assert current_holder(storage) == Holder(3)
    assert str(current_holder(storage)) == "process 0 on ?, epoch 3"
    taken = Lease.take(storage, "s")
    assert taken.epoch == 4
    taken.release()
    storage.write("lease/5.json", json.dumps({"host": "two\nlines"}).encode())
    assert "\n" not in str(current_holder(storage))


def test_an_epoch_that_others_take_first_is_tried_ten_times(storage, monkeypatch):
    names = []
    monkeypatch.setattr(storage, "create", lambda name, content: names.append(name))
    expect_error("other drivers take this study over all the time", Lease.take, storage, "s")
    assert names == ["lease/1.json"] * 10
