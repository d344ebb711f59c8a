"""The store: append-only, one transaction per event, one driver per folder, and files that were damaged."""

import fcntl
import gc
import json
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from autorl.executors import InProcess
from autorl.report.reading import open_view
from autorl.spec import load_spec
from autorl.store import Store, schema
from autorl.store.chain import event_hash
from autorl.store.codec import UnknownEventError
from autorl.store.events import (
    ProposalMade,
    SearchGivenUp,
    SegmentEnded,
    SegmentPlace,
    SessionBegun,
    StudyFinished,
)
from autorl.store.folder import LOCK_FILE, check_recorded
from autorl.store.snapshot import snapshot
from autorl.store.study_file import recordable
from autorl.study import Study
from autorl.study.verify import verify
from autorl.types import (
    Config,
    FrozenMap,
    InputError,
    Outcome,
    Proposal,
    Proposed,
    SegmentId,
    Status,
    StudyError,
)

HERE = Path(__file__).parent
PROPOSED = ProposalMade(Proposed(0, Proposal(Config(x=0.5), 100, origin="default")), "abc")
NOTE = SearchGivenUp("an event that changes no table")


def ended_of(proposal):
    """The end of a segment of a proposal."""
    segment = SegmentId(proposal, 0)
    place = SegmentPlace(segment, 0, "tuning", "toy", None, None, 0, None, None, 0)
    return SegmentEnded(Outcome(segment, Status.DONE, 100), place)


def spec_of(**changes):
    study = {
        "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1}},
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
        "fidelity": {"steps": 100, "evaluations": 2},
        "budget": {"runs": 6},
        "seeds": {"tuning": 2, "test": 2},
        "optimizer": "random",
        "parallelism": 2,
        "executor": {"name": "in_process"},
    }
    return load_spec(study | changes)


def finished(folder):
    study = Study.create(spec_of(), folder)
    result = study.run()
    study.close()
    return result


# -- events ------------------------------------------------------------------------------------------------------------


def test_events_come_back_in_order_and_exact(tmp_path):
    store = Store.create(tmp_path / "s", "text")
    bodies = [
        {"a": 0.1 + 0.2, "b": [1, (2, 3)], "c": {"d": None}},
        {"nan": float("inf")},
        {"e": -0.0, "f": 2**70},
    ]
    for body in bodies:
        store.append(SessionBegun(FrozenMap(body)))
    store.close()
    store = Store.open(tmp_path / "s")
    events = list(store.events())
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert (events[0].kind, events.pop(0).event.text) == ("study_file", "text")
    assert {event.kind for event in events} == {"session"}
    facts = [event.event.facts for event in events]
    assert facts[0] == {"a": 0.30000000000000004, "b": (1, (2, 3)), "c": {"d": None}}
    assert facts[1]["nan"] == float("inf")
    assert str(facts[2]["e"]) == "-0.0"
    assert facts[2]["f"] == 2**70
    assert events[0].time <= events[1].time <= events[2].time
    store.close()


def test_an_event_and_its_tables_are_written_together_or_not_at_all(tmp_path):
    store = Store.create(tmp_path / "s", "text")
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
    with pytest.raises(UnknownEventError, match=re.escape(line)):
        study.store._append_body("pruned", {"proposal": 0})
    assert [event.kind for event in study.store.events()] == ["study_file"]
    head = study.store._head
    study.close()
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as connection:
        link = event_hash(head.hash, 2, b"pruned", b"{}", 1.0)
        connection.execute("INSERT INTO event VALUES (2, 'pruned', '{}', 1.0, ?)", (link,))
    for opened in (Study.open, open_view):
        with pytest.raises(InputError, match=re.escape(f"cannot be used ({line})")):
            opened(tmp_path / "s")
    assert any(line in problem for problem in verify(tmp_path / "s").problems)


