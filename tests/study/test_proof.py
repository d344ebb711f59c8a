"""The record of a study is proven when it is opened: damage, loss and edits are one line, and nothing is deleted."""

import os
import random
import shutil
import sqlite3
from contextlib import closing

import pytest
import yaml
from refusals import expect_error
from study_support import follow, part_of, resume, run_small, small_spec, table

from autorl.core.types import InputError, StudyError
from autorl.store.events import SearchGivenUp
from autorl.store.study_file import check_unchanged, study_begun
from autorl.study import Study
from autorl.study.folder.safety import backup

KEPT = {"keep": {"checkpoints": "lineage"}}


def change(folder, sql, *values):
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection, connection:
        connection.execute(sql, values)


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# -- the chain ---------------------------------------------------------------------------------------------------------


EDITS_OF_EVENTS = {
    "a body": "UPDATE event SET body = replace(body, '0.', '1.') WHERE seq = 7",
    "no hash": "UPDATE event SET hash = NULL WHERE seq = 7",
    "not text": "UPDATE event SET body = CAST(x'ff00' AS TEXT) WHERE seq = 7",
}


@pytest.mark.parametrize("sql", EDITS_OF_EVENTS.values(), ids=EDITS_OF_EVENTS)
def test_an_event_that_was_changed_is_named(tmp_path, sql):
    folder = part_of(tmp_path / "s", 14)
    change(folder, sql)
    before = names(folder)
    expect_error(
        r"study.sqlite: is damaged \(event 7 .*events 1 to 6 are whole", Study.open, folder
    )
    assert names(folder) == before


def test_bits_that_flip_in_the_database_never_pass_unseen(tmp_path):
    """One flipped bit: refused with one line, or, in space that is not used, every table is what it was."""
    whole = part_of(tmp_path / "whole", 40)
    data = (whole / "study.sqlite").read_bytes()
    recorded = table(whole)
    rng, lines = random.Random(14), []
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    for _ in range(60):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        for path in copy.glob("study.sqlite*"):
            path.unlink()
        (copy / "study.sqlite").write_bytes(bytes(flipped))
        try:
            study = Study.open(copy)
        except InputError as error:
            lines.append(str(error))
        else:
            study.close()
            assert table(copy) == recorded
    # The test reaches what is used: over half of so small a database is free space.
    assert len(lines) >= 20
    assert not [text for text in lines if "\n" in text]


# -- a record that is lost ---------------------------------------------------------------------------------------------


def lose_all(folder):
    for path in folder.glob("study.sqlite*"):
        path.unlink()


def empty(folder):
    lose_all(folder)
    (folder / "study.sqlite").write_bytes(b"")


def leave_the_log_behind(folder):
    """A copy of the main file alone, of a study whose every event is still in the write-ahead log."""
    lose_all(folder)
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def only_tables(folder):
    change(folder, "DELETE FROM event")


@pytest.mark.parametrize("lose", [lose_all, empty, leave_the_log_behind, only_tables])
def test_a_study_whose_record_is_lost_is_refused_and_keeps_its_checkpoints(tmp_path, lose):
    folder = part_of(tmp_path / "s", 30, **KEPT)
    lose(folder)
    before = names(folder / "checkpoints")
    assert before
    assert "nothing was changed" in str(
        expect_error(r"study.sqlite: (is missing|is empty|holds no events)", Study.open, folder)
    )
    assert names(folder / "checkpoints") == before


def test_an_older_database_beside_newer_checkpoints_is_refused(tmp_path):
    folder = part_of(tmp_path / "s", 15, **KEPT)
    shutil.copy(folder / "study.sqlite", tmp_path / "older.sqlite")
    resume(folder)
    before = names(folder / "checkpoints")
    shutil.copy(tmp_path / "older.sqlite", folder / "study.sqlite")
    with pytest.raises(
        InputError, match=r"ends with \d+ proposals, but checkpoints/\d+\.\d+-2-0 is of a later one"
    ):
        Study.open(folder)
    assert names(folder / "checkpoints") == before


def test_a_whole_checkpoint_that_no_event_names_is_not_deleted(tmp_path):
    """The log ends a little early: what it calls open may be finished on disk, and is trained again or stays."""
    folder = part_of(tmp_path / "s", 30, **KEPT)
    with closing(sqlite3.connect(folder / "study.sqlite")) as connection:
        ((last,),) = connection.execute(
            "SELECT seq FROM event WHERE kind = 'outcome' ORDER BY seq DESC LIMIT 1"
        )
    before = names(folder / "checkpoints")
    backup(folder, tmp_path / "shorter", until=last - 1)
    shutil.copy(tmp_path / "shorter" / "study.sqlite", folder / "study.sqlite")
    Study.open(folder)
    assert names(folder / "checkpoints") == before


# -- a study file that was edited --------------------------------------------------------------------------------------


