"""tune, resume, test, replay: what they print is what the database holds."""

import json

import numpy as np
import pytest
import yaml
from cli_support import as_json, autorl, contents, finished_study, query, study_file


def held_out_scores(folder):
    condition = "label = 'incumbent' AND objective = 0"
    return dict(query(folder, f"SELECT seed, value FROM tests WHERE {condition}"))


def test_the_result_is_the_mean_of_the_test_rows_of_the_database(tmp_path):
    found = as_json("tune", study_file(tmp_path), "--out", tmp_path / "s", "--quiet")
    scores = held_out_scores(tmp_path / "s")
    assert sorted(scores) == [100, 101, 102, 103, 104, 105]
    assert found["test"]["value"] == pytest.approx(np.mean(list(scores.values())))
    assert {int(seed): value for seed, value in found["test"]["seeds"].items()} == scores
    interval = found["test"]["interval"]
    assert interval["low"] < found["test"]["value"] < interval["high"]
    rows = query(tmp_path / "s", "SELECT proposal, score, n_seeds FROM proposals")
    scores = {proposal: (json.loads(score)[0], n_seeds) for proposal, score, n_seeds in rows}
    tuning = found["tuning"]
    assert (tuning["value"], tuning["n_seeds"]) == scores[found["incumbent"]["proposal"]]
    assert tuning["value"] == max(score for score, _ in scores.values())
    assert found["gap"] == pytest.approx(tuning["value"] - found["test"]["value"])
    assert found["proposals"] == {"scored": 8}


def test_options_and_settings_reach_the_study_file(tmp_path):
    options = [
        "--runs",
        "8",
        "--steps",
        "50",
        "--seed",
        "3",
        "--optimizer",
        "sobol",
        "--workers",
        "1",
    ]
    options += ["--set", "seeds.test=2", "--set", "fidelity.evaluations=2", "--quiet"]
    autorl("tune", study_file(tmp_path), "--out", tmp_path / "s", *options)
    frozen = yaml.safe_load((tmp_path / "s" / "study.yaml").read_text())
    assert {key: value for key, value in frozen["budget"].items() if value} == {"runs": 8.0}
    assert (frozen["fidelity"]["steps"], frozen["fidelity"]["evaluations"]) == (50, 2)
    assert (frozen["seed"], frozen["optimizer"]["name"]) == (3, "sobol")
    assert frozen["seeds"] == {"tuning": [0, 1], "test": [100, 101]}
    assert query(tmp_path / "s", "SELECT COUNT(*) FROM proposals") == [(4,)]


def test_a_search_space_stands_for_the_trainer_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = as_json("tune", "population/ppo-small", "--env", "CartPole-v1", "--dry-run")
    assert plan["trainers"] == ["population/ppo"]
    assert plan["environment"] == "CartPole-v1"
    assert plan["search"]["steps"] == 96 * 100_000
    assert contents(tmp_path) == {}


def test_a_second_tune_in_the_same_folder_is_refused_and_changes_nothing(tmp_path):
    folder = finished_study(tmp_path)
    before = contents(folder)
    error = autorl("tune", study_file(tmp_path), "--out", folder, code=2).stderr
    assert f"autorl resume {folder}" in error
    assert "--out" in error
    assert contents(folder) == before


@pytest.mark.parametrize("more", ["+8", "8"])
def test_resume_extends_the_budget_and_equals_a_study_that_had_it_from_the_start(tmp_path, more):
    file = study_file(tmp_path, budget={"runs": 24})
    whole = as_json("tune", file, "--out", tmp_path / "whole", "--quiet")
    finished_study(tmp_path, "s")
    found = as_json("resume", tmp_path / "s", "--runs", more, "--quiet")
    assert query(tmp_path / "s", "SELECT COUNT(*) FROM proposals") == [(12,)]
    assert found["test"] == whole["test"]
    assert found["tuning"] == whole["tuning"]


def test_a_study_without_test_seeds_says_so_and_can_be_tested_later(tmp_path):
    file = study_file(tmp_path, seeds={"tuning": 2, "test": 0})
    text = autorl("tune", file, "--out", tmp_path / "s", "--quiet").stdout
    assert "there is no number to report yet" in text
    assert f"autorl test {tmp_path / 's'}" in text
    assert as_json("test", tmp_path / "s", "--seeds", 5, "--quiet")["test"]["n_seeds"] == 5
    wide = as_json("test", tmp_path / "s", "--until-decided", "--max-seeds", 15, "--quiet")
    assert wide["decided"]["seeds"] <= wide["test"]["n_seeds"] <= 15
    refused = autorl("test", tmp_path / "s", "--until-decided", "--max-seeds", 7, code=2)
    assert "--max-seeds: expected a multiple of 5" in refused.stderr


def test_progress_lines_change_with_the_phase_and_stay_off_standard_output_with_json(tmp_path):
    lines = autorl("tune", study_file(tmp_path), "--out", tmp_path / "a").stdout.splitlines()
    assert lines[0].startswith("search")
    assert any(line.startswith("test ") for line in lines)
    result = autorl("tune", study_file(tmp_path), "--out", tmp_path / "b", "--json")
    assert json.loads(result.stdout)["test"]["n_seeds"] == 6
    assert result.stderr.startswith("search")
    quiet = autorl("tune", study_file(tmp_path), "--out", tmp_path / "c", "--json", "--quiet")
    assert quiet.stderr == ""


def test_a_study_whose_every_run_crashes_exits_1_with_one_line_and_keeps_the_record(tmp_path):
    file = study_file(tmp_path, trainer={"name": "synthetic", "kwargs": {"crash": 1.0}})
    error = autorl("tune", file, "--out", tmp_path / "s", "--quiet", code=1).stderr
    assert "the first 3 proposals failed" in error
    assert "synthetic crash" in error.splitlines()[-1]
    assert query(tmp_path / "s", "SELECT COUNT(*) FROM segments WHERE status = 'crash'")[0][0] >= 3
    assert as_json("watch", tmp_path / "s")["state"] == "stopped"
    assert "`autorl tune` as before begins it anew" in " ".join(error.split())


def test_a_study_of_which_no_run_has_finished_is_moved_aside_by_the_same_command(tmp_path):
    out = tmp_path / "s"
    broken = study_file(tmp_path, "x.yaml", trainer={"name": "synthetic", "kwargs": {"crash": 1.0}})
    autorl("tune", broken, "--out", out, "--quiet", code=1)
    before = query(out, "SELECT * FROM event")
    wrong = study_file(tmp_path, "y.yaml", executor={"name": "in_process", "devices": ["0"]})
    autorl("tune", wrong, "--out", out, code=2)
    assert query(out, "SELECT * FROM event") == before
    for times, file, code in ((1, broken, 1), (2, study_file(tmp_path), 0)):
        said = autorl("tune", file, "--out", out, "--quiet", code=code).stderr
        assert f"{out}.failed-{times}" in said
    assert query(tmp_path / "s.failed-1", "SELECT * FROM event") == before
    again = autorl("tune", file, "--out", out, code=2).stderr
    assert f"{out}: holds a study already: go on with" in " ".join(again.split())
    assert not (tmp_path / "s.failed-3").exists()