def test_a_body_that_is_none_of_its_kind_is_damage(tmp_path):
    store = Store.in_memory()
    store._append_body("attempt", {"worker": 3})
    with pytest.raises(InputError, match=r"is damaged \(event of kind 'attempt' cannot be read"):
        list(store.events())
    store.close()


def test_what_cannot_be_stored_leaves_no_trace(tmp_path):
    store = Store.create(tmp_path / "s", "text")
    with pytest.raises(
        TypeError, match="cannot be stored: use numbers, strings, lists and mappings"
    ):
        store.append(SessionBegun(FrozenMap(x=object())))
    assert [event.kind for event in store.events()] == ["study_file"]
    store.close()


def test_events_are_never_changed_or_deleted(tmp_path):
    """No statement of a whole study touches a row of the log again."""
    study = Study.create(spec_of(keep={"checkpoints": "none"}), tmp_path / "s")
    statements = []
    study.store._connection.set_trace_callback(statements.append)
    study.run()
    study.close()
    touching = [
        text
        for text in statements
        if " event" in text.lower() and not text.upper().startswith("SELECT")
    ]
    assert touching
    assert all(text.startswith("INSERT INTO event ") for text in touching)


def test_the_tables_are_a_fold_over_the_events(tmp_path):
    finished(tmp_path / "s")
    connection = sqlite3.connect(tmp_path / "s" / "study.sqlite")
    again = sqlite3.connect(":memory:")
    schema.create(again)
    for seq, kind, body in connection.execute("SELECT seq, kind, body FROM event ORDER BY seq"):
        schema.apply(again, seq, kind, json.loads(body))
    names = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    assert len(names) >= 8
    for name in set(names) - {"event"}:
        assert list(connection.execute(f"SELECT * FROM {name}")) == list(
            again.execute(f"SELECT * FROM {name}")
        ), name
    connection.close()


def test_on_append_sees_an_event_only_once_it_is_durable(tmp_path):
    store = Store.create(tmp_path / "s", "text")
    seen = []

    def look(kind, body):
        with sqlite3.connect(tmp_path / "s" / "study.sqlite") as other:
            seen.append((kind, other.execute("SELECT COUNT(*) FROM event").fetchone()[0]))

    store.on_append = look
    store.append(NOTE)
    store.append(StudyFinished())
    assert seen == [("gave_up", 2), ("finished", 3)]
    store.close()


def test_a_live_study_can_be_read_while_it_is_written(tmp_path):
    store = Store.create(tmp_path / "s", "text")
    reader = sqlite3.connect(f"file:{tmp_path / 's' / 'study.sqlite'}?mode=ro", uri=True)
    reader.execute("BEGIN")
    assert reader.execute("SELECT COUNT(*) FROM event").fetchone() == (1,)
    store.append(NOTE)
    assert reader.execute("SELECT COUNT(*) FROM event").fetchone() == (1,), (
        "one read transaction, one state"
    )
    reader.execute("COMMIT")
    assert reader.execute("SELECT COUNT(*) FROM event").fetchone() == (2,)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM event")
    reader.close()
    store.close()


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"is not empty \(notes.txt\)"):
        Store.create(tmp_path, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_left_by_a_kill_before_anything_was_stored_can_be_used(tmp_path):
    (tmp_path / "study.lock").write_text("")
    (tmp_path / ".tmp-abc").write_text("half a study file")
    store = Store.create(tmp_path, "text")
    store.append(NOTE)
    store.close()
    assert (tmp_path / "study.yaml").read_text() == "text"


def test_a_study_killed_before_its_study_file_was_written_starts_from_nothing(tmp_path):
    """The database comes first: a folder with it alone is no study yet."""
    Study.create(spec_of(), tmp_path / "s").close()
    (tmp_path / "s" / "study.yaml").unlink()
    with pytest.raises(InputError, match="holds no study"):
        Study.open(tmp_path / "s")
    study = Study.create(spec_of(seed=3), tmp_path / "s")
    assert study.run().counts == {"scored": 3}
    assert [event.kind for event in study.store.events()].count("study_file") == 1
    study.close()


def test_tables_without_an_event_are_a_loss_but_for_studies_of_earlier_versions(tmp_path):
    with sqlite3.connect(tmp_path / "study.sqlite") as connection:
        schema.create(connection)
        with pytest.raises(InputError, match="holds no events"):
            check_recorded(tmp_path, connection)
        connection.execute("ALTER TABLE event DROP COLUMN hash")
        check_recorded(tmp_path, connection)
        (tmp_path / "checkpoints" / "0.0").mkdir(parents=True)
        with pytest.raises(InputError, match="holds no events"):
            check_recorded(tmp_path, connection)


def test_opening_what_is_no_study_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"holds no study \(study.yaml is missing\)"):
        Store.open(tmp_path)
    with pytest.raises(InputError, match="holds no study"):
        Study.open(tmp_path / "nowhere")


