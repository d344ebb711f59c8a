"""The store: append-only, one transaction per event, one driver per folder, and files that were damaged."""

import fcntl
import gc
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing

import pytest
import yaml
from patience import PATIENCE
from refusals import expect_error
from small_studies import SMALL

from autorl.core.types import (
    Config,
    InputError,
    Outcome,
    Proposal,
    Proposed,
    SearchEnd,
    SegmentId,
    Status,
    StorageError,
)
from autorl.report.reading import open_view
from autorl.store import Store, schema
from autorl.store.events import (
    ProposalMade,
    SearchGivenUp,
    SegmentEnded,
    SegmentPlace,
    StudyFinished,
)
from autorl.store.folder import LOCK_FILE
from autorl.store.integrity import event_hash
from autorl.store.log import add_event
from autorl.store.study_file import recordable
from autorl.study import Study
from autorl.study.folder.safety import backup, verify
from autorl.study.spec import load_spec

PROPOSED = ProposalMade(Proposed(0, Proposal(Config(x=0.5), 100, origin="default")), "abc")
NOTE = SearchGivenUp("an event that changes no table")


def ended_of(proposal):
    """The end of a segment of a proposal."""
    segment = SegmentId(proposal, 0)
    place = SegmentPlace(segment, 0, "tuning", "toy", None, None, 0, None, None, 0)
    return SegmentEnded(Outcome(segment, Status.DONE, 100), place)


def spec_of(**changes):
    return load_spec(SMALL | {"budget": {"runs": 6}, "parallelism": 2} | changes)


def finished(folder):
    study = Study.create(spec_of(), folder)
    result = study.run()
    study.close()
    return result


# -- events ------------------------------------------------------------------------------------------------------------


def test_an_event_and_its_tables_are_written_together_or_not_at_all(tmp_path):
    store = Store.create(tmp_path / "s", "text", "")
    store.append(PROPOSED)
    with pytest.raises(sqlite3.IntegrityError):
        store.append(PROPOSED)  # the same number again: the derived insert fails
    with pytest.raises(sqlite3.IntegrityError):
        store.append(ended_of(77))  # no such proposal
    assert store.query("SELECT kind FROM event ORDER BY seq") == [("study_file",), ("proposed",)]
    store.append(NOTE)
    assert [event.kind for event in store.events()] == ["study_file", "proposed", "gave_up"]
    store.close()


def test_an_event_of_an_unknown_kind_is_one_clear_line(tmp_path):
    """A log is never folded without it: not by who writes, who reads or who derives the tables."""
    study = Study.create(spec_of(), tmp_path / "s")
    line = "event of unknown kind 'pruned': written by a newer autorl?"
    head = study.store._head
    study.close()
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as connection:
        link = event_hash(head.hash, 2, b"pruned", b"{}", 1.0)
        connection.execute("INSERT INTO event VALUES (2, 'pruned', '{}', 1.0, ?)", (link,))
    for opened in (Study.open, open_view):
        expect_error(re.escape(f"cannot be used ({line})"), opened, tmp_path / "s")
    assert any(line in problem for problem in verify(tmp_path / "s").problems)


def test_a_body_that_is_none_of_its_kind_is_damage(tmp_path):
    store = Store.in_memory()
    add_event(store._connection, 1, "attempt", '{"worker": 3}', 0.0, None)
    expect_error(r"is damaged \(event of kind 'attempt' cannot be read", list, store.events())
    store.close()


def test_events_are_never_changed_or_deleted(tmp_path):
    """No statement of a whole study touches a row of the log again."""
    study = Study.create(spec_of(keep={"checkpoints": "none"}), tmp_path / "s")
    statements = []
    study.store._connection.set_trace_callback(statements.append)
    study.run()
    study.close()
    changing = [text for text in statements if not text.upper().startswith("SELECT")]
    touching = [text for text in changing if " event" in text.lower()]
    assert touching
    assert all(text.startswith("INSERT INTO event ") for text in touching)


def test_a_study_in_memory_reads_what_one_on_disk_does(tmp_path):
    """Its events are written when somebody asks, those of a batch too."""
    with (
        closing(Store.in_memory()) as memory,
        closing(Store.create(tmp_path / "s", "text", "")) as disk,
    ):
        memory.append(disk.log.study_file())
        for store in (memory, disk):
            store.append(NOTE)
            with store.batch():
                store.append(PROPOSED)
                store.append(StudyFinished(SearchEnd.BUDGET))
            assert [row.seq for row in store.events(after=2)] == [3, 4]
        for table in ("event", "proposals", "configurations", "standing", "places"):
            columns = "seq, kind, body" if table == "event" else "*"
            query = f"SELECT {columns} FROM {table}"
            assert memory.query(query) == disk.query(query)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_study_killed_before_its_study_file_was_written_starts_from_nothing(tmp_path):
    """The database comes first: a folder with it alone is no study yet."""
    Study.create(spec_of(), tmp_path / "s").close()
    (tmp_path / "s" / "study.yaml").unlink()
    expect_error("holds no study", Study.open, tmp_path / "s")
    study = Study.create(spec_of(seed=3), tmp_path / "s")
    assert study.run().counts == {"scored": 3}
    assert [event.kind for event in study.store.events()].count("study_file") == 1
    study.close()


