"""Settings that a study cannot have: one line with file and key, what is wrong and what is allowed."""

import pytest
import yaml
from typer.testing import CliRunner

from autorl.cli import app

RATE = {"type": "float", "lower": 1e-4, "upper": 1e-2, "scale": "log", "changeable": True}
ENGINE = {
    "trainer": "population/ppo",
    "environment": "CartPole-v1",
    "space": {"learning_rate": RATE},
    "fidelity": {"steps": 8192, "evaluations": 4},
    "optimizer": "random",
    "budget": {"runs": 8},
    "seeds": {"tuning": 2, "test": 2},
}
CARTPOLE = {"id": "CartPole-v1", "scale": [20, 500]}
ACROBOT = {"id": "Acrobot-v1", "scale": [-500, -80]}
TASKS = {key: value for key, value in ENGINE.items() if key != "environment"} | {
    "tasks": {"tuning": [CARTPOLE], "test": [ACROBOT]}
}
BOTH = {"a": {"optimizer": "random"}, "b": {"optimizer": "tpe"}}
COMPARED = ENGINE | {"compare": {"methods": BOTH}}
SB3 = ENGINE | {"trainer": "sb3/ppo"}


def rate(**more):
    return {"learning_rate": RATE | more}


CASES = [
    (TASKS, "tasks.test", [CARTPOLE], "tasks: lists CartPole-v1 both in tuning and in test"),
    (TASKS, "tasks.tuning", [], "tasks: `tuning` needs at least one task"),
    (TASKS, "tasks.tuning", [{"id": "Pendulum-v1"}, CARTPOLE], "tasks.tuning[0]: Pendulum-v1 has no scale"),
    (TASKS, "tasks.tuning", [CARTPOLE | {"scale": [5, 5]}], "tasks.tuning[0].scale: should be ascending"),
    (TASKS, "tasks.train", [CARTPOLE], "unknown key 'train'; known keys: test, tuning"),
    (TASKS, "tasks.tuning", [{"landscape": "a/b/c"}], "trainer population/ppo takes no `landscape`"),
    (TASKS, "environment", "Pendulum-v1", "environment.id: is Pendulum-v1, and the first task CartPole-v1"),
    (ENGINE, "space", rate() | {"environment.kwargs.nope": "uniform(1, 2)"}, "unknown parameter; those of"),
    (ENGINE, "space", {"mix": {"type": "simplex", "parts": 1}}, "space.mix.parts: a hyperparameter of type"),
    (ENGINE, "space", rate(schedule=["warm"]), "expected distinct shapes among constant, linear, cosine"),
    (ENGINE, "space", rate(prior={"centre": 1}), "space.learning_rate.prior.centre: 1.0 is outside [0.0001,"),
    (ENGINE, "space", rate(prior={"centre": 1e-3, "confidence": 7}), "expected one of low, medium, high"),
    (ENGINE, "start", {"model": "nowhere.zip"}, "start: there is no "),
    (ENGINE, "start", {"model": "a", "study": "b"}, "start: needs exactly one of `model` and `study`"),
    (ENGINE, "budget", {"runs": 8, "target": "high"}, "budget.target: expected a number, got 'high'"),
    (ENGINE, "budget", {"runs": 8, "converged": 0}, "budget.converged: should be greater than or equal to 1"),
    (ENGINE, "budget", {"target": 400}, "budget: needs exactly one of runs, configurations, environment"),
    (ENGINE, "baselines", {"mine": {"learning_rat": 1e-3}}, "did you mean 'learning_rate'?"),
    (ENGINE, "objective", {"metric": "eval_return", "reduce": "time_to()"}, "'time_to' needs one number"),
    (ENGINE, "objective", {"metric": "wall_seconds", "direction": "minimize", "reduce": "time_to(3)"},
     "objective.reduce: time_to is of evaluations, wall_seconds is a cost"),
    (ENGINE, "fidelity.metrics", ["eval_return_cvar_0"], "unknown metric 'eval_return_cvar_0'"),
    (ENGINE, "environment", {"id": "CartPole-v1", "info": {"cost": "sum"}}, "no `info` is read of CartPole"),
    (ENGINE, "environment", {"id": "CartPole-v1", "info": {"return": "sum"}}, "is a metric of every eval"),
    (ENGINE, "evaluation.aggregate", "mean_minus_std(-1)", "k of mean_minus_std must be a finite number"),
    (ENGINE, "constraints", [{"metric": "peak_memory", "max": 5}], "did you mean 'peak_memory_mb'?"),
    (ENGINE, "resources", {"gpu": 1}, "resources.gpu: population/ppo trains on the CPU alone"),
    (ENGINE, "optimizer", {"name": "mf_pbt", "frequencies": [2, 5]}, "whole numbers, ascending from 1"),
    (ENGINE, "optimizer", {"name": "pbt", "exploit": "average"},
     "optimizer.exploit: this trainer makes no mean of two agents: expected copy"),
    (ENGINE, "optimizer", {"name": "optuna", "sampler": "json:JSONDecoder"}, "is no subclass of optuna."),
    (SB3, "trainer.kwargs", {"algorithm_class": "json:JSONDecoder"}, "is no subclass of stable_baselines3"),
    (SB3, "trainer.kwargs", {"device": "cuda"}, "`cuda` is for segments with a GPU: add `resources: {gpu"),
    (COMPARED, "compare.methods", {"a": BOTH["a"]}, "compare.methods: Value should have at least 2 items"),
    (COMPARED, "compare.repeats", 0, "compare.repeats: should be greater than or equal to 1, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("good", "key", "wrong", "message"), CASES)
def test_a_wrong_setting_is_one_line(good, key, wrong, message, tmp_path, monkeypatch):
    if good is SB3:
        pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(good))
    setting = f"{key}={yaml.safe_dump(wrong, default_flow_style=True, width=9999)}"
    command = (
        ["compare", "good.yaml", "--out", "out"]
        if good is COMPARED
        else ["tune", "good.yaml", "--dry-run"]
    )
    result = CliRunner().invoke(app, [*command, "--set", setting.removesuffix("...\n").strip()])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert result.stderr.startswith("autorl: good.yaml")
    assert message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["good.yaml"]
