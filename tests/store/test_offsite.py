"""Writes and removals of a driver in its storage, with a database that is a number."""

import itertools
import json
from types import SimpleNamespace

import pytest

from autorl.core.types import InputError, StudyError
from autorl.store import lease, remote
from autorl.store import offsite as offsites
from autorl.store.lease import Lease, current_holder
from autorl.store.offsite import Offsite, check_free, checkpoint_names, database_copies
from autorl.store.remote import MANIFEST, RemoteFolder

pytest.importorskip("fsspec", reason="the extra storage is not installed")

_numbers = itertools.count()


class Log:
    """A database of so many events."""

    folder = None

    def __init__(self, events=1, epoch=0, branch="a"):
        self.events = events
        self.epoch = epoch
        self.branch = branch

    def identity(self):
        return "s"

    def last_number(self):
        return self.events

    def hash_of(self, seq):
        return f"{self.branch}{seq}" if seq <= self.events else ""

    def last_epoch(self):
        return self.epoch

    def copy_to(self, file):
        file.write_text(f"{self.events} events")


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setattr(remote, "_FORGETS", ())
    return f"memory://offsite-{next(_numbers)}"


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(offsites, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def backups(url):
    return sorted(RemoteFolder(url).below("backups").objects())


# -- copies of the database ------------------------------------------------------------------------


def test_the_database_is_copied_once_a_minute_where_it_has_changed(url, clock):
    log = Log()
    offsite = Offsite.take(url, log)
    offsite.back_up(log)
    assert backups(url) == ["1-1.sqlite", "1.json"], "at once, the first time"
    for seconds, expected in ((59.75, 1), (60.0, 2), (119.75, 2), (120.0, 4)):
        clock.seconds = 1000.0 + seconds
        log.events += 1
        offsite.back_up(log)
        (latest, *_) = database_copies(RemoteFolder(url))
        assert latest.events == {1: 1, 2: 3, 4: 5}[expected]
    log.events += 1
    offsite.back_up(log, at_once=True)
    assert database_copies(RemoteFolder(url))[0].events == 6
    offsite.let_go()


def test_the_two_newest_copies_stay(url, clock):
    log = Log()
    offsite = Offsite.take(url, log)
    for events in (3, 5, 8, 8):
        log.events = events
        offsite.back_up(log, at_once=True)
    assert backups(url) == ["1-5.sqlite", "1-8.sqlite", "1.json"]
    copies = database_copies(RemoteFolder(url))
    assert [(copy.events, copy.head, copy.study) for copy in copies] == [
        (8, "a8", "s"),
        (5, "a5", "s"),
    ]
    assert copies[0].file == "backups/1-8.sqlite"
    listed = RemoteFolder(url).read("backups/1.json").decode()
    assert listed == json.dumps(json.loads(listed), sort_keys=True)
    offsite.let_go()


def test_copies_of_earlier_sessions_go_and_those_of_later_ones_stay(url, clock):
    storage = RemoteFolder(url)
    offsite = Offsite.take(url, Log(epoch=4))
    assert offsite.epoch == 5
    for name in ("4-9.sqlite", "4.json", "5-1.sqlite", "6-2.sqlite", "6.json", "notes"):
        storage.write(f"backups/{name}", b"[]")
    offsite.back_up(Log(events=7, epoch=4), at_once=True)
    assert backups(url) == ["5-7.sqlite", "5.json", "6-2.sqlite", "6.json", "notes"]
    offsite.let_go()


def test_a_list_of_copies_names_nothing_else(url):
    storage = RemoteFolder(url)
    assert database_copies(storage) == []
    entry = {"study": "s", "events": 3, "head": "a3", "sha256": "0"}
    files = ("backups/1-3.sqlite", "../backups/1-3.sqlite", "backups/other")
    storage.write(
        "backups/1.json", json.dumps([{**entry, "file": file} for file in files]).encode()
    )
    assert [copy.file for copy in database_copies(storage)] == ["backups/1-3.sqlite"]
    storage.write("backups/10.json", b"")
    assert database_copies(storage) == [], "the highest epoch, by number"
    storage.write("backups/11.json", b'[{"file": 1}]')
    with pytest.raises(InputError, match=r"backups/11.json cannot be read"):
        database_copies(storage)


# -- sessions ----------------------------------------------------------------------------------------


def test_a_session_has_the_epoch_of_the_lease_and_the_next_one_another(url):
    offsite = Offsite.take(url, Log(epoch=2))
    assert offsite.begin_session(Log(epoch=2)) == 3
    assert offsite.begin_session(Log(epoch=3)) == 4
    assert offsite.begin_session(Log(epoch=3)) == 4
    assert offsite.begin_session(Log(epoch=9)) == 10
    offsite.let_go()


def test_the_end_copies_and_gives_the_lease_back(url, clock):
    offsite = Offsite.take(url, Log())
    offsite.back_up(Log())
    offsite.close(Log(events=2))
    assert database_copies(RemoteFolder(url))[0].events == 2
    assert current_holder(RemoteFolder(url)).released


def test_a_driver_that_was_taken_over_writes_nothing_at_its_end(url, clock, monkeypatch):
    offsite = Offsite.take(url, Log())
    with monkeypatch.context() as much_later:
        much_later.setattr(lease, "EXPIRE_SECONDS", -1.0)
        other = Lease.take(RemoteFolder(url), "s")
    for do in (
        lambda: offsite.close(Log(events=2)),
        lambda: offsite.back_up(Log(events=2), at_once=True),
        lambda: offsite.remove([f"{url}/checkpoints/1.0-1-0"]),
        lambda: offsite.set_aside(f"{url}/checkpoints/1.0-1-0"),
        lambda: offsite.begin_session(Log(epoch=1)),
    ):
        with pytest.raises(StudyError, match="was taken over"):
            do()
    offsite.remove([])  # nothing is to be removed
    assert backups(url) == []
    assert not current_holder(RemoteFolder(url)).released
    other.release()


def test_a_driver_that_lives_is_not_taken_over(url, monkeypatch):
    offsite = Offsite.take(url, Log())
    with pytest.raises(InputError, match="another driver works on this study"):
        Offsite.take(url, Log())
    monkeypatch.setattr(lease, "EXPIRE_SECONDS", -1.0)
    second = Offsite.take(url, Log())
    assert second.epoch == 2
    second.let_go()
    offsite.let_go()


def test_the_study_file_is_put_there(url, tmp_path):
    (tmp_path / "study.yaml").write_text("text")
    log = Log()
    log.folder = tmp_path
    Offsite.take(url, log).let_go()
    assert RemoteFolder(url).read("study.yaml") == b"text"


@pytest.mark.parametrize(
    ("log", "whole"),
    [(Log(events=7), True), (Log(events=5), True), (Log(events=4), False), (Log(7, 0, "b"), False)],
)
def test_a_log_goes_on_from_the_newest_copy_or_is_refused(url, clock, log, whole):
    first = Offsite.take(url, Log(events=5))
    first.close(Log(events=5))
    if whole:
        Offsite.take(url, log).let_go()
        return
    with pytest.raises(InputError, match="has gone on from another folder"):
        Offsite.take(url, log)
    assert current_holder(RemoteFolder(url)).epoch == 1, "and no lease was taken"


# -- checkpoints -------------------------------------------------------------------------------------


def place(storage, name, *, whole=True):
    storage.write(f"checkpoints/{name}/weights", b"x")
    if whole:
        storage.write(f"checkpoints/{name}/{MANIFEST}", b"{}")


def test_checkpoints_are_named_without_the_damaged_and_perhaps_whole_ones_only(url):
    storage = RemoteFolder(url)
    place(storage, "2.0-1-0")
    place(storage, "1.0-1-0", whole=False)
    place(storage, "damaged/3.0-1-0")
    storage.write("checkpoints/a file", b"x")
    assert list(checkpoint_names(storage)) == ["1.0-1-0", "2.0-1-0"]
    assert list(checkpoint_names(storage, whole=True)) == ["2.0-1-0"]


def test_checkpoints_that_nothing_names_go_unless_a_later_driver_wrote_them(url):
    storage = RemoteFolder(url)
    offsite = Offsite.take(url, Log(epoch=1))
    names = ["0.0-1-0", "1.0-1-0", "1.0-2-3", "2.0-2-0", "3.0-3-0", "12.3", "4.0@50-2-1"]
    for name in names:
        place(storage, name)
    offsite.sweep({offsite.checkpoint_url("1.0-1-0")}, {offsite.checkpoint_url("2.0-2-0")})
    assert list(checkpoint_names(storage)) == ["1.0-1-0", "12.3", "2.0-2-0", "3.0-3-0"]
    offsite.sweep({offsite.checkpoint_url("1.0-1-0")})
    assert list(checkpoint_names(storage)) == ["1.0-1-0", "12.3", "3.0-3-0"]
    offsite.let_go()


def test_a_damaged_checkpoint_is_moved(url):
    storage = RemoteFolder(url)
    offsite = Offsite.take(url, Log())
    place(storage, "1.0-1-0")
    told = offsite.set_aside(offsite.checkpoint_url("1.0-1-0"))
    assert told == f"moved to {url}/checkpoints/damaged/1.0-1-0"
    assert storage.read("checkpoints/damaged/1.0-1-0/weights") == b"x"
    assert list(checkpoint_names(storage)) == []
    assert offsite.set_aside(offsite.checkpoint_url("1.0-1-0")) == "there is no such folder"
    offsite.let_go()


# -- a new study -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("study.yaml", b"text"),
        ("lease/1.json", b"{}"),
        (
            "backups/1.json",
            b'[{"study": "s", "events": 1, "head": "", "file": "backups/1-1.sqlite", "sha256": ""}]',
        ),
    ],
)
def test_a_storage_that_holds_a_study_is_not_free(url, name, content):
    check_free(url)
    RemoteFolder(url).write("something else", b"x")
    check_free(url)
    RemoteFolder(url).write(name, content)
    with pytest.raises(InputError, match="holds a study already"):
        check_free(url)