def test_the_study_file_of_the_log_has_its_keys_in_their_order_without_secrets():
    text = "name: s\ntrainer:\n  name: t\n  kwargs: {hub_token: abc}\nbudget: {runs: 6}\n"
    recorded = recordable(text)
    assert "abc" not in recorded
    assert list(yaml.safe_load(recorded)) == ["name", "trainer", "budget"]
    assert recordable("name: s  # mine\n") == "name: s  # mine\n"


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "s").write_text("")
    expect_error("cannot be written", Store.create, tmp_path / "s", "text", "")


# -- one driver --------------------------------------------------------------------------------------------------------


def test_a_process_that_a_killed_driver_was_starting_holds_its_lock_for_a_moment_only(
    tmp_path, monkeypatch
):
    """Between fork and exec it has the driver's files; a resume just then was refused."""
    monkeypatch.setattr("autorl.store.lock._LAST_WAIT", PATIENCE)
    Store.create(tmp_path / "s", "text", "").close()
    code = """
        import os, sys, time
        from pathlib import Path
        from autorl.store import Store
        store = Store.open(Path(sys.argv[1]))
        if os.fork() == 0:
            sys.stdin.read()  # until the test lets go of it
            os._exit(0)
        print("held", flush=True)
        time.sleep(7200)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "s")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as driver:
        try:
            assert driver.stdout.readline() == "held\n"
        finally:
            driver.kill()
            driver.wait()
        with pytest.raises(OSError, match="unavailable"), open(tmp_path / "s" / LOCK_FILE) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        later = threading.Timer(0.2, driver.stdin.close)
        later.start()
        Store.open(tmp_path / "s").close()
        later.join()


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_refused_database_is_let_go_at_once(tmp_path):
    """Its connection stayed open until the garbage collector came by, with its log in the folder."""
    Store.create(tmp_path / "s", "text", "").close()
    with closing(sqlite3.connect(tmp_path / "s" / "study.sqlite")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        torn = "CREATE TABLE reports (-"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'reports'", (torn,))
    before = sorted(path.name for path in (tmp_path / "s").iterdir())
    gc.disable()
    try:
        expect_error(r"cannot be used \(malformed database schema", Store.open, tmp_path / "s")
        assert sorted(path.name for path in (tmp_path / "s").iterdir()) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("number", [schema.SCHEMA_VERSION - 1, schema.SCHEMA_VERSION + 1])
def test_another_format_is_refused_and_left_alone(tmp_path, number):
    finished(tmp_path / "s")
    path = tmp_path / "s" / "study.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    before = path.read_bytes()
    with pytest.raises(InputError, match=rf"study.sqlite: has format {number} of another autorl"):
        Study.open(tmp_path / "s")
    assert path.read_bytes() == before


SCHEMAS = {
    "a trigger": (
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN UPDATE reports SET step = 1; END",
        "trigger 't'",
    ),
    "a table": ("CREATE TABLE more (a)", "table 'more'"),
    "a virtual table": ("CREATE VIRTUAL TABLE more USING fts5(a)", "table 'more"),
    "a view": ("CREATE VIEW more AS SELECT 1", "view 'more'"),
    "an index": ("CREATE INDEX more ON reports (value)", "index 'more'"),
    "a column": ("ALTER TABLE reports ADD COLUMN more TEXT", "table 'reports'"),
    "a missing index": ("DROP INDEX event_kind", "index 'event_kind'"),
}


@pytest.mark.parametrize(("sql", "named"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_is_not_ours_is_refused_by_writers_and_readers(tmp_path, sql, named):
    folder = tmp_path / "s"
    finished(folder)
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        connection.execute(sql)
    for read in (Study.open, open_view, lambda folder: backup(folder, tmp_path / "copy")):
        expect_error(re.escape(f"study.sqlite: is damaged ({named}"), read, folder)
    assert any(named in problem for problem in verify(folder).problems)
    events = verify(folder).events
    backup(folder, tmp_path / "saved", until=events)
    Study.open(tmp_path / "saved").close()


# -- moved studies ---------------------------------------------------------------------------------------------


def test_a_locked_database_is_a_study_error(tmp_path):
    store = Store.create(tmp_path / "s", "text", "")
    store._connection.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / "s" / "study.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match=r"study.sqlite cannot .* \(database is locked\)"):
        store.append(NOTE)
    other.execute("ROLLBACK")
    other.close()
    store.append(NOTE)
    store.close()


def test_a_disk_that_is_full_at_the_start_is_one_line(tmp_path, monkeypatch):
    from autorl.store import store as module

    def small(path):
        connection = connect(path)
        connection.execute("PRAGMA max_page_count = 3")
        return connection

    connect = module._connect
    monkeypatch.setattr(module, "_connect", small)
    with pytest.raises(InputError, match=r"s: cannot be written \(the disk is full"):
        Store.create(tmp_path / "s", "text", "")
    monkeypatch.setattr(module, "_connect", connect)
    Store.create(tmp_path / "s", "text", "").close()
