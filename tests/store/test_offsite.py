"""Writes and removals of a driver in its storage."""

import itertools
import shutil
from contextlib import closing
from types import SimpleNamespace

import pytest
from refusals import expect_error

from autorl.core.types import FrozenMap, InputError, StudyError
from autorl.store import Store, lease, remote
from autorl.store import offsite as offsites
from autorl.store.events import SearchGivenUp, SessionBegun
from autorl.store.lease import Lease, current_holder
from autorl.store.log import EPOCH
from autorl.store.offsite import (
    Offsite,
    check_free,
    checkpoint_names,
    database_copies,
    fetch_database,
)
from autorl.store.remote import RemoteFolder

pytest.importorskip("fsspec", reason="the extra storage is not installed")

_numbers = itertools.count()


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setattr(remote, "_FORGETS", ())
    return f"memory://offsite-{next(_numbers)}"


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "study", "name: x\n", "space")
    yield made
    made.close()


def grow(store, events, text="an event"):
    """Append until there are so many events."""
    while store.log.last_number() < events:
        store.append(SearchGivenUp(text))


def session(store, epoch):
    store.append(SessionBegun(FrozenMap({EPOCH: epoch})))


def events_of(url):
    return [(copy.epoch, copy.events) for copy in database_copies(RemoteFolder(url))]


# -- copies of the database ------------------------------------------------------------------------


