"""Test runs that fail: no test score without one that succeeded, and none of those that failed is out of sight."""

import json
import re

import pytest
import yaml
from cli_support import as_json, autorl, finished_study, study_file
from test_compare import compared

from autorl import load_landscape

FUNCTION = """
def f(config, *, seed, role):
    if role == "test":
        raise RuntimeError("no luck")
    return 100 + config["x"]
"""
STUDY = {
    "trainer": {"name": "python:p.py:f", "kwargs": {"metric": "eval_return"}},
    "objective": {"metric": "eval_return"},
    "space": {"x": {"type": "float", "lower": 0, "upper": 1}},
    "fidelity": {"steps": 10, "evaluations": 1},
    "budget": {"runs": 8},
    "seeds": {"tuning": 2, "test": 5},
    "test": {"top": 3},
}
PROBLEM = "no usable result: all 5 test runs of the incumbent failed (crash)"


@pytest.fixture(scope="module")
def untested(tmp_path_factory):
    """A study all of whose test runs fail, and what `tune` said of it."""
    folder = tmp_path_factory.mktemp("untested")
    (folder / "p.py").write_text(FUNCTION)
    said = autorl("tune", study_file(folder, **STUDY), "--out", folder / "study", "--quiet", code=1)
    return folder / "study", said


def scores(text):
    """The numbers of the tuning scores: all lie in [100, 101]."""
    return re.findall(r"(?<![\w.])10[01][\d.]*", text)


def test_tune_ends_without_a_test_score_and_says_so(untested):
    folder, said = untested
    assert said.stderr == f"autorl: {folder}: {PROBLEM}; `autorl watch --once` lists why\n"
    head = said.stdout.partition("tested on held-out seeds")[0]
    assert PROBLEM in head
    assert "gap" not in head
    assert "difference" not in head
    assert [line.split()[0] for line in head.splitlines() if scores(line)] == ["tuning"]


@pytest.mark.parametrize("command", ["resume", "test"])
def test_every_command_that_ends_a_study_exits_with_1(untested, command):
    folder, _ = untested
    found = json.loads(autorl(command, folder, "--json", "--quiet", code=1).stdout)
    assert (found["test"], found["gap"], found["difference_to_default"]) == (None, None, None)
    assert (found["problem"], found["test_runs"]) == (PROBLEM, {"done": 5, "failed": 5})
    assert [one["test"] for one in found["candidates"]] == [None] * len(found["candidates"])
    assert found["default"]["iqm"] is None


def test_no_command_that_looks_shows_a_test_score(untested):
    folder, _ = untested
    found = as_json("watch", folder)
    assert (found["test"], found["gap"], found["problem"]) == (None, None, PROBLEM)
    status = " ".join(autorl("watch", folder, "--once").stdout.split())
    assert f"test score none: {PROBLEM}" in status
    (best,) = yaml.safe_load(autorl("best", folder).stdout)
    assert (best["test"], best["failed_test_runs"]) == (None, 5)
    (row,) = autorl("best", folder, "--format", "table").stdout.splitlines()[1:]
    assert len(scores(row)) == 1, "the tuning score"
    autorl("report", folder)
    text = (folder / "report.html").read_text()
    assert PROBLEM[1:] in text
    assert "Test score" not in text
    assert ">gap" not in text
    choice = as_json("landscape", "best", folder)
    assert (choice["test"], choice["failed_tests"]) == (None, 5)


def failing(folder, seeds, **changes):
    kwargs = {"optimum": {"x": 0.7}, "crash": {"seeds": seeds}}
    return finished_study(folder, trainer={"name": "synthetic", "kwargs": kwargs}, **changes)


def test_test_runs_that_failed_are_counted_in_the_headline_and_in_no_number(tmp_path):
    folder = failing(tmp_path, [101, 104])
    found = as_json("resume", folder, "--quiet")
    values = list(found["test"]["seeds"].values())
    assert sorted(found["test"]["seeds"]) == ["100", "102", "103", "105"]
    assert found["test"]["value"] == pytest.approx(sum(values) / 4)
    assert min(values) <= found["test"]["interval"]["low"]
    runs = "4 of 6 test runs; 2 failed: not in score or interval"
    first = autorl("resume", folder, "--quiet").stdout
    assert runs in next(line for line in first.splitlines() if "test score (IQM)" in line)
    assert runs in autorl("watch", folder, "--once").stdout
    autorl("report", folder)
    assert runs in (folder / "report.html").read_text()
    assert any("which flatters it" in text for text in found["caveats"])
    choice = load_landscape(folder).best()
    assert (choice.test, choice.failed_tests) == (pytest.approx(found["test"]["value"]), 2)


def test_a_penalty_the_study_file_states_counts_and_is_said(tmp_path):
    folder = failing(tmp_path, [101], failures={"penalty": -9.0})
    found = as_json("resume", folder, "--quiet")
    assert found["test"]["seeds"]["101"] == -9.0
    assert found["test"]["failed_value"] == -9.0
    text = autorl("resume", folder, "--quiet").stdout
    assert "6 test runs; 1 failed, each counts as -9 (failures.penalty)" in text


def test_compare_does_not_rank_studies_without_a_test_score(tmp_path):
    trainer = {"name": "synthetic", "kwargs": {"crash": {"seeds": [100, 101, 102]}}}
    file = study_file(tmp_path, trainer=trainer, seeds={"tuning": 2, "test": 3})
    command = compared(file, "random,sobol", repeats=2)
    outcome = autorl(*command, "--json", code=1)
    found = json.loads(outcome.stdout)
    assert [(row["test"], row["tests"]) for row in found["rows"]] == [(None, {})] * 2
    assert found["overall"] is None
    assert outcome.stderr.count("all 3 test runs of the incumbent failed") == 4
