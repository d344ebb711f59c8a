"""`verify` finds what is damaged and says what can be saved; `backup` copies a study that goes on to the same table."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest
from refusals import expect_error
from study_support import checkpoint_of, part_of, resume, run_small, segment_of, table
from test_proof import change, edit

from autorl.core.types import InputError, SegmentId
from autorl.store import Store
from autorl.store.codec import read_event
from autorl.store.events import CheckpointsCollected
from autorl.study.folder import safety as backup_module
from autorl.study.folder.safety import backup, verify
from autorl.study.spec import thaw

KEPT = {"keep": {"checkpoints": "lineage"}}


def last_event(folder):
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        return connection.execute("SELECT max(seq) FROM event").fetchone()[0]


@pytest.fixture(scope="module")
def whole_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "s"
    run_small(folder, **KEPT)
    return table(folder)


# -- verify ------------------------------------------------------------------------------------------------------------


def test_a_whole_study_is_whole(tmp_path):
    folder = part_of(tmp_path / "s", 40, **KEPT)
    verdict = verify(folder)
    assert (verdict.whole, verdict.problems) == (True, [])
    assert verdict.events == last_event(folder)
    assert verdict.checkpoints == len(list((folder / "checkpoints").iterdir()))
    resume(folder)
    assert verify(folder).whole


TABLES = {
    "UPDATE runs SET environment_steps = environment_steps + 1 WHERE run_id = 1": "table runs .*first at run_id 1$",
    "INSERT INTO tests VALUES (7, 'x', 0, 1, 1.0, 'done')": "table tests .*first at proposal 7, objective 0, seed 1",
    "DROP TABLE reductions": "table .reductions. is missing",
}


@pytest.mark.parametrize(
    "sql", TABLES, ids=[sql.split()[1] + " " + sql.split()[0] for sql in TABLES]
)
def test_a_table_that_does_not_follow_from_the_events_is_named(tmp_path, sql):
    folder = part_of(tmp_path / "s", 40)
    change(folder, sql)
    (problem,) = verify(folder).problems
    assert re.search(TABLES[sql], problem)


def test_a_broken_chain_is_named_with_what_can_be_saved(tmp_path, whole_table):
    folder = part_of(tmp_path / "s", 40, **KEPT)
    change(folder, "UPDATE event SET body = replace(body, '0.', '1.') WHERE seq = 25")
    verdict = verify(folder)
    assert verdict.problems[0] == "study.sqlite: event 25 is not what was recorded"
    assert verdict.events == 24
    assert f"`autorl backup {folder} COPY --until 24`" in verdict.advice
    expect_error("event 25 is not what was recorded", backup, folder, tmp_path / "copy")
    with pytest.raises(InputError, match="expected 1 to 24, the events that are whole, got 25"):
        backup(folder, tmp_path / "copy", until=25)
    assert not (tmp_path / "copy").exists()
    made = backup(folder, tmp_path / "copy", until=24)
    assert (made.events, verify(tmp_path / "copy").problems) == (24, [])
    resume(tmp_path / "copy")
    assert table(tmp_path / "copy") == whole_table


def test_checkpoints_that_are_missing_or_differ_are_named(tmp_path):
    folder = part_of(tmp_path / "s", 40, **KEPT)
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        saved = sorted(
            json.loads(body)["outcome"]["segment"]
            for (body,) in connection.execute("SELECT body FROM event WHERE kind = 'outcome'")
        )
    shutil.rmtree(checkpoint_of(folder, saved[0]))
    assert verify(folder).problems == [f"checkpoint {saved[0]}: the folder is missing"]
    (checkpoint_of(folder, saved[1]) / "state.autorl").write_text("{}", encoding="utf-8")
    assert verify(folder).problems == [
        f"checkpoint {saved[0]}: the folder is missing",
        f"checkpoint {saved[1]}: state.autorl differs from what was saved",
    ]


def rewrite(folder, change_body):
    """Write all events of a study anew, with other bodies."""
    store = Store.open(folder)
    events = store.query("SELECT kind, body FROM event ORDER BY seq")[1:]
    store.close()
    text = (folder / "study.yaml").read_text(encoding="utf-8")
    anew = Store.create(folder.with_name("anew"), text, thaw(text, "").search_space.hash)
    for kind, text in events:
        body = json.loads(text)
        change_body(kind, body)
        anew.append(read_event(kind, body))
    anew.close()
    for path in folder.glob("study.*"):
        path.unlink()
    for path in folder.with_name("anew").glob("study.*"):
        path.rename(folder / path.name)
    shutil.rmtree(folder.with_name("anew"))


def test_files_that_no_event_names_are_noted_and_newer_ones_are_damage(tmp_path):
    folder = part_of(tmp_path / "s", 40, **KEPT)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    (folder / "checkpoints" / "odd").mkdir()
    verdict = verify(folder)
    assert verdict.whole
    assert "no event names checkpoints/odd, notes.txt" in verdict.notes
    (folder / "checkpoints" / "99.0").mkdir()
    verdict = verify(folder)
    assert "study.sqlite is older than the folder" in verdict.problems[0]
    assert "checkpoints/99.0" in verdict.problems[0]
    backup(folder, tmp_path / "copy")
    assert verify(tmp_path / "copy").problems == []


@pytest.mark.parametrize("content", [None, b"", b"no database" * 500])
def test_a_record_that_is_lost_is_a_problem_and_not_a_traceback(tmp_path, content):
    folder = part_of(tmp_path / "s", 20, **KEPT)
    for path in folder.glob("study.sqlite*"):
        path.unlink()
    if content is not None:
        (folder / "study.sqlite").write_bytes(content)
    verdict = verify(folder)
    assert len(verdict.problems) == 1
    assert "nothing can be read from the log" in verdict.advice


def test_a_study_file_that_is_missing_or_edited_is_a_problem(tmp_path, whole_table):
    folder = part_of(tmp_path / "s", 40, **KEPT)
    text = (folder / "study.yaml").read_text(encoding="utf-8")
    edit(folder, "seed", 9)
    (problem,) = verify(folder).problems
    assert "seed (was 0, is 9)" in problem
    (folder / "study.yaml").unlink()
    (problem,) = verify(folder).problems
    assert "study.yaml cannot be compared" in problem
    made = backup(folder, tmp_path / "copy")
    assert "the copy has the one the study began with" in made.notes[0]
    assert (tmp_path / "copy" / "study.yaml").read_text(encoding="utf-8") == text
    resume(tmp_path / "copy")
    assert table(tmp_path / "copy") == whole_table


# -- backup ------------------------------------------------------------------------------------------------------------

DRIVER = """
    import sys
    from pathlib import Path
    sys.path[:0] = [sys.argv[2], str(Path(sys.argv[2]).parent)]
    from study_support import follow, small_spec
    from autorl.study import Study
    study = Study.create(small_spec(keep={"checkpoints": sys.argv[3]}, budget={"runs": 60}), Path(sys.argv[1]))
    def wait(event):
        if event.kind == "outcome":
            print(event.kind, flush=True)
            sys.stdin.readline()
    follow(study, wait)
    study.run()