def test_the_database_is_copied_once_a_minute_where_it_has_changed(url, store, monkeypatch):
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(offsites, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    offsite = Offsite.take(url, store)
    assert RemoteFolder(url).read("study.yaml") == b"name: x\n"
    offsite.back_up(store)
    assert events_of(url) == [(1, 1)], "at once, the first time"
    for seconds, newest in ((59.75, 1), (60.0, 3), (119.75, 3), (120.0, 5)):
        now.seconds = 1000.0 + seconds
        grow(store, store.log.last_number() + 1)
        offsite.back_up(store)
        assert events_of(url)[0] == (1, newest)
    grow(store, 6)
    offsite.back_up(store, at_once=True)
    offsite.back_up(store, at_once=True)
    assert events_of(url) == [(1, 6), (1, 5)]
    offsite.let_go()


def test_copies_of_earlier_sessions_go_and_those_of_later_ones_stay(url, store):
    storage = RemoteFolder(url)
    session(store, 4)
    offsite = Offsite.take(url, store)
    assert offsite.epoch == 5
    grow(store, 7)
    for name in ("4-9-ab.sqlite", "5-1-ab.sqlite", "6-2-ab.sqlite", "notes", "7-x.sqlite"):
        storage.write(f"backups/{name}", b"")
    offsite.back_up(store, at_once=True)
    assert events_of(url) == [(6, 2), (5, 7)]
    assert sorted(storage.below("backups").objects())[-1] == "notes"
    offsite.let_go()


def test_the_newest_copy_that_is_whole_is_fetched(url, store, tmp_path):
    storage = RemoteFolder(url)
    offsite = Offsite.take(url, store)
    grow(store, 3)
    offsite.back_up(store, at_once=True)
    grow(store, 5)
    offsite.close(store)
    whole, before = database_copies(storage)
    for copy, found in ((None, whole), (whole, before), (before, None)):
        if copy is not None:
            content = storage.read(copy.file)
            storage.write(copy.file, content.replace(b"an event", b"no event"))
        if found is None:
            with pytest.raises(InputError, match="no copy of the database there is whole"):
                fetch_database(storage, tmp_path / "fetched")
        else:
            fetch_database(storage, tmp_path / "fetched")
            assert (tmp_path / "fetched").read_bytes() == storage.read(found.file)


# -- sessions ----------------------------------------------------------------------------------------


def test_a_session_has_the_epoch_of_the_lease_and_the_next_one_another(url, store):
    session(store, 2)
    offsite = Offsite.take(url, store)
    assert offsite.begin_session(store) == 3
    session(store, 3)
    assert offsite.begin_session(store) == 4
    assert offsite.begin_session(store) == 4
    session(store, 9)
    assert offsite.begin_session(store) == 10
    offsite.let_go()


def test_the_end_copies_and_gives_the_lease_back(url, store):
    offsite = Offsite.take(url, store)
    expect_error("another driver works on this study", Offsite.take, url, store)
    offsite.back_up(store)
    grow(store, 2)
    offsite.close(store)
    assert events_of(url) == [(1, 2), (1, 1)]
    assert current_holder(RemoteFolder(url)).released


def test_a_driver_that_was_taken_over_writes_nothing_at_its_end(url, store, monkeypatch):
    offsite = Offsite.take(url, store)
    session(store, 1)
    with monkeypatch.context() as much_later:
        much_later.setattr(lease, "EXPIRE_SECONDS", -1.0)
        other = Lease.take(RemoteFolder(url), store.log.identity())
    for do in (
        lambda: offsite.close(store),
        lambda: offsite.back_up(store, at_once=True),
        lambda: offsite.remove([f"{url}/checkpoints/1.0-1-0"]),
        lambda: offsite.set_aside(f"{url}/checkpoints/1.0-1-0"),
        lambda: offsite.begin_session(store),
    ):
        expect_error("was taken over", do, kind=StudyError)
    offsite.remove([])  # nothing is to be removed
    assert events_of(url) == []
    assert not current_holder(RemoteFolder(url)).released
    other.release()


@pytest.mark.parametrize(("events", "same"), [(5, True), (7, True), (3, False), (7, False)])
def test_a_log_goes_on_from_the_newest_copy_or_is_refused(url, store, tmp_path, events, same):
    grow(store, 3)
    shutil.copytree(store.folder, tmp_path / "other")
    grow(store, 5)
    Offsite.take(url, store).close(store)
    if same:
        grow(store, events)
        Offsite.take(url, store).let_go()
        return
    with closing(Store.open(tmp_path / "other")) as other:
        grow(other, events)
        expect_error("has gone on from another folder", Offsite.take, url, other)
    assert current_holder(RemoteFolder(url)).epoch == 1, "and no lease was taken"


# -- checkpoints -------------------------------------------------------------------------------------


def test_checkpoints_that_nothing_names_go_unless_a_later_driver_wrote_them(url, store):
    storage = RemoteFolder(url)
    session(store, 1)
    offsite = Offsite.take(url, store)
    names = ["0.0-1-0", "1.0-1-0", "1.0-2-3", "2.0-2-0", "3.0-3-0", "12.3", "4.0@50-2-1"]
    for name in (*names, "damaged/3.0-1-0"):
        storage.write(f"checkpoints/{name}/weights", b"x")
    storage.write("checkpoints/a file", b"x")
    assert checkpoint_names(storage) == sorted(names)
    offsite.sweep([offsite.checkpoint_url(name) for name in ("1.0-1-0", "2.0-2-0")])
    assert checkpoint_names(storage) == ["1.0-1-0", "12.3", "2.0-2-0", "3.0-3-0"]
    told = offsite.set_aside(offsite.checkpoint_url("1.0-1-0"))
    assert told == f"moved to {url}/checkpoints/damaged/1.0-1-0"
    assert storage.read("checkpoints/damaged/1.0-1-0/weights") == b"x"
    assert offsite.set_aside(offsite.checkpoint_url("1.0-1-0")) == "there is no such folder"
    offsite.sweep(())
    assert checkpoint_names(storage) == ["12.3", "3.0-3-0"]
    offsite.let_go()


@pytest.mark.parametrize("name", ["study.yaml", "lease/1.json", "backups/1-1-ab.sqlite"])
def test_a_storage_that_holds_a_study_is_not_free(url, name):
    check_free(url)
    RemoteFolder(url).write("something else", b"x")
    check_free(url)
    RemoteFolder(url).write(name, b"{}")
    expect_error("holds a study already", check_free, url)
