"""Applications of Hydra are swept by a study: `python app.py -m`."""

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import optuna
import pytest
import yaml

pytest.importorskip("hydra", reason="needs hydra-core, of the extra `hydra`")

from autorl import InputError
from autorl.integrations.hydra_sweeper import read_settings
from autorl.store import Store
from autorl.study.results.record import StudyRecord, open_copy
from autorl.study.results.result import read_result
from hydra_plugins.autorl_sweeper.sweeper import AutorlSweeperConf

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "hydra"

APP = """
import os
from pathlib import Path

import hydra


@hydra.main(version_base=None, config_path=".", config_name="app")
def train(cfg):
    {body}


if __name__ == "__main__":
    train()
"""
CONFIG = """
defaults:
  - _self_
  - override hydra/sweeper: autorl

seed: 0
lr: 0.01
net: small

hydra:
  sweeper:
    params: {{lr: "tag(log, interval(1e-5, 1e-1))", net: "choice(small, large)"}}
    optimizer: random
    n_trials: 4
    tuning_seeds: 2
    test_seeds: 3
{more}
"""
VALUE = "return abs(cfg.lr - 1e-3) * 100 + (cfg.net == 'small') + 0.01 * (cfg.seed % 7)"


def sweep(folder, *arguments, app=None, fails=False):
    """Run an application to its end, and return what it has said."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, str(app or folder / "app.py"), "-m", "hydra.sweep.dir=out"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def write(folder, body=VALUE, more="", config=None):
    (folder / "app.py").write_text(APP.format(body=body))
    (folder / "app.yaml").write_text(config or CONFIG.format(more=more))


def jobs_of(folder):
    """Read the overrides of each job, by its number."""
    jobs = {}
    for file in (folder / "out").glob("*/.hydra/overrides.yaml"):
        pairs = (text.split("=", 1) for text in yaml.safe_load(file.read_text()))
        jobs[int(file.parts[-3])] = dict(pairs)
    return [jobs[number] for number in sorted(jobs)]


def results_of(folder):
    return yaml.safe_load((folder / "out" / "optimization_results.yaml").read_text())


def study_of(folder):
    spec, connection = open_copy(folder / "out" / "study")
    with closing(connection):
        record = StudyRecord(spec, Store(connection, folder, None), folder / "out" / "study")
        return read_result(record), record.tables.proposals()


def test_the_example_is_swept_and_tested(tmp_path):
    said = sweep(tmp_path, app=EXAMPLE / "app.py")
    results = results_of(tmp_path)
    result, proposals = study_of(tmp_path)
    jobs = jobs_of(tmp_path)
    assert len(proposals) == 8
    assert [job["seed"] for job in jobs[:16]] == ["0", "1"] * 8
    tested = jobs[16:]
    assert {job["seed"] for job in tested} == {"100", "101", "102", "103"}
    # The first configuration is the application's own, and it is tested too.
    assert float(jobs[0]["algorithm.learning_rate"]) == 0.01
    assert jobs[0]["algorithm.activation"] == "relu"
    assert len(tested) == 8
    assert results["name"] == "autorl"
    assert results["best_params"] == result.best_params
    assert results["best_value"] == results["tuning_score"] == result.tuning
    assert results["tuning_seeds"] == 2
    assert results["test_score"] == result.test.value
    interval = result.test.interval
    assert results["test_interval"] == [interval.low, interval.high]
    assert set(results["test_values"]) == {"100", "101", "102", "103"}
    assert results["default"]["params"] == {
        "algorithm.activation": "relu",
        "algorithm.learning_rate": 0.01,
    }
    assert results["default"]["improvement_iqm"] == result.improvement
    assert result.tuning == max(row.score[0] for row in proposals)
    assert "autorl: 8 configurations, maximize, 2 tuning seed(s) each, then 4 test" in said


def test_jobs_are_launched_in_batches_and_the_command_line_comes_first(tmp_path):
    write(tmp_path)
    said = sweep(tmp_path, "hydra.sweeper.n_jobs=4", "net=large", "lr=choice(0.1,0.2,0.3)")
    assert "Launching 4 jobs locally" in said
    jobs = jobs_of(tmp_path)
    assert {job["net"] for job in jobs} == {"large"}
    assert {job["lr"] for job in jobs} <= {"0.1", "0.2", "0.3"}
    assert "minimize" in said
    assert results_of(tmp_path)["best_params"]["lr"] == 0.1


def test_a_sweep_that_was_killed_goes_on_in_its_folder(tmp_path):
    (tmp_path / "whole").mkdir()
    write(tmp_path / "whole")
    sweep(tmp_path / "whole")
    dies = """if os.environ.get("DIES") and len(list(Path("out").glob("*/.hydra"))) == 5:
        os._exit(3)
    """
    write(tmp_path, body=dies + VALUE)
    os.environ["DIES"] = "1"
    try:
        sweep(tmp_path, fails=True)
    finally:
        del os.environ["DIES"]
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("out/*/.hydra/*.yaml")}
    assert len(before) == 15
    sweep(tmp_path)
    assert results_of(tmp_path) == results_of(tmp_path / "whole")
    assert all(file.stat().st_mtime_ns == time for file, time in before.items())
    # Nothing is left to do.
    assert "Launching" not in sweep(tmp_path)
    assert results_of(tmp_path) == results_of(tmp_path / "whole")


HYPERSWEEPER = """
defaults:
  - _self_
  - override hydra/sweeper: autorl

seed: 0
lr: 0.01
net: small
space:
  hyperparameters:
    lr: {type: uniform_float, lower: 0.00001, upper: 0.1, log: true, default: "${lr}"}
    net: {type: categorical, choices: [small, large], default_value: "${net}"}

