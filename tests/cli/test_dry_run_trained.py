"""--dry-run: the steps that are really trained, counted by brute force in the study that is then run."""

import pytest
from cli_support import as_json, autorl, query, study_file

N_STEPS = {"type": "categorical", "choices": [16, 128, 300], "default": 16}
RATE = {"type": "float", "lower": 1e-4, "upper": 1e-3, "scale": "log"}
PPO = {
    "trainer": {
        "name": "population/ppo",
        "kwargs": {"net_width": 8, "net_depth": 1, "n_epochs": 1},
    },
    "environment": {"id": "CartPole-v1", "n_envs": 2},
    "space": {"hyperparameters": {"n_steps": N_STEPS, "learning_rate": RATE}},
    "fidelity": {"steps": 200, "evaluations": 4, "episodes": 2},
    "budget": {"runs": 12},
    "seeds": {"tuning": 2, "test": 2},
}
CUT = {
    "optimizer": {"name": "hyperband", "rungs": 2},
    "budget": {"runs": 30},
    "test": {"baseline": False},
}


def rollouts_of(length):
    kwargs = {"optimum": {"x": 0.7, "rate": 0.2}, "rollout": length}
    return {"trainer": {"name": "synthetic", "kwargs": kwargs}}


def planned(tmp_path, **changes):
    return as_json("tune", study_file(tmp_path, **changes), "--dry-run")


def line_with(tmp_path, part, **changes):
    text = autorl("tune", study_file(tmp_path, **changes), "--dry-run").stdout
    (line,) = [line for line in text.splitlines() if part in line]
    return line


def run_trained(tmp_path, **changes):
    """Run the study, and return the steps trained on tuning and on test seeds."""
    autorl("tune", study_file(tmp_path, **changes), "--out", tmp_path / "s", "--quiet")
    steps = "SELECT SUM(environment_steps) FROM runs WHERE seed_role = ?"
    return [query(tmp_path / "s", steps, role)[0][0] for role in ("tuning", "test")]


def test_a_default_that_is_not_trained_as_far_is_not_promised(tmp_path):
    said = [line_with(tmp_path, "held-out", test={"baseline": on}) for on in (True, False)]
    assert ["as far as the search" in line for line in said] == [False, True]


@pytest.mark.parametrize(
    "changes",
    [
        PPO | {"optimizer": "random"},
        PPO | {"optimizer": "sobol", "executor": {"name": "threads", "workers": 1}},
        rollouts_of(64) | {"optimizer": "random"},
        rollouts_of(80) | {"optimizer": "tpe"},
        rollouts_of(1) | {"optimizer": "cmaes"},
    ],
    ids=["ppo-random", "ppo-sobol", "random", "tpe", "cmaes"],
)
def test_the_trained_steps_are_those_of_the_study(tmp_path, changes):
    plan = planned(tmp_path, **changes)
    tuning, test = run_trained(tmp_path, **changes)
    assert plan["trained_exact"] is True
    assert plan["search"]["trained"] == tuning
    assert 0 < test <= plan["test"]["trained"]
    assert plan["trained_steps"] == plan["search"]["trained"] + plan["test"]["trained"]


def test_segments_of_a_cut_run_start_where_the_one_before_really_ended(tmp_path):
    plan = planned(tmp_path, **CUT, **rollouts_of(30))
    tuning, _ = run_trained(tmp_path, **CUT, **rollouts_of(30))
    assert 0 < plan["search"]["trained"] == tuning < plan["search"]["steps"]
    assert plan["trained_exact"] is False


def test_a_run_that_cannot_be_continued_is_counted_from_its_start(tmp_path):
    function = "def train(config, *, seed, until):\n    return config['x']\n"
    (tmp_path / "mine.py").write_text(function)
    plan = planned(tmp_path, trainer="python:mine:train", **CUT)
    tuning, _ = run_trained(tmp_path, trainer="python:mine:train", **CUT)
    assert plan["search"]["trained"] == tuning == plan["search"]["steps"] <= 3000
    (caution,) = plan["cautions"]
    assert caution.startswith(
        "the trainer leaves no checkpoints: a run that goes on from a rung is trained from step 0"
    )