"""


@pytest.mark.parametrize("keep", ["lineage", "incumbent"])
def test_a_copy_taken_while_the_study_runs_goes_on_to_the_same_table(tmp_path, keep):
    changes = {"keep": {"checkpoints": keep}, "budget": {"runs": 60}}
    run_small(tmp_path / "whole", **changes)
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path / "s"), here, keep]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        for number in range(20):
            assert driver.stdout.readline() == "outcome\n"
            if number == 15:
                driver.stdin.write("\n" * 1000)  # it runs while it is copied
            driver.stdin.write("\n")
            driver.stdin.flush()
        made = backup(tmp_path / "s", tmp_path / "copy")
        driver.communicate()
    assert made.events >= 20
    assert driver.returncode == 0
    assert verify(tmp_path / "copy").problems == []
    resume(tmp_path / "copy")
    assert table(tmp_path / "copy") == table(tmp_path / "whole") == table(tmp_path / "s")


def test_a_checkpoint_that_goes_meanwhile_is_read_from_a_newer_log(
    tmp_path, monkeypatch, whole_table
):
    folder = part_of(tmp_path / "s", 40, **KEPT)
    original, gone = backup_module._copy_folder, []

    def copy(source, target):
        if not gone:  # the driver gives this one up just now, event first
            gone.append(source.name)
            store = Store.open(folder)
            store.append(CheckpointsCollected((SegmentId.parse(segment_of(source)),)))
            store.close()
            shutil.rmtree(source)
        original(source, target)

    monkeypatch.setattr(backup_module, "_copy_folder", copy)
    made = backup(folder, tmp_path / "copy")
    assert made.notes == []
    assert made.events == last_event(folder)
    copied = tmp_path / "copy"
    assert made.checkpoints == len(list((copied / "checkpoints").iterdir())) > 0
    assert made.logs == len(list((copied / "logs").glob("*")))
    assert not (tmp_path / "copy" / "checkpoints" / gone[0]).exists()
    assert verify(tmp_path / "copy").problems == []


def test_a_copy_never_writes_over_anything_or_out_of_its_folder(tmp_path):
    folder = part_of(tmp_path / "s", 40, **KEPT)
    (tmp_path / "there").mkdir()
    expect_error("is there already", backup, folder, tmp_path / "there")
    expect_error("lies among the files", backup, folder, folder / "copy")
    expect_error(r"study.sqlite: is missing", backup, tmp_path / "there", tmp_path / "copy")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("x", encoding="utf-8")

    def leave(kind, body):
        if kind == "outcome" and (saved := body["outcome"].get("checkpoint")):
            saved["path"] = f"checkpoints/../../secret/{body['outcome']['segment']}/.."

    rewrite(folder, leave)
    made = backup(folder, tmp_path / "copy")
    assert made.checkpoints == 0
    problems = verify(folder).problems
    assert len(problems) == len(made.notes) > 5
    assert all("its path leads out of the folder" in problem for problem in problems + made.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "s", "secret", "there"]


def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    folder = part_of(tmp_path / "s", 40, **KEPT)

    def full(source, target, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(InputError, match=r"copy: cannot be written \(No space left on device\)"):
        backup(folder, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


# -- parts -------------------------------------------------------------------------------------------------------------


def test_a_copy_of_the_first_event_alone_and_one_in_a_new_place(tmp_path):
    folder = part_of(tmp_path / "s", 12)
    made = backup(folder, tmp_path / "deep" / "down" / "copy", until=1)
    assert (made.events, made.checkpoints) == (1, 0)
    for until in (0, last_event(folder) + 1):
        with pytest.raises(InputError, match=f"got {until}") as refused:
            backup(folder, tmp_path / "other", until=until)
        assert refused.value.key == "--until"
    (tmp_path / "link").symlink_to("gone")
    expect_error("is there already", backup, folder, tmp_path / "link")
