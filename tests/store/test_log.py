"""What is read off the event log: sessions, hours, epochs, hashes, files."""

import json
import sqlite3

import pytest

from autorl.store import schema
from autorl.store.events import ProposalMade
from autorl.store.log import EventLog, add_event
from autorl.types import SegmentId


@pytest.fixture
def written():
    """A log, and how an event is added to it: kind, body, time, hash."""
    connection = sqlite3.connect(":memory:")
    schema.create(connection)

    def add(kind, body=None, time=0.0, link=None):
        seq = log.last_number() + 1
        add_event(connection, seq, kind, json.dumps(body or {}, separators=(",", ":")), time, link)
        return seq

    log = EventLog.of(connection)
    yield log, add
    connection.close()


def test_an_empty_log(written):
    log, _ = written
    assert log.has_log()
    assert not log.holds_events()
    assert (log.last_number(), log.last_event(), log.newest_time()) == (0, None, None)
    assert (log.last_epoch(), log.hours(), log.sessions()) == (0, 0.0, [])
    assert (log.study_file(), log.hash_of(1)) == (None, "")
    assert log.saved_files(SegmentId(1, 0)) == {}


def test_epochs_count_sessions_and_are_those_a_storage_gave(written):
    log, add = written
    epochs = []
    for body in ({}, {"epoch": 5}, {}, {"epoch": 2}, {"epoch": 8}):
        add("session", body)
        epochs.append(log.last_epoch())
    assert epochs == [1, 5, 6, 7, 8]


def test_a_session_lasts_to_its_last_event_and_pauses_are_not_counted(written):
    log, add = written
    add("study_file", time=0.0)
    add("session", time=100.0)
    add("proposed", time=1900.0)
    add("budget", time=50_000.0)  # between two sessions
    add("test_seeds", {"seeds": [1]}, time=60_000.0)
    add("session", time=100_000.0)
    add("proposed", time=103_600.0)
    add("session", time=200_000.0)  # it recorded nothing
    assert log.hours() == pytest.approx(1.5)


def test_sessions_that_recorded_nothing_are_left_out(written):
    log, add = written
    for number, events in enumerate((1, 0, 2, 0)):
        add("session", {"number": number})
        for _ in range(events):
            add("proposed")
    assert [facts["number"] for facts in log.sessions()] == [0, 2]


def test_the_hash_of_an_event_is_empty_where_it_has_none(written):
    log, add = written
    add("study_file", link="abc")
    add("session")
    assert [log.hash_of(seq) for seq in (1, 2, 3)] == ["abc", "", ""]


def test_events_are_read_by_number_and_kind(written):
    log, add = written
    for number in range(4):
        add("proposed" if number % 2 else "session", {"n": number}, time=float(number))
    add("test_seeds", {"seeds": [7, 5]}, time=1.5)
    add("test_seeds", {"seeds": [6]}, time=0.5)
    assert [row[0] for row in log.entries_between(1, 3)] == [2, 3]
    assert log.events("proposed", "nothing") == [("proposed", {"n": 1}), ("proposed", {"n": 3})]
    assert log.count_events(ProposalMade) == 2
    assert log.added_test_seeds() == [7, 5, 6]
    assert log.last_event() == ("test_seeds", 0.5)
    assert log.newest_time() == 3.0


def test_the_files_of_a_checkpoint_are_those_that_were_saved_last(written):
    log, add = written
    add("outcome", {"segment": "1.0", "checkpoint_files": {"a": "0"}})
    add("outcome", {"segment": "11.0", "checkpoint_files": {"b": "1"}})
    assert log.saved_files(SegmentId(1, 0)) == {"a": "0"}
    add("regained", {"segment": "1.0", "checkpoint_files": {"a": "2"}})
    assert log.saved_files(SegmentId(1, 0)) == {"a": "2"}
    add("outcome", {"segment": "1.0"})
    assert log.saved_files(SegmentId(1, 0)) == {}
