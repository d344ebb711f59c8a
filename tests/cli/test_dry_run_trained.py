"""--dry-run: the steps that are really trained, counted by brute force in the study that is then run."""

import pytest
from cli_support import as_json, autorl, query, study_file

PPO = {
    "trainer": {
        "name": "population/ppo",
        "kwargs": {"net_width": 8, "net_depth": 1, "n_epochs": 1},
    },
    "environment": {"id": "CartPole-v1", "n_envs": 2},
    "space": {
        "hyperparameters": {
            "n_steps": {"type": "categorical", "choices": [16, 128, 300], "default": 16},
            "learning_rate": {"type": "float", "lower": 1e-4, "upper": 1e-3, "scale": "log"},
        }
    },
    "fidelity": {"steps": 200, "evaluations": 4, "episodes": 2},
    "budget": {"runs": 12},
    "seeds": {"tuning": 2, "test": 2},
}


def rollouts_of(length, **kwargs):
    return {
        "name": "synthetic",
        "kwargs": {"optimum": {"x": 0.7, "rate": 0.2}, "rollout": length, **kwargs},
    }


def trained(folder, role):
    ((steps,),) = query(folder, "SELECT SUM(environment_steps) FROM runs WHERE seed_role = ?", role)
    return steps


@pytest.mark.parametrize(
    "changes",
    [
        PPO | {"optimizer": "random"},
        PPO | {"optimizer": "sobol", "executor": {"name": "threads", "workers": 1}},
        {"trainer": rollouts_of(64), "optimizer": "random"},
        {"trainer": rollouts_of(80), "optimizer": "tpe"},
        {"trainer": rollouts_of(1), "optimizer": "cmaes"},
    ],
    ids=["ppo-random", "ppo-sobol", "random", "tpe", "cmaes"],
)
def test_the_trained_steps_are_those_of_the_study(tmp_path, changes):
    file = study_file(tmp_path, **changes)
    plan = as_json("tune", file, "--dry-run")
    autorl("tune", file, "--out", tmp_path / "s", "--quiet")
    assert plan["trained_exact"] is True
    assert plan["search"]["trained"] == trained(tmp_path / "s", "tuning")
    assert 0 < trained(tmp_path / "s", "test") <= plan["test"]["trained"]
    assert plan["trained_steps"] == plan["search"]["trained"] + plan["test"]["trained"]


def test_segments_of_a_cut_run_start_where_the_one_before_really_ended(tmp_path):
    file = study_file(
        tmp_path,
        trainer=rollouts_of(30),
        optimizer={"name": "hyperband", "rungs": 2},
        budget={"runs": 30},
        test={"baseline": False},
    )
    plan = as_json("tune", file, "--dry-run")
    autorl("tune", file, "--out", tmp_path / "s", "--quiet")
    assert (
        0 < plan["search"]["trained"] == trained(tmp_path / "s", "tuning") < plan["search"]["steps"]
    )
    assert plan["trained_exact"] is False


def test_a_run_that_cannot_be_continued_is_counted_from_its_start(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def train(config, *, seed, until):\n    return config['x']\n"
    )
    file = study_file(
        tmp_path,
        trainer="python:mine:train",
        optimizer={"name": "hyperband", "rungs": 2},
        budget={"runs": 30},
        test={"baseline": False},
    )
    plan = as_json("tune", file, "--dry-run")
    autorl("tune", file, "--out", tmp_path / "s", "--quiet")
    assert (
        plan["search"]["trained"]
        == trained(tmp_path / "s", "tuning")
        == plan["search"]["steps"]
        <= 3000
    )
    (caution,) = plan["cautions"]
    assert caution.startswith(
        "the trainer leaves no checkpoints: a run that goes on from a rung is trained from step 0"
    )


def test_nominal_and_trained_steps_are_told_apart_where_they_differ(tmp_path):
    plan = as_json("tune", study_file(tmp_path, trainer=rollouts_of(64)), "--dry-run")
    assert plan["environment_steps"] == 1600 + 18 * 100
    assert plan["trained_steps"] == (16 + 18) * 64
    text = autorl("tune", study_file(tmp_path, trainer=rollouts_of(64)), "--dry-run").stdout
    assert "nominal, as the budget counts: at most 3,400: 1,600 search + at most 1,800 test" in text
    assert (
        "at most 2,176: 1,024 search + at most 1,152 test; runs end only where a rollout does"
        in text
    )
    plain = autorl("tune", study_file(tmp_path), "--dry-run").stdout
    assert "at most 3,400: 1,600 search + at most 1,800 test" in plain
    assert "nominal" not in plain


