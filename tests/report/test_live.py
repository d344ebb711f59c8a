"""Looking at a study again and again: what is new is seen, what is not costs nothing, nothing is written."""

import shutil
import subprocess
import sys
from contextlib import ExitStack

import pytest
from refusals import expect_error
from report_support import run_study

from autorl.core.seeds import SeedPlan
from autorl.report.configurations import configuration_rows, counts_text
from autorl.report.live import LiveStudy, block, screen, search_seconds_left, watched
from autorl.report.reading import open_view
from autorl.study.results.record import StudyRecord
from autorl.study.tuner import Tuner

SPACE = {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    """A finished study whose stopping rule and crashes have ended some of its runs early."""
    kwargs = {"optimum": {"x": 0.7}, "noise": 0.1, "crash": {"above": {"x": 0.6}}}
    return run_study(
        tmp_path_factory.mktemp("pruned") / "study",
        trainer={"name": "synthetic", "kwargs": kwargs},
        optimizer={"name": "random", "stop": "median", "peers": 2},
        seeds={"tuning": 2, "test": 0},
        parallelism=1,
    )


@pytest.fixture
def tuner(tmp_path):
    made = Tuner(
        SPACE, "random", seeds=SeedPlan(1, 2), path=tmp_path / "study", budget={"runs": 10}
    )
    yield made
    made.close()


def files(folder):
    """Content and time of every file of a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def scored(view):
    return len(configuration_rows(view.record))


def test_a_study_is_read_again_only_when_it_has_changed(tuner, tmp_path):
    live = LiveStudy(tmp_path / "study", scored)
    trial = tuner.ask()
    first = live.look()
    assert live.look() is first
    tuner.tell(trial, 1.0)
    tuner.ask()
    second = live.look()
    assert second.revision != first.revision
    assert (first.value, second.value) == (1, 2)
    tuner.close()
    # The same events, but nobody drives the study.
    assert live.look().revision != second.revision


def test_a_folder_that_cannot_be_read_is_an_input_error_until_it_changes(tmp_path):
    live = LiveStudy(tmp_path / "study", scored)
    expect_error(r"study\.yaml is missing", live.look)
    made = Tuner(SPACE, "random", path=tmp_path / "study")
    made.ask()
    assert live.look().value == 1
    made.close()
    (tmp_path / "study" / "study.sqlite").write_bytes(b"no database at all" * 100)
    expect_error("cannot be read", live.look)


HELD_OPEN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM event").fetchone()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("shared_memory", ["held open", "left behind", "missing"])
def test_looking_leaves_every_file_as_it_was(tuner, tmp_path, shared_memory):
    """Another process has the log open; a driver was killed; the log was copied without `-shm`."""
    tuner.tell(tuner.ask(), 1.0)
    folder = shutil.copytree(tmp_path / "study", tmp_path / "killed")
    with ExitStack() as undo:
        if shared_memory == "missing":
            (folder / "study.sqlite-shm").unlink()
        if shared_memory == "held open":
            command = [sys.executable, "-c", HELD_OPEN, str(folder / "study.sqlite")]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            holder = undo.enter_context(subprocess.Popen(command, text=True, **pipes))
            undo.callback(holder.communicate, "over")
            assert holder.stdout.readline() == "open\n"
        before = files(folder)
        assert ("study.sqlite-shm" in before) == (shared_memory != "missing")
        assert "study.sqlite-wal" in before
        assert LiveStudy(folder, scored).look().value == 1
        assert files(folder) == before


def test_states_follow_from_how_far_a_configuration_was_trained(pruned):
    view = open_view(pruned)
    rows = configuration_rows(view.record)
    counts = "min(proposal), max(until), max(status = 'crash')"
    found = view.store.query(f"SELECT {counts} FROM proposals GROUP BY config_id")
    best = view.record.tables.introduced(view.record.best)
    view.close()
    expected = {
        number: "crash" if crashed else "complete" if until == 100 else "pruned"
        for number, until, crashed in found
    }
    assert {row.number: row.state for row in rows} == expected
    assert {*expected.values()} == {"complete", "pruned", "crash"}
    assert [row.number for row in rows if row.incumbent] == [best]
    assert [row.failed for row in rows] == [row.state == "crash" for row in rows]
    n_pruned = [*expected.values()].count("pruned")
    assert f"{n_pruned} pruned" in counts_text(rows)


def test_what_waits_for_its_outcome_is_running(tuner, tmp_path):
    tuner.tell(tuner.ask(), 1.0)
    tuner.ask()
    view = open_view(tmp_path / "study")
    rows = configuration_rows(view.record)
    assert [row.state for row in rows] == ["complete", "running"]
    assert [row.until for row in rows] == [view.spec.fidelity.steps, 0]
    view.close()


def test_the_end_of_the_search_is_predicted_from_what_has_an_outcome(tuner, tmp_path):
    for _ in range(5):
        tuner.tell(tuner.ask(), 1.0)
    tuner.ask()  # the sixth of ten is charged, and has no outcome
    view = open_view(tmp_path / "study")
    record = StudyRecord(view.spec, view.store, tmp_path / "study")
    record.hours = 0.5
    # Half is done: as long again.
    assert search_seconds_left(record) == pytest.approx(1800)
    view.close()


def test_a_finished_search_and_one_without_outcomes_have_no_predicted_end(pruned, tuner, tmp_path):
    tuner.ask()
    for folder in (pruned, tmp_path / "study"):
        view = open_view(folder)
        assert search_seconds_left(view.record) is None
        view.close()


@pytest.mark.parametrize(("width", "height"), [(120, 50), (80, 24), (40, 12), (20, 5), (10, 1)])
def test_a_screen_fits_its_terminal(pruned, width, height):
    study = LiveStudy(pruned, watched).look().value
    lines = screen(study, width, height)
    assert 1 <= len(lines) <= height
    assert max(len(line.text) for line in lines) <= width


def test_a_screen_shows_pruned_runs_and_the_incumbent(pruned):
    study = LiveStudy(pruned, watched).look().value
    lines = [line.text.split() for line in screen(study, 120, 60)]
    table = lines[[line[:1] for line in lines].index(["configuration"]) + 1 : -1]
    assert table[0][1] == "*"
    assert {row[1] for row in table} >= {"pruned", "crash", "complete"}
    assert len(table) == len(study.configurations)
    assert any(line[:1] == ["runs"] and "pruned" in " ".join(line) for line in lines)


def test_two_blocks_of_one_state_are_equal(pruned):
    first, second = (block(LiveStudy(pruned, watched).look().value) for _ in range(2))
    assert first == second
    assert "ago" not in first


def test_a_configuration_that_a_population_gave_up_is_pruned(tmp_path):
    folder = run_study(tmp_path / "study", optimizer="pbt", seeds={"tuning": 1, "test": 0})
    view = open_view(folder)
    rows = configuration_rows(view.record)
    parents = {number for (number,) in view.store.query("SELECT resume_from FROM proposals")}
    view.close()
    short = [row for row in rows if row.until < 100]
    assert {row.state for row in short if row.proposal in parents} <= {"continued"}
    assert {row.state for row in short if row.proposal not in parents} == {"pruned"}


def test_a_driver_that_ends_during_a_look_drives_to_its_end(tuner, tmp_path):
    view = open_view(tmp_path / "study")
    try:
        tuner.close()
        look = watched(view)
    finally:
        view.close()
    assert "state        running" in block(look)
    assert not look.over, "the next look shows how the study ended"
