"""The check of the chain of events: the first event that does not fit, and in what way."""

import hashlib
import sqlite3
from contextlib import closing

import pytest

from autorl.store.integrity import Chain, Head, check_chain, check_pages, event_hash


def digest(previous, seq, kind, body, time):
    """SHA-256 over the hash before it, its number, kind, time and body."""
    text = f"{previous}\n{seq}\n{kind}\n{time!r}\n{body}"
    return hashlib.sha256(text.encode()).hexdigest()


def chained(count):
    """Rows of a log."""
    rows, previous = [], ""
    for seq in range(1, count + 1):
        row = (seq, "note", f'{{"n":{seq}}}', float(seq))
        previous = digest(previous, *row)
        rows.append((*row, previous))
    return rows


def check(rows):
    """The chain of a log without rules, which takes any rows."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE event (seq, kind, body, time, hash)")
        connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", rows)
        return check_chain(connection)


def test_the_hash_of_an_event_covers_all_of_it_and_what_was_before():
    assert event_hash("abc", 7, b"note", b"{}", 1.5) == digest("abc", 7, "note", "{}", 1.5)
    assert event_hash("", 1, b"note", b"{}", 1) != event_hash("", 1, b"note", b"{}", 1.0)


def test_a_whole_log():
    rows = chained(3)
    assert check(rows) == Chain(Head(3, rows[-1][-1]))
    assert check([]) == Chain(Head(0, ""))


@pytest.mark.parametrize(
    ("spoil", "seq", "problem"),
    [
        (lambda rows: rows.pop(1), 2, "event 2 is missing"),
        (lambda rows: rows.pop(0), 1, "event 1 is missing"),
        (lambda rows: rows.__setitem__(1, (*rows[1][:3], 9.0, rows[1][4])), 2, "not what was"),
        (lambda rows: rows.__setitem__(0, (*rows[0][:4], "0")), 1, "event 1 is not what was"),
        (
            lambda rows: rows.__setitem__(slice(None), [(*row[:4], None) for row in rows]),
            1,
            "event 1 is not",
        ),
        (lambda rows: rows.__setitem__(2, (*rows[2][:4], None)), 3, "event 3 is not what was"),
        (
            lambda rows: rows.__setitem__(2, (3, "note", None, 3.0, "0")),
            3,
            "event 3 cannot be read",
        ),
    ],
)
def test_the_first_event_that_does_not_fit_is_named(spoil, seq, problem):
    rows = chained(3)
    before = rows[seq - 2][4] if seq > 1 else ""
    spoil(rows)
    chain = check(rows)
    assert chain.head == Head(seq - 1, before)
    assert problem in chain.problem


def test_the_pages_of_a_database(tmp_path):
    file = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
        assert check_pages(connection) is None
    file.write_bytes(b"no database" * 100)
    with closing(sqlite3.connect(file)) as connection:
        assert check_pages(connection) == "file is not a database"


class Unreadable:
    """A connection to a database whose disk answers with an error."""

    def __init__(self, answer):
        self._answer = answer

    def execute(self, statement):
        if isinstance(self._answer, sqlite3.Error):
            raise self._answer
        return self

    def fetchall(self):
        return [(self._answer,)]


def disk_error():
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    return error


@pytest.mark.parametrize(
    ("look", "answer"),
    [
        (check_chain, disk_error()),
        (check_pages, disk_error()),
        (check_pages, "Page 7: unable to get the page. error code=8458"),
    ],
)
def test_a_disk_that_does_not_give_a_page_is_no_damage(look, answer):
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        look(Unreadable(answer))