def test_what_depends_on_configurations_or_scores_is_no_bound(tmp_path):
    """A model proposes other configurations than the plan looks at; rungs depend on scores."""
    file = study_file(tmp_path, **PPO | {"optimizer": "tpe"})
    plan = as_json("tune", file, "--dry-run")
    assert (plan["exact"], plan["trained_exact"]) == (True, False)
    (line,) = [
        line
        for line in autorl("tune", file, "--dry-run").stdout.splitlines()
        if "really trained" in line
    ]
    assert "at most" not in line
    assert f"about {plan['trained_steps']:,}" in line
    rungs = study_file(tmp_path, optimizer={"name": "tpe", "stop": "median", "rungs": 4})
    (line,) = [
        line
        for line in autorl("tune", rungs, "--dry-run").stdout.splitlines()
        if " search + " in line
    ]
    assert "at most" not in line


def test_rollouts_longer_than_a_run_or_an_interval_are_a_caution(tmp_path):
    long = study_file(tmp_path, trainer=rollouts_of(101))
    (caution,) = as_json("tune", long, "--dry-run")["cautions"]
    assert caution.startswith(
        "the default and 256 of 256 random configurations cannot be trained: a rollout is longer"
    )
    assert "longer than a run, 100 steps" in caution
    assert f"caution: {caution}" in autorl("tune", long, "--dry-run").stdout
    (caution,) = as_json("tune", study_file(tmp_path, trainer=rollouts_of(21)), "--dry-run")[
        "cautions"
    ]
    assert caution.startswith(
        "the default and 256 of 256 random configurations cannot be cut at every evaluation"
    )
    assert "longer than the 20 steps between two of them" in caution
    assert (
        as_json("tune", study_file(tmp_path, trainer=rollouts_of(20)), "--dry-run")["cautions"]
        == []
    )


def test_only_the_configurations_that_are_too_long_are_counted(tmp_path):
    """With n_steps 16, 128, 300 and two environments, 256 and 600 of 200 steps are never trained;
    32 of 50 is well."""
    (caution,) = as_json("tune", study_file(tmp_path, **PPO), "--dry-run")["cautions"]
    count, _, total = caution.split()[:3]
    assert total == "256"
    assert 256 * 0.5 < int(count) < 256 * 0.85
    assert "cannot be trained" in caution
    ruled = {**PPO["space"], "constraints": ["n_steps * n_envs <= evaluation_interval"]}
    assert (
        as_json("tune", study_file(tmp_path, **PPO | {"space": ruled}), "--dry-run")["cautions"]
        == []
    )


def test_the_environment_counts_in_a_rollout(tmp_path):
    """n_steps 16 of 32 environments of the study file: 512 steps, where one environment needs 16."""
    changes = PPO | {"environment": {"id": "CartPole-v1", "n_envs": 32}}
    (caution,) = as_json("tune", study_file(tmp_path, **changes), "--dry-run")["cautions"]
    assert caution.startswith("the default and 256 of 256 random configurations cannot be trained")


def test_a_configuration_that_its_trainer_refuses_is_a_caution(tmp_path):
    pytest.importorskip("stable_baselines3", reason="the trainer of this test")
    space = {
        "hyperparameters": {
            "train_freq": {
                "type": "categorical",
                "choices": [[1, "episode"], [4, "step"]],
                "default": [4, "step"],
            }
        }
    }
    changes = {
        "trainer": "sb3/dqn",
        "environment": {"id": "CartPole-v1"},
        "space": space,
        "seeds": {"tuning": 1},
    }
    plan = as_json("tune", study_file(tmp_path, **changes), "--dry-run")
    (caution,) = plan["cautions"]
    assert "would fail" in caution
    assert "whole episodes" in caution
    assert plan["search"]["trained"] < plan["search"]["steps"]