def test_the_study_file_of_the_log_has_its_keys_in_their_order_without_secrets():
    text = "name: s\ntrainer:\n  name: t\n  kwargs: {hub_token: abc}\nbudget: {runs: 6}\n"
    recorded = recordable(text)
    assert "abc" not in recorded
    assert list(yaml.safe_load(recorded)) == ["name", "trainer", "budget"]
    assert recordable("name: s  # mine\n") == "name: s  # mine\n"


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "s").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        Store.create(tmp_path / "s", "text")


READ_ONLY = """
    import os, sys
    from pathlib import Path
    from autorl.store import Store
    from autorl.types import InputError
    folder = Path(sys.argv[1])
    if os.getuid() == 0:
        os.setgid(65534); os.setuid(65534)
    for use in (lambda: Store.open(folder), lambda: Store.create(folder / "new", "x")):
        try:
            use()
        except InputError as error:
            print(str(error).replace(str(folder), "F"))
"""


def test_a_read_only_folder_is_one_line(tmp_path):
    folder = tmp_path / "s"
    finished(folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in tmp_path.parents:
        if (
            os.getuid() == 0
            and parent.stat().st_uid == 0
            and not parent.stat().st_mode & 0o001
            and parent != Path("/")
        ):
            parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READ_ONLY), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    if "ModuleNotFoundError" in found.stderr or (
        "Permission denied" in found.stderr and not found.stdout
    ):
        pytest.skip("the package itself is not readable by another user here")
    assert found.stdout.splitlines() == [
        "F: cannot be written (Permission denied)",
        "F/new: cannot be written (Permission denied)",
    ]


# -- one driver --------------------------------------------------------------------------------------------------------


def test_a_second_driver_is_told_who_holds_the_study(tmp_path):
    store = Store.create(tmp_path / "s", "text")
    with pytest.raises(
        InputError, match=rf"another driver works on this study \(process {os.getpid()} on "
    ):
        Store.open(tmp_path / "s")
    store.close()
    Store.open(tmp_path / "s").close()


def test_a_lock_is_released_by_kill_9(tmp_path):
    Store.create(tmp_path / "s", "text").close()
    code = "import sys, time; from pathlib import Path; from autorl.store import Store; "
    code += "store = Store.open(Path(sys.argv[1])); print('held', flush=True); time.sleep(7200)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(InputError, match=f"process {holder.pid} "):
                Store.open(tmp_path / "s")
        finally:
            holder.kill()
    Store.open(tmp_path / "s").close()


def test_a_process_that_a_killed_driver_was_starting_holds_its_lock_for_a_moment_only(tmp_path):
    """Between fork and exec it has the driver's files; a resume just then was refused."""
    Store.create(tmp_path / "s", "text").close()
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
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
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


HOLDER = """
    import sys
    from pathlib import Path
    from autorl.spec import load_spec
    from autorl.study import Study
    import json
    study = Study.create(load_spec(json.loads(sys.argv[2])), Path(sys.argv[1]))
    study.store.on_append = lambda kind, body: print(kind, flush=True)
    study.run()
"""


