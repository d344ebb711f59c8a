"""--dry-run: the counts are those of the study that is then run, and nothing is written."""

import re

import pytest
from cli_support import as_json, autorl, contents, query, study_file

from autorl.study.tuner import read_study
from autorl.trainers.info import TrainerInfo


def counted(folder, role):
    ((segments, steps),) = query(
        folder,
        "SELECT COUNT(*), SUM(to_step - from_step) FROM segments JOIN runs USING (run_id) WHERE seed_role = ?",
        role,
    )
    return segments, steps


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "tpe"},
        {"optimizer": "cmaes", "budget": {"configurations": 5}},
        {"budget": {"environment_steps": 900}},
        {"optimizer": {"name": "hyperband", "rungs": 2}, "budget": {"runs": 30}},
        {"optimizer": {"name": "pbt", "population": 4, "generations": 3}, "budget": {"runs": 8}},
    ],
    ids=["random", "tpe", "cmaes", "steps", "hyperband", "pbt"],
)
def test_the_counts_are_those_of_the_study(tmp_path, changes):
    file = study_file(tmp_path, **changes)
    plan = as_json("tune", file, "--out", tmp_path / "s", "--dry-run")
    assert not (tmp_path / "s").exists()
    autorl("tune", file, "--out", tmp_path / "s", "--quiet")
    more = query(
        tmp_path / "s",
        "SELECT segment, to_step - from_step FROM segments JOIN proposals USING (proposal) "
        "JOIN runs USING (run_id) WHERE proposals.origin LIKE 'default, as far%' AND seed_role = 'tuning'",
    )
    segments, steps = counted(tmp_path / "s", "tuning")
    beyond = sum(each for _, each in more)
    assert (plan["search"]["segments"], plan["search"]["steps"]) == (
        segments - len(more),
        steps - beyond,
    )
    assert (plan["search"]["proposals"] + bool(more),) == query(
        tmp_path / "s", "SELECT COUNT(*) FROM proposals"
    )[0]
    assert len(more) <= plan["baseline"]["segments"]
    assert beyond <= plan["baseline"]["steps"]
    segments, steps = counted(tmp_path / "s", "test")
    assert segments <= plan["test"]["segments"]
    assert steps <= plan["test"]["steps"]


def test_full_runs_with_fixed_seeds_are_counted_exactly_and_the_rest_says_that_it_depends(tmp_path):
    assert as_json("tune", study_file(tmp_path), "--dry-run")["exact"] is True
    racing = study_file(tmp_path, evaluation={"seeds": "racing", "min": 1, "max": 2})
    assert as_json("tune", racing, "--dry-run")["exact"] is False
    stopped = study_file(tmp_path, optimizer={"name": "tpe", "stop": "median", "rungs": 4})
    plan = as_json("tune", stopped, "--dry-run")
    assert plan["exact"] is False
    assert plan["rungs"] == [25, 50, 75, 100]
    assert "counts depend on the scores" in autorl("tune", stopped, "--dry-run").stdout


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = study_file(tmp_path)
    before = contents(tmp_path)
    text = autorl("tune", file, "--dry-run").stdout
    assert contents(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]
    for part in (
        "8 in 16 segments",
        "[0, 1]",
        "[100, 101",
        "at most 3 candidates, 18 segments",
        "keep: incumbent",
    ):
        assert part in text


@pytest.mark.parametrize(("limit", "more"), [(None, False), (3, False), (4, True)])
def test_steps_of_evaluation_are_counted(limit, more, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainerInfo, "longest_episode", lambda *_: limit)
    fidelity = {"steps": 100, "evaluations": 4, "episodes": 8}
    file = study_file(tmp_path, fidelity=fidelity)
    plan = as_json("tune", file, "--dry-run")
    runs = plan["search"]["segments"] + plan["test"]["segments"]
    assert plan["evaluation_steps"] == (limit and runs * 4 * 8 * limit)
    text = autorl("tune", file, "--dry-run").stdout
    assert ("caution: evaluation may take more steps than training" in text) == more


def test_a_budget_in_hours_is_not_guessed_at(tmp_path):
    plan = as_json("tune", study_file(tmp_path, budget={"hours": 1}), "--dry-run")
    assert plan["open_ended"] is True
    assert plan["environment_steps"] is None
    assert (
        "as many as the hours allow"
        in autorl("tune", study_file(tmp_path, budget={"hours": 1}), "--dry-run").stdout
    )


def test_an_environment_without_its_version_is_the_newest(tmp_path):
    space = ("tune", "population/ppo-small", "--dry-run", "--env")
    assert re.search(r"^environment +Acrobot-v1\n", autorl(*space, "Acrobot").stdout, re.MULTILINE)
    changes = {"trainer": "population/ppo", "space": "population/ppo-small"}
    for given, whole in (("CartPole", "CartPole-v1"), ("CartPole-v0", "CartPole-v0")):
        study = study_file(tmp_path, environment={"id": given}, executor={}, **changes)
        assert read_study(study).environment.id == whole


def test_a_wrong_study_is_found_by_a_dry_run(tmp_path):
    error = autorl("tune", study_file(tmp_path, optimizer="tpee"), "--dry-run", code=2).stderr
    assert "optimizer.name" in error
    assert "'tpe'" in error
