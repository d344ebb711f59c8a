"""A study in Weights & Biases, offline, read back by W&B's own reader of its files."""

import importlib.util
import json
import shutil
import subprocess
import sys

import pytest
from tracker_studies import SPACE, STUDY, climb, curve_of, rows_of, run_info, sessions, study_info

from autorl import InputError, tune
from autorl.core.types import Outcome, Report, SegmentId, Status
from autorl.integrations.trackers import WandbTracker

pytestmark = [
    pytest.mark.slow,  # its service starts in seconds, and each run takes a part of one
    pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb"),
]

READER = [sys.executable, "-m", "wandb", "beta", "leet", "inspect"]


@pytest.fixture(scope="module")
def reader():
    if subprocess.run([*READER, "--help"], capture_output=True).returncode != 0:
        pytest.skip("this wandb has no `leet inspect`, which reads its files")


def inspect(folder):
    """Return the content of a run's file: a dictionary of `run`, `history`, `summary` and `exit`."""
    (file,) = folder.glob("*.wandb")
    command = [*READER, "--json", str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    read = {"history": {}, "summary": {}, "config": {}}
    for record in map(json.loads, lines):
        kind = record["type"]
        if kind == "history":
            item = record["history"]["item"]
            assert item["_step"] not in read["history"], "no step stands there twice"
            read["history"][item["_step"]] = item
        elif kind == "summary":
            read["summary"].update(record["summary"]["update"])
        elif kind in ("run", "exit"):
            read[kind] = record[kind]
    read["config"] = read["run"]["config"]["update"]
    return read


def runs_in(directory):
    read = [inspect(folder) for folder in (directory / "wandb").glob("offline-run-*")]
    assert not list((directory / "wandb").glob("replaced-*"))
    by_id = {run["run"]["run_id"].split("-")[1]: run for run in read}
    assert len(by_id) == len(read), "one folder for each run, so that a sync has all of it"
    return by_id


def curve(run, metric="value"):
    return {step: item[metric] for step, item in run["history"].items()}


def kill(folder):
    """Leave what kills leave: a run that was not written, one in writing, one that is too short."""
    written = sorted(path for path in folder.glob("offline-run-*") if (path / "autorl").exists())
    shutil.rmtree(written[0])
    written[1].rename(folder / f"replaced-{written[1].name}")
    (written[2] / "autorl").write_text("1 stopped")


def test_a_study_of_two_sessions_has_every_run_once(reader, tmp_path):
    place = tmp_path / "s" / "logs" / "trackers"

    def callbacks():
        if place.exists():
            kill(place / "wandb")
        return [WandbTracker("tests")]

    result = sessions(tmp_path / "s", callbacks)
    runs = runs_in(place)
    of_study = runs.pop("study")
    rows = rows_of(result)
    assert {int(number) for number in runs} == set(rows)
    for number, row in rows.items():
        run = runs[str(number)]
        assert curve(run) == curve_of(row)
        assert run["config"]["x"] == row["params_x"]
        facts = run["config"]["autorl"]
        assert (facts["role"], facts["seed"]) == (row["role"], str(row["seed"]))
        assert (facts["proposal"], facts["run"]) == (str(row["proposal"]), str(number))
        about = run["run"]
        assert (about["project"], about["job_type"]) == ("tests", row["role"])
        assert about["run_group"] == of_study["run"]["run_group"]
        assert about["run_group"].startswith("hills-")
        assert run["summary"]["state"] == row["state"]
        assert run["exit"].get("exit_code", 0) == int(row["state"] == "crash")
    summary = of_study["summary"]
    assert summary["test_score"] == result.test.value
    assert summary["test_iqm_low"] == result.test.iqm_interval.low
    assert (summary["tuning_score"], summary["gap"]) == (result.tuning, result.gap)
    assert of_study["config"]["incumbent"] == result.best_params
    assert of_study["config"]["autorl"]["study"] == "hills"


def test_a_run_that_goes_on_has_all_its_evaluations_in_one_folder(reader, tmp_path):
    study = study_info(tmp_path)
    tracker = WandbTracker("tests", directory=tmp_path / "mine")
    tracker.on_study(study)
    for until in (20, 40):
        reports = tuple(
            Report(SegmentId(3, 1), step, {"value": float(step), "loss": float("nan")})
            for step in (until - 10, until)
        )
        done = Outcome(SegmentId(3, 1), Status.DONE, reached=until, reports=reports)
        tracker.on_outcome(study, run_info(start=until - 20, until=until, parent_run=5), done)
    (run,) = runs_in(tmp_path / "mine").values()
    assert curve(run) == {step: float(step) for step in (10, 20, 30, 40)}
    assert run["config"]["autorl"]["parent_run"] == "5"
    assert run["config"]["units"] == "[64, 64]"
    assert run["summary"]["state"] == "complete"


def test_a_study_in_memory_needs_a_directory(tmp_path):
    with pytest.raises(InputError, match="wandb needs a directory: a study in memory"):
        tune(climb, SPACE, callbacks=[WandbTracker()], **STUDY)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "dryrun"}, r"callbacks\.wandb\.mode: expected offline or online, got 'dryrun'"),
        ({"project": 3}, r"callbacks\.wandb\.project: expected text, got 3"),
        ({"directory": __file__}, r"callbacks\.wandb\.directory: .*is a file"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        WandbTracker(**arguments)
