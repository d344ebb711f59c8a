"""A checkpoint that is not what was saved is treated as gone: never trained on, never charged to a configuration."""

import os
import shutil
from contextlib import suppress

import pytest
from scripted import Scripted, Toy, chain, run, study_with, toy_spec
from study_support import (
    StoppedError,
    checkpoint_of,
    part_of,
    run_small,
    saved_segments,
    segment_of,
    stop_after,
    table,
)
from test_lineage import waiting_for

from autorl.core.types import Status, StudyError
from autorl.executors import InProcess
from autorl.executors.worker import run_segment
from autorl.study import Study

ASHA = {"optimizer": {"name": "asha", "rungs": 3}, "budget": {"runs": 12}, "parallelism": 4}


def only_file(folder):
    return max(
        (path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )


def flip(folder):
    path = only_file(folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(folder):
    path = only_file(folder)
    os.truncate(path, path.stat().st_size // 2)


def empty(folder):
    only_file(folder).write_bytes(b"")


def remove_files(folder):
    for path in folder.iterdir():
        path.unlink()


DAMAGES = [flip, truncate, empty, remove_files]


def exchange(checkpoints):
    """Every checkpoint gets the contents of the next."""
    folders = sorted(path for path in checkpoints.iterdir() if path.is_dir())
    for folder in folders:
        folder.rename(folder.with_name(f"moving {folder.name}"))
    for folder, other in zip(folders, [*folders[1:], folders[0]], strict=True):
        folder.with_name(f"moving {folder.name}").rename(other)


def interrupted(folder, events, **changes):
    """The checkpoints of a study that stopped after so many events."""
    return part_of(folder, events, **changes) / "checkpoints"


def resumed(folder, executor=None):
    study = Study.open(folder)
    study.run(executor=executor)
    study.close()
    return table(folder)


def scores(tables):
    """Read the columns that must not depend on the fate of checkpoints: all but steps, parents,
    notes and costs."""
    segments = [(row[0], row[1], row[2], row[3], row[9]) for row in tables["segments"]]
    same = ("configurations", "proposals", "reports", "reductions", "tests")
    return {name: tables[name] for name in same} | {"segments": segments}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints_change_no_score(tmp_path, capsys, damage):
    run_small(tmp_path / "whole", **ASHA)
    whole = table(tmp_path / "whole")
    checkpoints = interrupted(tmp_path / "damaged", 30, **ASHA)
    assert capsys.readouterr().err == ""
    folders = list(checkpoints.iterdir())
    assert len(folders) >= 4
    for folder in folders:
        damage(folder)
    tables = resumed(tmp_path / "damaged")
    assert scores(tables) == scores(whole)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(
        line.startswith("autorl: checkpoint ") and "not continued from; moved to " in line
        for line in lines
    )
    aside = {segment_of(path) for path in (checkpoints / "damaged").iterdir()}
    assert {line.split()[2] for line in lines} == aside <= set(map(segment_of, folders))


def two_links(monkeypatch, folder, trainer, second=0.5, **changes):
    """A chain of two segments whose first is trained; `second` is the configuration of the other."""
    script = [chain(0.5, 50, member="a"), chain(second, 100, 0, "a")]
    optimizer = Scripted(waiting_for(script), keeps=lambda seen: range(2))
    study = study_with(monkeypatch, toy_spec(parallelism=1, **changes), optimizer, trainer, folder)
    (first,) = study.advance()
    study.record(run_segment(study.load, first, lambda report: None))
    return study


def test_the_trainer_never_sees_a_damaged_checkpoint(monkeypatch, tmp_path):
    trainer = Toy()
    study = two_links(monkeypatch, tmp_path / "study", trainer, failures={"retries": 0})
    flip(checkpoint_of(tmp_path / "study", "0.0"))
    run(study)
    assert [(segment.id, segment.parent) for segment in trainer.segments] == [
        ("0.0", None),
        ("1.0", None),
    ]
    assert study.store.query("SELECT COUNT(*) FROM event WHERE kind = 'attempt'") == [(0,)]
    assert study.store.query("SELECT status, notes FROM segments WHERE segment = '1.0'") == [
        (
            "done",
            "checkpoint 0.0 is damaged (lineage.json differs from what was saved): trained from step 0",
        )
    ]
    damaged = tmp_path / "study" / "checkpoints" / "damaged"
    assert [segment_of(path) for path in damaged.iterdir()] == ["0.0"]
    study.close()
    Study.open(tmp_path / "study", study.load).close()
    assert [segment_of(path) for path in damaged.iterdir()] == ["0.0"], "not swept"


@pytest.mark.parametrize("damage", [flip, shutil.rmtree])
def test_the_parent_of_a_change_is_trained_again(monkeypatch, tmp_path, capsys, damage):
    trainer = Toy()
    study = two_links(monkeypatch, tmp_path / "study", trainer, second=0.6)
    damage(checkpoint_of(tmp_path / "study", "0.0"))
    run(study)
    assert [segment.id for segment in trainer.segments] == ["0.0", "0.0", "1.0"]
    assert trainer.segments[-1].parent.segment == "0.0"
    assert study.store.query("SELECT segment, status, notes FROM segments") == [
        ("0.0", "done", ""),
        ("1.0", "done", ""),
    ]
    again = "segment 0.0 is trained again for its checkpoint, beyond the budget"
    assert study.tables.notes() == [again]
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"autorl: {again}"
    assert lines[0].startswith("autorl: checkpoint 0.0 is damaged") == (damage is flip)


def test_a_parent_that_gives_other_values_the_second_time_ends_the_study(monkeypatch, tmp_path):
    values = iter([0.3, 0.4, 0.5])
    trainer = Toy(curve=lambda config, seed, step: next(values))
    study = two_links(monkeypatch, tmp_path / "study", trainer, second=0.6)
    flip(checkpoint_of(tmp_path / "study", "0.0"))
    with pytest.raises(
        StudyError,
        match=r"0\.0, trained again for its checkpoint, has other values than those recorded",
    ):
        run(study)


PBT = {
    "optimizer": {"name": "pbt", "population": 4, "generations": 4, "quantile": 0.5},
    "budget": {"runs": 8},
    "test": {"top": 1},
}


@pytest.mark.parametrize("events", [34, 50])
@pytest.mark.parametrize("damage", [flip, shutil.rmtree])
@pytest.mark.parametrize("exploit", ["copy", "average"])
def test_populations_train_again_what_was_damaged(tmp_path, capsys, damage, events, exploit):
    """Members copy each other's agents and change their configurations: no run can begin anew at step 0."""
    changes = {**PBT, "optimizer": {**PBT["optimizer"], "exploit": exploit}}
    run_small(tmp_path / "whole", **changes)
    folders = list(interrupted(tmp_path / "damaged", events, **changes).iterdir())
    assert len(folders) >= 4
    for folder in folders:
        damage(folder)
    study = Study.open(tmp_path / "damaged")
    study.run()
    again = study.store.query("SELECT body FROM event WHERE kind = 'regained'")
    study.close()
    assert again
    tables, whole = table(tmp_path / "damaged"), table(tmp_path / "whole")
    assert scores(tables) == scores(whole)
    assert "is trained again for its checkpoint" in capsys.readouterr().err
    assert saved_segments(tmp_path / "damaged") - {"damaged"} == saved_segments(tmp_path / "whole")


@pytest.mark.slow
def test_killed_while_it_trains_again_a_population_ends_with_the_same_scores(tmp_path):
    run_small(tmp_path / "whole", **PBT)
    for folder in list(interrupted(tmp_path / "killed", 50, **PBT).iterdir()):
        flip(folder)
    stopped = True
    while stopped:
        study = Study.open(tmp_path / "killed")
        left = stop_after(study, 3)
        with suppress(StoppedError):
            study.run()
        stopped = left[0] <= 0
        study.close()
    assert scores(table(tmp_path / "killed")) == scores(table(tmp_path / "whole"))


def test_a_folder_is_moved_only_when_nobody_reads_it_any_more(monkeypatch, tmp_path):
    """Two segments continue one checkpoint; one began before the damage and is still at it when the other finds it."""
    script = [chain(0.5, 50, member="a"), chain(0.5, 100, 0, "a"), chain(0.5, 100, 0, "a", y=0.6)]
    optimizer = Scripted(waiting_for(script), keeps=lambda seen: range(3))
    study = study_with(monkeypatch, toy_spec(parallelism=2), optimizer, Toy(), tmp_path / "study")
    pool = InProcess(study.load)
    (first,) = study.advance()
    pool.submit([first])
    study.record(pool.poll(0)[-1])
    reader, other = study.advance()
    assert reader.parent == other.parent
    finished = run_segment(study.load, reader, lambda report: None)
    folder = checkpoint_of(tmp_path / "study", "0.0")
    flip(folder)
    found = run_segment(study.load, other, lambda report: None)
    assert (found.status, found.damage) == (Status.LOST, "lineage.json differs from what was saved")
    study.record(found)
    assert folder.exists()
    study.record(finished)
    assert not folder.exists()
    assert study.store.query("SELECT status FROM segments WHERE segment = ?", (reader.id,)) == [
        ("done",)
    ]


def test_exchanged_checkpoints_are_not_trained_on(tmp_path, capsys):
    run_small(tmp_path / "whole", **ASHA)
    checkpoints = interrupted(tmp_path / "damaged", 30, **ASHA)
    exchange(checkpoints)
    assert scores(resumed(tmp_path / "damaged")) == scores(table(tmp_path / "whole"))
    assert "differs from what was saved" in capsys.readouterr().err


def test_damage_ends_like_a_deleted_folder(tmp_path):
    """The one mechanism: tables are equal but for the note that says why a run began anew."""
    checkpoints = interrupted(tmp_path / "deleted", 30, **ASHA)
    shutil.copytree(tmp_path / "deleted", tmp_path / "flipped")
    for folder in list(checkpoints.iterdir()):
        shutil.rmtree(folder)
        flip(tmp_path / "flipped" / "checkpoints" / folder.name)
    deleted, flipped = resumed(tmp_path / "deleted"), resumed(tmp_path / "flipped")
    notes = [
        (before[11], after[11])
        for before, after in zip(deleted["segments"], flipped["segments"], strict=True)
        if before != after
    ]
    assert notes
    for before, after in notes:
        assert before == "no checkpoint to continue: trained from step 0"
        assert after.startswith("checkpoint ")
        assert after.endswith("differs from what was saved): trained from step 0")
    deleted["segments"] = [(*row[:11], *row[12:]) for row in deleted["segments"]]
    flipped["segments"] = [(*row[:11], *row[12:]) for row in flipped["segments"]]
    assert deleted == flipped


def test_a_kill_after_the_move_ends_with_the_same_scores(tmp_path):
    run_small(tmp_path / "whole", **ASHA)
    for folder in list(interrupted(tmp_path / "killed", 30, **ASHA).iterdir()):
        flip(folder)
    for _ in range(4):
        study = Study.open(tmp_path / "killed")
        stop_after(study, 3)
        with pytest.raises(StoppedError):
            study.run()
        study.close()
    assert scores(resumed(tmp_path / "killed")) == scores(table(tmp_path / "whole"))