def test_nominal_and_trained_steps_are_told_apart_where_they_differ(tmp_path):
    plan = planned(tmp_path, **rollouts_of(64))
    assert plan["environment_steps"] == 1600 + 18 * 100
    assert plan["trained_steps"] == (16 + 18) * 64
    nominal = "at most 3,400: 1,600 search + at most 1,800 test"
    assert f"the budget counts: {nominal}" in line_with(tmp_path, "nominal", **rollouts_of(64))
    assert "at most 2,176: 1,024 search + at most 1,152 test; runs end only" in line_with(
        tmp_path, "really trained", **rollouts_of(64)
    )
    assert line_with(tmp_path, " search + ").endswith(nominal)


def test_what_depends_on_configurations_or_scores_is_no_bound(tmp_path):
    """A model proposes other configurations than the plan looks at; rungs depend on scores."""
    plan = planned(tmp_path, **PPO | {"optimizer": "tpe"})
    assert (plan["exact"], plan["trained_exact"]) == (True, False)
    line = line_with(tmp_path, "really trained", **PPO | {"optimizer": "tpe"})
    assert "at most" not in line
    assert f"about {plan['trained_steps']:,}" in line
    stopped = {"name": "tpe", "stop": "median", "rungs": 4}
    assert "at most" not in line_with(tmp_path, " search + ", optimizer=stopped)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (rollouts_of(101), "trained: a rollout is longer than a run, 100 steps"),
        (
            rollouts_of(21),
            "cut at every evaluation and rung: a rollout is longer than the 20 steps between two",
        ),
        # n_steps 16 of 32 environments: 512 steps, where one environment needs 16.
        (
            PPO | {"environment": {"id": "CartPole-v1", "n_envs": 32}},
            "trained: a rollout is longer than a run, 200 steps",
        ),
    ],
    ids=["run", "interval", "environments"],
)
def test_rollouts_longer_than_a_run_or_an_interval_are_a_caution(tmp_path, changes, said):
    (caution,) = planned(tmp_path, **changes)["cautions"]
    every = "the default and 256 of 256 random configurations cannot be"
    assert caution.startswith(f"{every} {said}")
    assert line_with(tmp_path, every, **changes) == f"caution: {caution}"
    assert planned(tmp_path, **rollouts_of(20))["cautions"] == []


def test_only_the_configurations_that_are_too_long_are_counted(tmp_path):
    """With n_steps 16, 128, 300 and two environments, 256 and 600 of 200 steps are never trained;
    32 of 50 is well."""
    (caution,) = planned(tmp_path, **PPO)["cautions"]
    count, _, total = caution.split()[:3]
    assert total == "256"
    assert 256 * 0.5 < int(count) < 256 * 0.85
    assert "cannot be trained" in caution
    ruled = {**PPO["space"], "constraints": ["n_steps * n_envs <= evaluation_interval"]}
    assert planned(tmp_path, **PPO | {"space": ruled})["cautions"] == []


def test_a_configuration_that_its_trainer_refuses_is_a_caution(tmp_path):
    pytest.importorskip("stable_baselines3", reason="the trainer of this test")
    choices = [[1, "episode"], [4, "step"]]
    frequency = {"type": "categorical", "choices": choices, "default": [4, "step"]}
    plan = planned(
        tmp_path,
        trainer="sb3/dqn",
        environment={"id": "CartPole-v1"},
        space={"hyperparameters": {"train_freq": frequency}},
        seeds={"tuning": 1},
    )
    (caution,) = plan["cautions"]
    assert "would fail" in caution
    assert "whole episodes" in caution
    assert plan["search"]["trained"] < plan["search"]["steps"]