def test_a_killed_driver_whose_workers_still_run_does_not_hold_the_lock(tmp_path):
    """The workers are other processes: none of them may have inherited the lock."""
    study = {
        "trainer": {"name": "synthetic", "kwargs": {"seconds": 30.0}},
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
        "fidelity": {"steps": 10},
        "budget": {"runs": 2},
        "parallelism": 2,
        "seeds": {"tuning": 1, "test": 0},
        "executor": {"name": "processes", "workers": 2},
    }
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(HOLDER),
        str(tmp_path / "s"),
        json.dumps(study),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert [driver.stdout.readline().strip() for _ in range(3)] == [
                "session",
                "proposed",
                "proposed",
            ]
        finally:
            driver.kill()
    reopened = Study.open(tmp_path / "s")
    assert len(reopened.advance()) == 2
    reopened.close()


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_database_that_is_none_is_an_input_error(tmp_path):
    finished(tmp_path / "s")
    (tmp_path / "s" / "study.sqlite").write_bytes(b"this is not a database" * 100)
    with pytest.raises(
        InputError, match=r"study.sqlite: cannot be used \(file is not a database\)"
    ):
        Study.open(tmp_path / "s")


def test_a_refused_database_is_let_go_at_once(tmp_path):
    """Its connection stayed open until the garbage collector came by, with its log in the folder."""
    Store.create(tmp_path / "s", "text").close()
    with closing(sqlite3.connect(tmp_path / "s" / "study.sqlite")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        torn = "CREATE TABLE evals (-"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'evals'", (torn,))
    before = sorted(path.name for path in (tmp_path / "s").iterdir())
    gc.disable()
    try:
        with pytest.raises(InputError, match=r"cannot be used \(malformed database schema"):
            Store.open(tmp_path / "s")
        assert sorted(path.name for path in (tmp_path / "s").iterdir()) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_a_page_overwritten_in_the_middle_is_an_input_error_or_harmless(tmp_path, place):
    finished(tmp_path / "s")
    path = tmp_path / "s" / "study.sqlite"
    data = bytearray(path.read_bytes())
    page = int(len(data) * place) // 4096 * 4096
    data[page : page + 4096] = os.urandom(4096)
    path.write_bytes(bytes(data))
    try:
        study = Study.open(tmp_path / "s")
    except InputError as error:
        message = str(error)
    else:
        study.close()  # the page was of a derived table
        message = "study.sqlite"
    assert "study.sqlite" in message


def test_an_event_whose_body_is_torn_is_an_input_error(tmp_path):
    finished(tmp_path / "s")
    with sqlite3.connect(tmp_path / "s" / "study.sqlite") as connection:
        connection.execute("UPDATE event SET body = substr(body, 1, 20) WHERE seq = 5")
    damaged = (
        r"study.sqlite: is damaged \(event 5 is not what was recorded, events 1 to 4 are whole\)"
    )
    for _ in range(2):  # the failed attempt released the lock
        with pytest.raises(InputError, match=damaged):
            Study.open(tmp_path / "s")


def test_a_torn_study_file_is_an_input_error(tmp_path):
    finished(tmp_path / "s")
    path = tmp_path / "s" / "study.yaml"
    path.write_text(path.read_text()[:40])
    with pytest.raises(InputError, match=r"study.yaml"):
        Study.open(tmp_path / "s")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path):
    finished(tmp_path / "s")
    path = tmp_path / "s" / "study.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(
        InputError,
        match=rf"newer autorl \(schema {schema.SCHEMA_VERSION + 1}; this one reads up to",
    ):
        Study.open(tmp_path / "s")
    assert path.read_bytes() == before


# -- old and moved studies ---------------------------------------------------------------------------------------------


def old_study(folder):
    folder.mkdir()
    (folder / "study.yaml").write_text((HERE / "study_v1.yaml").read_text())
    connection = sqlite3.connect(folder / "study.sqlite")
    connection.executescript((HERE / "study_v1.sql").read_text())
    connection.close()
    return folder


