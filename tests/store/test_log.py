"""Facts of the event log: sessions, hours, epochs, hashes, files."""

import sqlite3
from dataclasses import replace

import pytest
from test_many_events import ended, proposed, regained

from autorl.core.types import Checkpoint, FrozenMap, SegmentId
from autorl.store import schema
from autorl.store.codec import body_of, dumps
from autorl.store.events import (
    BudgetExtended,
    ProposalMade,
    SessionBegun,
    StudyBegun,
    TestSeedsAdded,
)
from autorl.store.log import EventLog, add_event

BEGUN = StudyBegun("text", "5f", "ab")


def session(**facts):
    return SessionBegun(FrozenMap(facts))


def checkpoint(text, **files):
    return Checkpoint(SegmentId.parse(text), "path", FrozenMap(files))


def saved(text, **files):
    event = ended(text, 1, 100)
    return replace(event, outcome=replace(event.outcome, checkpoint=checkpoint(text, **files)))


@pytest.fixture
def written():
    """A log, and how an event is added to it: the event, time, hash."""
    connection = sqlite3.connect(":memory:")
    schema.create(connection)

    def add(event, time=0.0, link=None):
        seq = log.last_number() + 1
        add_event(connection, seq, event.kind, dumps(body_of(event)), time, link)
        return seq

    log = EventLog.of(connection)
    yield log, add
    connection.close()


def test_an_empty_log(written):
    log, _ = written
    assert log.has_log()
    assert log.kinds() == []
    assert (log.last_number(), log.last_event(), log.newest_time()) == (0, None, None)
    assert (log.last_epoch(), log.hours(), log.sessions()) == (0, 0.0, [])
    assert log.hash_of(1) == ""
    assert log.saved_files(SegmentId(1, 0)) == {}


def test_epochs_count_sessions_and_are_those_a_storage_gave(written):
    log, add = written
    epochs = []
    for facts in ({}, {"epoch": 5}, {}, {"epoch": 2}, {"epoch": 8}):
        add(session(**facts))
        epochs.append(log.last_epoch())
    assert epochs == [1, 5, 6, 7, 8]


def test_a_session_lasts_to_its_last_event_and_pauses_are_not_counted(written):
    log, add = written
    add(BEGUN, time=0.0)
    add(session(), time=100.0)
    add(proposed(0), time=1900.0)
    add(BudgetExtended(1), time=50_000.0)  # between two sessions
    add(TestSeedsAdded((1,)), time=60_000.0)
    add(session(), time=100_000.0)
    add(proposed(0), time=103_600.0)
    add(session(), time=200_000.0)  # it recorded nothing
    assert log.hours() == pytest.approx(1.5)


def test_sessions_that_recorded_nothing_are_left_out(written):
    log, add = written
    for number, events in enumerate((1, 0, 2, 0)):
        add(session(number=number))
        for _ in range(events):
            add(proposed(0))
    assert [facts["number"] for facts in log.sessions()] == [0, 2]


def test_the_hash_of_an_event_is_empty_where_it_has_none(written):
    log, add = written
    add(BEGUN, link="abc")
    add(session())
    assert [log.hash_of(seq) for seq in (1, 2, 3)] == ["abc", "", ""]


def test_events_are_read_by_kind(written):
    log, add = written
    for number in range(4):
        add(proposed(number) if number % 2 else session(), time=float(number))
    add(TestSeedsAdded((7, 5)), time=1.5)
    add(TestSeedsAdded((6,)), time=0.5)
    assert log.events(ProposalMade, StudyBegun) == [proposed(1), proposed(3)]
    assert log.count_events(ProposalMade) == 2
    assert log.added_test_seeds() == [7, 5, 6]
    assert log.last_event() == ("test_seeds", 0.5)
    assert log.newest_time() == 3.0


def test_the_files_of_a_checkpoint_are_those_that_were_saved_last(written):
    log, add = written
    add(saved("1.0", a="0"))
    add(saved("11.0", b="1"))
    assert log.saved_files(SegmentId(1, 0)) == {"a": "0"}
    add(replace(regained("1.0", "again"), checkpoint=checkpoint("1.0", a="2")))
    assert log.saved_files(SegmentId(1, 0)) == {"a": "2"}