hydra:
  sweeper:
    n_trials: 3
    sweeper_kwargs:
      seeds: [3, 4]
      maximize: true
      max_parallelization: 0.8
      optimizer_kwargs:
        smac_facade: {_target_: smac.facade.nothing, _partial_: true}
    search_space: ${space}
"""


def test_a_configuration_of_hypersweeper_needs_one_other_line(tmp_path):
    write(tmp_path, config=HYPERSWEEPER)
    said = sweep(tmp_path, "hydra.sweeper.test_seeds=2")
    assert "ignored keys of another sweeper: optimizer_kwargs" in said
    assert "3 configurations, maximize, 2 tuning seed(s)" in said
    jobs = jobs_of(tmp_path)
    assert [job["seed"] for job in jobs[:6]] == ["3", "4"] * 3
    assert {job["seed"] for job in jobs[6:]} == {"100", "101"}
    assert (jobs[0]["lr"], jobs[0]["net"]) == ("0.01", "small")


def test_lengths_and_checkpoints_are_handed_to_jobs(tmp_path):
    more = """    budget_variable: steps
    loading_variable: load
    saving_variable: save
    seed_key: null
    optimizer: {name: random, stop: median, rungs: 2, against: scores, grace: 0}
"""
    body = """reached = int(Path(cfg.load).read_text()) if cfg.load else 0
    Path(cfg.save).write_text(str(reached + cfg.steps))
    return float(reached + cfg.steps + 10 * cfg.lr)"""
    config = CONFIG.format(more=more).replace("seed: 0", "steps: 8.0\nload: null\nsave: null", 1)
    write(tmp_path, body=body, config=config.replace("    optimizer: random\n", ""))
    sweep(tmp_path, "hydra.sweeper.n_trials=16")
    jobs = jobs_of(tmp_path)
    whole = [job for job in jobs if "load" in job]
    assert {job["steps"] for job in jobs} == {"4"}
    assert 0 < len(whole) < 16
    _, proposals = study_of(tmp_path)
    values = [(row.until, row.score[0] - 10 * row.values["lr"]) for row in proposals]
    assert all(value == pytest.approx(until) for until, value in values)


def test_several_objectives_and_failures(tmp_path):
    more = """    direction: [maximize, minimize]
    callbacks:
      - _target_: autorl.integrations.optuna_storage.OptunaStorage
        storage: sqlite:///out.db
        study: swept
"""
    body = """if cfg.lr > 0.05:
        raise ValueError("too high")
    return [cfg.lr, 1e-6 / cfg.lr]"""
    write(tmp_path, body=body, more=more)
    arguments = ["lr=choice(0.001,0.01,0.1,0.02)", "hydra.sweeper.test_seeds=0"]
    said = sweep(tmp_path, *arguments, "hydra.sweeper.seed_key=null")
    assert "Error executing job with overrides" in said
    result, proposals = study_of(tmp_path)
    statuses = {row.values["lr"]: row.status for row in proposals}
    assert {status for lr, status in statuses.items() if lr > 0.05} <= {"crash"}
    solutions = results_of(tmp_path)["solutions"]
    assert [item["values"] for item in solutions] == [
        list(point.tuning.values()) for point in result.front
    ]
    for item in solutions:
        lr = item["params"]["lr"]
        assert item["values"] == pytest.approx([lr, 1e-6 / lr])
    study = optuna.load_study(study_name="swept", storage=f"sqlite:///{tmp_path}/out.db")
    assert [trial.state.name for trial in study.get_trials()] == [
        "FAIL" if row.status == "crash" else "COMPLETE" for row in proposals
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hydra.sweeper.seed_key=nothing"], "the application has no key 'nothing'"),
        (["hydra.sweeper.tuning_seeds=[100]"], "seeds [100] are in both tuning and test"),
        (["seed=3"], "leave seed= out"),
        (["hydra.sweeper.budget_variable=net"], "how many net a full job has"),
        (["hydra.sweeper.optimizer=nothing"], "nothing"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, arguments, message):
    write(tmp_path)
    said = sweep(tmp_path, *arguments, fails=True)
    (line,) = [line for line in said.splitlines() if line.startswith("autorl: ")]
    assert message in line
    assert "Traceback" not in said
    assert jobs_of(tmp_path) == []


def test_a_function_that_returns_nothing_ends_the_sweep(tmp_path):
    write(tmp_path, body="print(cfg.lr)")
    said = sweep(tmp_path, fails=True)
    assert "autorl: job 0 returned nothing" in said
    assert len(jobs_of(tmp_path)) == 1


OPTIONS = asdict(AutorlSweeperConf(n_trials=8))


def test_settings_of_hypersweeper_are_understood():
    kwargs = {"seeds": [5], "seed_keyword": "rng", "max_budget": 100, "max_parallelization": 0.5}
    settings = read_settings(OPTIONS | {"sweeper_kwargs": kwargs, "budget_variable": "epochs"})
    assert (settings.tuning_seeds, settings.seed_key, settings.steps) == ([5], "rng", 100)
    assert (settings.n_jobs, settings.direction) == (4, ("minimize",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_trials": None}, "n_trials: say how many configurations"),
        ({"n_jobs": 0}, "n_jobs: expected a count of 1 or more, got 0"),
        ({"direction": "up"}, "direction: expected minimize or maximize, got 'up'"),
        ({"steps": 5}, "hydra.sweeper.steps: needs budget_variable"),
        ({"study": {"seeds": 3}}, "study.seeds: stands under hydra.sweeper.tuning_seeds"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        read_settings(OPTIONS | options)