def edit(folder, key, value):
    """Set a dotted key of the stored study file."""
    data = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    *above, last = key.split(".")
    place = data
    for name in above:
        place = place[name]
    place[last] = value
    (folder / "study.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")


EDITS = {
    "seed": (7, "seed (was 0, is 7)"),
    "trainer.kwargs.optimum.x": (0.2, "trainer.kwargs.optimum.x (was 0.7, is 0.2)"),
    "seeds.tuning": ([0, 1, 2], "seeds.tuning (was [0, 1], is [0, 1, 2])"),
    "optimizer.name": ("sobol", "optimizer.name (was 'random', is 'sobol')"),
    "space.hyperparameters.x.upper": (0.5, "space.hyperparameters.x.upper (was 1.0, is 0.5)"),
}


def test_the_log_holds_no_secret_and_a_secret_may_change(tmp_path):
    text = "trainer: {kwargs: {environment_variables: {WANDB_API_KEY: first-secret}}}\nseed: 0\n"
    begun = study_begun(text, None)
    assert "first-secret" not in str(begun)
    changed = text.replace("first-secret", "second-secret")
    check_unchanged(begun, changed, tmp_path / "study.yaml")
    with pytest.raises(InputError, match=r"began: seed \(was 0, is 5\); put it back") as caught:
        check_unchanged(begun, changed.replace("seed: 0", "seed: 5"), tmp_path / "study.yaml")
    assert "-secret" not in str(caught.value)


@pytest.mark.parametrize("key", EDITS)
def test_a_study_file_that_was_edited_is_named_key_by_key(tmp_path, key):
    value, text = EDITS[key]
    folder = part_of(tmp_path / "s", 20)
    edit(folder, key, value)
    error = expect_error("", Study.open, folder)
    assert f"changed since the study began: {text}; put it back" in str(error)
    assert str(error).startswith(f"{folder / 'study.yaml'}:")


def test_what_is_no_part_of_the_table_may_be_edited(tmp_path):
    """Place, executor and room of the study may change; so may comments and the order of keys."""
    run_small(tmp_path / "whole")
    folder = part_of(tmp_path / "s", 20)
    for key, value in {"path": "/", "executor.workers": 2, "limits.disk_gb": 50}.items():
        edit(folder, key, value)
    file = folder / "study.yaml"
    file.write_text("# mine\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    resume(folder)
    assert table(folder) == table(tmp_path / "whole")


# -- a folder that goes away under a running study ---------------------------------------------------------------------


def remove_folder(folder):
    shutil.rmtree(folder)


def remove_database(folder):
    (folder / "study.sqlite").unlink()


def move_folder(folder):
    folder.rename(folder.with_name("moved"))


def replace_database(folder):
    shutil.copy(folder / "study.sqlite", folder / "copy")
    os.replace(folder / "copy", folder / "study.sqlite")


@pytest.mark.parametrize("lose", [remove_folder, remove_database, move_folder, replace_database])
def test_a_folder_that_goes_away_ends_the_study_at_the_next_event(tmp_path, lose):
    study = Study.create(small_spec(), tmp_path / "s")
    seen = []

    def on_append(event):
        seen.append(event.kind)
        if len(seen) == 10:
            lose(tmp_path / "s")

    follow(study, on_append)
    with pytest.raises(
        StudyError, match=r"study.sqlite: was removed, moved or replaced while the study ran"
    ) as error:
        study.run()
    # What was in one transaction with the tenth event is told of, and no outcome after it.
    assert len(seen) >= 10
    assert "outcome" not in seen[10:]
    assert "\n" not in str(error.value)


# -- two drivers -------------------------------------------------------------------------------------------------------


def test_a_lock_file_that_is_removed_by_hand_lets_no_second_driver_in(tmp_path):
    run_small(tmp_path / "whole")
    study = Study.create(small_spec(), tmp_path / "s")
    (tmp_path / "s" / "study.lock").unlink()
    with pytest.raises(
        InputError, match=r"another driver works on this study \(its study.lock was removed\)"
    ):
        Study.open(tmp_path / "s")
    study.run()
    study.close()
    assert table(tmp_path / "s") == table(tmp_path / "whole")


def test_a_second_driver_on_a_disk_without_locks_ends_with_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", lambda file, how: None)
    first = Study.create(small_spec(), tmp_path / "s")
    second = Study.open(tmp_path / "s")
    first.store.append(SearchGivenUp(""))
    with pytest.raises(
        StudyError, match=r"another process has written to this study \(event 2 after our 1\)"
    ):
        second.run()
    first.run()


def test_two_events_that_were_exchanged_are_noticed(tmp_path):
    folder = part_of(tmp_path / "s", 14)
    for old, new in ((7, 99), (8, 7), (99, 8)):
        change(folder, "UPDATE event SET seq = ? WHERE seq = ?", new, old)
    expect_error("event 7 is not what was recorded", Study.open, folder)
