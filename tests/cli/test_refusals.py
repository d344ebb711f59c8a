"""Small mistakes at the command line: each is one line and exit code 2, and nothing is made or lost."""

import pytest
from cli_support import autorl, study_file


def refused(*arguments):
    """What a command says that exits with 2; one line."""
    with pytest.MonkeyPatch.context() as patch:
        from autorl.cli import main

        patch.setattr("sys.argv", ["autorl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    return ended


def test_a_budget_below_one_proposal_is_refused_before_a_folder_is_made(tmp_path, capsys):
    file = study_file(tmp_path, budget={"runs": 1})
    for option in ((), ("--dry-run",)):
        refused("tune", file, "--out", tmp_path / "out", *option)
        assert capsys.readouterr().err == (
            f"autorl: {file}:39: budget.runs: 1 is less than one proposal (2 seeds = 2 runs)\n"
        )
    assert not (tmp_path / "out").exists()


def test_an_option_of_synthetic_that_is_no_number_is_refused_by_its_key(tmp_path, capsys):
    refused("tune", study_file(tmp_path, trainer={"name": "synthetic", "kwargs": {"noise": "x"}}))
    assert (
        "small.yaml:5: trainer.kwargs.noise: expected a number of at least 0, got 'x'"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["status", "best", "report"])
def test_a_study_file_where_a_folder_is_expected_is_said_to_be_a_file(tmp_path, command):
    file = study_file(tmp_path)
    said = autorl(command, file, code=2).stderr
    assert f"{file}: is a file: expected a study's folder, as `autorl tune` makes it" in " ".join(
        said.split()
    )


@pytest.mark.parametrize(("name", "meant"), [("sb3/pppo", "sb3/ppo"), ("trl/rlooo", "trl/rloo")])
def test_a_space_that_is_misspelt_names_the_nearest_only(name, meant, capsys):
    refused("tune", name)
    said = capsys.readouterr().err
    assert "did you mean" in said
    assert meant in said
    assert "population/dqn" not in said


def test_misfits_of_a_warm_start_are_told_apart_on_one_line(tmp_path, capsys):
    refused("tune", study_file(tmp_path, warm_start=[{"x": 2.0}, {"y": 3}]))
    said = capsys.readouterr().err
    assert "warm_start[0].x: 2.0 is outside [0.0, 1.0]; " in said
    assert "warm_start[1].y: unknown hyperparameter" in said
