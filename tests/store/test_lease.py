"""The lease on a storage: one driver, the highest epoch."""

import json
import math
import os

import pytest
from patience import PATIENCE

from autorl.core.types import InputError, StudyError
from autorl.store import lease as leases
from autorl.store.host import host_identity
from autorl.store.lease import Lease, current_holder
from autorl.store.remote import RemoteFolder

pytest.importorskip("fsspec", reason="the extra storage is not installed")


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


def test_the_second_takes_it_and_the_first_stops(storage, monkeypatch):
    first = Lease.take(storage, "s")
    monkeypatch.setattr(leases, "EXPIRE_SECONDS", -1.0)
    second = Lease.take(storage, "s")
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
        Lease.take(storage, "t")
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
    assert renewed.wait(PATIENCE)
    held.release()
    assert current_holder(storage).released


def test_a_torn_lease_stops_nobody_for_good(storage):
    storage.write("lease/3.json", b"")
    taken = Lease.take(storage, "s")
    assert taken.epoch == 4
    taken.release()


# -- who counts as gone ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holder", "gone"),
    [
        ({"seconds": 120.0}, False),  # six renewals of which none came
        ({"seconds": 120.5}, True),
        ({"released": True}, True),
        (
            {"place": "here", "pid": -1},
            False,
        ),  # a number of a process of another place says nothing
        ({"place": host_identity(), "pid": 0}, False),
    ],
)
def test_a_holder_is_gone_that_released_expired_or_was_killed_here(holder, gone):
    assert leases.Holder(1, **holder).gone is gone


def test_a_process_of_this_place_that_is_no_more_is_gone():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert leases.Holder(1, pid=child, place=host_identity()).gone
    assert not leases.Holder(1, pid=child, place="elsewhere").gone


def test_five_renewals_may_fail_before_a_lease_expires():
    assert leases.EXPIRE_SECONDS / leases.RENEW_SECONDS >= 6


def test_a_holder_of_whom_nothing_is_known():
    unknown = leases.Holder(3)
    assert (unknown.study, unknown.pid, unknown.seconds, unknown.released) == ("", 0, 0.0, False)
    assert str(unknown) == "process 0 on ?, epoch 3"
    assert "\n" not in str(leases.Holder(3, host="two\nlines"))


def test_a_holder_writes_itself_down_and_is_there_at_once(storage):
    held = Lease.take(storage, "s")
    taken = json.loads(storage.read("lease/1.json"))
    assert (taken["study"], taken["epoch"], taken["pid"]) == ("s", 1, os.getpid())
    assert len(taken["token"]) == 32
    beat = json.loads(storage.read("lease/1.beat.json"))
    assert (beat["token"], beat["released"]) == (taken["token"], False)
    assert beat["time"] >= taken["time"]
    assert held._thread.daemon, "it does not keep a driver alive"
    holder = current_holder(storage)
    assert (holder.released, holder.gone) == (False, False)
    held.release()
    assert current_holder(storage).gone


@pytest.mark.parametrize(
    ("taken", "beat", "seconds"),
    [
        ({"pid": "7"}, {}, math.inf),  # it holds nothing
        ({"time": 10**12}, {}, 0.0),  # by a clock that is ahead
        ({}, {"time": "soon"}, math.inf),
    ],
)
def test_what_a_holder_wrote_may_be_anything(storage, taken, beat, seconds):
    storage.write("lease/2.json", json.dumps(taken).encode())
    storage.write("lease/2.beat.json", json.dumps(beat).encode())
    assert current_holder(storage) == leases.Holder(2, seconds=seconds)


def test_the_seconds_since_a_holder_was_there_are_those_of_its_last_beat(storage, monkeypatch):
    storage.write("lease/1.json", json.dumps({"time": 100.0}).encode())
    monkeypatch.setattr(leases.time, "time", lambda: 130.0)
    assert current_holder(storage).seconds == 30.0
    storage.write("lease/1.beat.json", json.dumps({"time": 125.0, "released": 1}).encode())
    assert current_holder(storage) == leases.Holder(1, seconds=5.0)


def test_nobody_has_taken_what_is_empty(storage):
    assert current_holder(storage) is None


def test_an_epoch_that_others_take_first_is_tried_ten_times(storage, monkeypatch):
    names = []
    monkeypatch.setattr(storage, "create", lambda name, content: names.append(name))
    with pytest.raises(InputError, match="other drivers take this study over all the time"):
        Lease.take(storage, "s")
    assert names == ["lease/1.json"] * 10
