"""The check of a study's tables: any change is seen, and events are read once."""

import json
import shutil
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_many_events import LIFE

from autorl.core.types import (
    Checkpoint,
    Config,
    InputError,
    Outcome,
    Proposal,
    Proposed,
    SegmentId,
    Status,
)
from autorl.store import Store, schema
from autorl.store.chain import Chain, Head
from autorl.store.codec import body_of, dumps
from autorl.store.events import ProposalMade, SearchGivenUp, SegmentEnded, SegmentPlace
from autorl.store.log import EventLog, add_event
from autorl.store.rebuild import check_tables

TABLES = (
    "configurations",
    "reports",
    "noted",
    "places",
    "proposals",
    "runs",
    "reductions",
    "segments",
    "standing",
    "tests",
)
CHAIN = Chain(Head(len(LIFE)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A database file of events and the tables that follow from them."""
    path = tmp_path_factory.mktemp("whole") / "study.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        schema.create(connection)
        for seq, event in enumerate(LIFE, start=1):
            add_event(connection, seq, event.kind, dumps(body_of(event)), float(seq), None)
        schema.apply_all(connection, enumerate(LIFE, start=1))
        connection.commit()
    return path


def check(path, see=lambda entries: None):
    with closing(sqlite3.connect(path)) as connection:
        check_tables(connection, CHAIN, path.parent, path, see)


def changed(path, copy, sql, parameters=()):
    """A copy of a database with one statement applied."""
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(sql, parameters)
        connection.commit()
    return copy


def test_tables_that_follow_from_the_events_are_taken_and_the_events_shown(whole):
    entries = []
    check(whole, entries.extend)
    assert [entry.event for entry in entries] == LIFE
    assert [(entry.seq, entry.time) for entry in entries] == [
        (seq, float(seq)) for seq in range(1, len(LIFE) + 1)
    ]


@pytest.mark.parametrize("table", TABLES)
def test_a_change_of_any_value_or_row_of_a_table_is_refused(whole, tmp_path, table):
    with closing(sqlite3.connect(whole)) as connection:
        cursor = connection.execute(f"SELECT * FROM {table} LIMIT 1")
        columns = [name for name, *_ in cursor.description]
        row = cursor.fetchone()
    where = " AND ".join(f"{name} IS ?" for name in columns)
    statements = [(f"DELETE FROM {table} WHERE {where}", row)]
    for name, value in zip(columns, row, strict=True):
        other = f"{value}x" if isinstance(value, str) else (value or 0) + 10**6
        statements.append((f"UPDATE {table} SET {name} = ? WHERE {where}", (other, *row)))
    marks = ", ".join("?" for _ in row)
    new = [f"{value}x" if isinstance(value, str) else (value or 0) + 10**6 for value in row]
    statements.append((f"INSERT INTO {table} VALUES ({marks})", new))
    for sql, parameters in statements:
        path = changed(whole, tmp_path / "study.sqlite", sql, parameters)
        with pytest.raises(InputError, match=f"table {table} does not follow from the events"):
            check(path)


def test_a_table_that_is_defined_in_another_way_is_compared_value_by_value(whole, tmp_path):
    path = changed(whole, tmp_path / "study.sqlite", "ALTER TABLE noted RENAME TO old")
    changed(path, tmp_path / "same.sqlite", "CREATE TABLE noted AS SELECT note FROM old")
    check(tmp_path / "same.sqlite")
    changed(path, tmp_path / "other.sqlite", "CREATE TABLE noted AS SELECT 'x' AS note FROM old")
    with pytest.raises(InputError, match="table noted does not follow"):
        check(tmp_path / "other.sqlite")


@pytest.mark.parametrize("bodies", [['{"a":[1', "2]}"], ["{}", "{},{}"], ["{}", "", "{}"], ["{}}"]])
def test_bodies_that_are_json_only_together_are_refused(tmp_path, bodies):
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.create(connection)
        for seq, text in enumerate(bodies, start=1):
            add_event(connection, seq, "finished", text, 0.0, None)
        with pytest.raises(ValueError, match="line 1 column"):
            EventLog.of(connection).between(0, len(bodies))


numbers = st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=2)


@given(st.lists(numbers | st.lists(numbers, max_size=2), max_size=3))
def test_lists_are_written_as_json_writes_them(values):
    expected = json.dumps(values, separators=(",", ":"))
    assert dumps(values) == expected
    assert dumps(tuple(values)) == expected


# -- the events that a store has read when it is opened ----------------------------------------------


def saved(proposal):
    """The end of a segment that left a checkpoint."""
    segment = SegmentId(proposal, 0)
    place = SegmentPlace(segment, proposal, "tuning", "toy", None, None, 0, None, None, 0)
    checkpoint = Checkpoint(segment, f"checkpoints/{segment}")
    return SegmentEnded(Outcome(segment, Status.DONE, 9, checkpoint=checkpoint), place)


@pytest.fixture
def store(tmp_path):
    first = Store.create(tmp_path / "s", "text", "")
    first.append(SearchGivenUp("a note"))
    first.append(ProposalMade(Proposed(0, Proposal(Config(x=0.5), 9)), "hash"))
    first.append(saved(0))
    first.close()
    again = Store.open(tmp_path / "s")
    yield again
    again.close()


def test_events_are_those_of_the_log_and_read_once(store, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "between", None)  # whoever reads the log fails
        first = list(store.events())
    assert [recorded.seq for recorded in first] == [1, 2, 3, 4]
    assert list(store.events()) == first


def test_events_recorded_since_come_after_those_read_at_the_opening(store):
    store.append(SearchGivenUp("new"))
    events = list(store.events())
    assert [recorded.seq for recorded in events] == [1, 2, 3, 4, 5]
    assert events[-1].event.message == "new"


def test_a_storage_that_is_taken_after_the_opening_has_the_checkpoints(store):
    store.offsite = SimpleNamespace(url="memory://study")
    *_, last = store.events()
    assert last.event.outcome.checkpoint.path == "memory://study/checkpoints/0.0"