def test_a_study_of_schema_version_1_is_read(tmp_path):
    study = Study.open(old_study(tmp_path / "s"))
    result = study.result()
    assert (result.incumbent.proposal, result.counts) == (0, {"scored": 2})
    assert result.tuning == pytest.approx(1.0347844001211022)
    assert dict(result.test.seeds) == {100: 0.8326899699715816}
    assert study.run() == result, "it is finished"
    study.close()


def test_a_study_of_schema_version_1_goes_on(tmp_path):
    study = Study.open(old_study(tmp_path / "s"))
    study.extend(4)
    result = study.run()
    assert result.counts == {"scored": 4}
    fresh = Study.create(
        study.spec.model_copy(
            update={"budget": study.spec.budget.model_copy(update={"runs": 8.0})}
        ),
        tmp_path / "t",
    )
    fresh.run()
    same = "SELECT proposal, config_hash FROM proposals JOIN configs USING (config_id) ORDER BY proposal"
    assert study.store.query(same) == fresh.store.query(same), (
        "the generators of a release are those of the next"
    )
    for one in (study, fresh):
        one.close()


def test_a_moved_and_copied_study_goes_on(tmp_path):
    whole, here = tmp_path / "whole", tmp_path / "here"
    finished(whole)
    study = Study.create(spec_of(), here)
    pool = InProcess(study.load)
    for _ in range(3):
        pool.submit(study.advance())
        study.record(pool.poll(0)[-1])
    study.close()
    there = tmp_path / "elsewhere" / "there"
    there.parent.mkdir()
    here.rename(there)
    study = Study.open(there)
    study.run()
    study.close()
    same = "SELECT proposal, score FROM proposals ORDER BY proposal"
    rows = [
        sqlite3.connect(folder / "study.sqlite").execute(same).fetchall()
        for folder in (whole, there)
    ]
    assert rows[0] == rows[1]
    with sqlite3.connect(there / "study.sqlite") as connection:
        paths = [
            path
            for (path,) in connection.execute(
                "SELECT checkpoint FROM segments WHERE checkpoint IS NOT NULL"
            )
        ]
    assert paths
    assert not any(Path(path).is_absolute() for path in paths)


def test_a_store_in_memory_has_no_folder():
    store = Store.in_memory()
    store.append(SessionBegun(FrozenMap(a=1)))
    assert [recorded.event for recorded in store.events()] == [SessionBegun(FrozenMap(a=1))]
    assert (store.folder, store.relative("/a/b"), store.locate("c")) == (None, "/a/b", "c")
    assert not store.owns(Path("/a/b"))
    store.close()


def test_a_locked_database_is_a_study_error(tmp_path):
    store = Store.create(tmp_path / "s", "text")
    store._connection.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / "s" / "study.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(
        StudyError, match=r"cannot be written \(database is locked\); what was recorded is kept"
    ):
        store.append(NOTE)
    other.execute("ROLLBACK")
    other.close()
    store.append(NOTE)
    store.close()


def test_a_disk_that_is_full_at_the_start_is_one_line_and_the_study_can_be_begun(
    tmp_path, monkeypatch
):
    from autorl.store import store as module

    def small(path):
        connection = connect(path)
        connection.execute("PRAGMA max_page_count = 3")
        return connection

    connect = module._connect
    monkeypatch.setattr(module, "_connect", small)
    with pytest.raises(InputError, match=r"s: cannot be written \(the disk is full"):
        Store.create(tmp_path / "s", "text")
    monkeypatch.setattr(module, "_connect", connect)
    Store.create(tmp_path / "s", "text").close()


def test_a_snapshot_of_a_database_without_a_log_has_none_either(tmp_path):
    path = tmp_path / "study.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
    with closing(snapshot(path)) as copy:
        assert copy.execute("SELECT name FROM sqlite_master").fetchall() == [("other",)]
