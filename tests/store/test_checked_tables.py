"""The check of a study's tables: any change is seen, and events are read once."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from test_many_events import LIFE

from autorl.store import schema
from autorl.store.codec import body_of, dumps
from autorl.store.integrity import table_differences
from autorl.store.log import add_event

TABLES = "configurations reports noted places proposals runs reductions segments standing tests"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A database file of events and the tables that follow from them."""
    path = tmp_path_factory.mktemp("whole") / "study.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        schema.create(connection)
        for seq, event in enumerate(LIFE, start=1):
            add_event(connection, seq, event.kind, dumps(body_of(event)), float(seq), None)
            schema.apply(connection, seq, event)
        connection.commit()
    return path


def differences(path):
    with closing(sqlite3.connect(path)) as connection:
        return table_differences(connection, len(LIFE))


def changed(path, copy, sql, parameters=()):
    """A copy of a database with one statement applied."""
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(sql, parameters)
        connection.commit()
    return copy


def test_tables_that_follow_from_the_events_differ_in_nothing(whole):
    assert differences(whole) == []


@pytest.mark.parametrize("table", TABLES.split())
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
        (line,) = differences(path)
        assert line.startswith(f"table {table} does not follow from the events, first at ")
