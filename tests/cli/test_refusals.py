"""Small mistakes at the command line: each is one line and exit code 2, and nothing is made or lost."""

import errno
import os

import pytest
from cli_support import autorl, study_file


def refused(*arguments):
    """Return the line of a command that is refused."""
    return autorl(*arguments, code=2).stderr.rstrip("\n")


def test_a_budget_below_one_proposal_is_refused_before_a_folder_is_made(tmp_path):
    file = study_file(tmp_path, budget={"runs": 1})
    said = f"autorl: {file}:38: budget.runs: 1 is less than one proposal (2 seeds = 2 runs)"
    for option in ((), ("--dry-run",)):
        assert refused("tune", file, "--out", tmp_path / "out", *option) == said
    assert not (tmp_path / "out").exists()


def test_an_option_of_synthetic_that_is_no_number_is_refused_by_its_key(tmp_path):
    file = study_file(tmp_path, trainer={"name": "synthetic", "kwargs": {"noise": "x"}})
    said = ":4: trainer.kwargs.noise: expected a number of at least 0, got 'x'"
    assert said in refused("tune", file)


@pytest.mark.parametrize("command", ["watch", "best", "report"])
def test_a_study_file_where_a_folder_is_expected_is_said_to_be_a_file(tmp_path, command):
    file = study_file(tmp_path)
    said = f"{file}: is a file: expected a study's folder, as `autorl tune` makes it"
    assert said in refused(command, file)


@pytest.mark.parametrize(("name", "meant"), [("sb3/pppo", "sb3/ppo"), ("trl/rlooo", "trl/rloo")])
def test_a_space_that_is_misspelt_names_the_nearest_only(name, meant):
    said = refused("tune", name)
    assert "did you mean" in said
    assert meant in said
    assert "population/dqn" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seed", 1, "--seed", 2), "--seed is given twice"),
        (("--steps=50", "--steps", 50), "--steps is given twice"),
        (("--set", "seed=1", "--set", "seed = 2"), "--set: seed: is given twice"),
        (("--env", "Toy-v0"), "environment.id: synthetic trains in no environment, got 'Toy-v0'"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(tmp_path, options, said):
    assert said in refused("tune", study_file(tmp_path), "--out", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # 16 runs at 2 seeds: the default and 7 more.
        ({}, "2 of 9 configurations are not tried: the budget pays for 8, with the default"),
        ({"budget": {"configurations": 4}}, "6 of 9 configurations"),
        # The first rung is a quarter of a run.
        ({"optimizer": {"name": "random", "stop": "median", "rungs": 4}}, None),
    ],
)
def test_warm_starts_that_the_budget_does_not_pay_for_are_said(tmp_path, changes, said):
    starts = [{"x": number / 10, "rate": 0.1, "kind": "a"} for number in range(1, 10)]
    file = study_file(tmp_path, warm_start=starts, **changes)
    options = ("--set", "fidelity.steps=4", "--set", "fidelity.evaluations=1")
    for more in (("--dry-run",), ("--out", tmp_path / "out")):
        result = autorl("tune", file, *options, *more)
        lines = [line for line in result.output.splitlines() if "caution: warm_start" in line]
        assert len(lines) == (said is not None)
        assert all(str(said) in line for line in lines)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EDQUOT, errno.ENOSPC])
def test_a_disk_that_never_answers_is_one_line(tmp_path, monkeypatch, code):
    """`autorl resume` showed a traceback (a fault of `stat` that lasts)."""
    autorl("tune", study_file(tmp_path), "--out", tmp_path / "out")
    plain = os.stat

    def failing(path, *given, **named):
        if str(path).endswith("study.yaml"):
            raise OSError(code, os.strerror(code), str(path))
        return plain(path, *given, **named)

    monkeypatch.setattr(os, "stat", failing)
    assert os.strerror(code) in refused("resume", tmp_path / "out")
