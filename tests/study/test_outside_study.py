"""Studies on environments outside the engine: killed anywhere, or with other workers, one table."""

from __future__ import annotations

import pytest
from study_support import table
from test_kill import after_events, run_spec_and_die

from autorl import trainers
from autorl.spec import load_spec
from autorl.study import Study
from autorl.study.setup import executor_name, make_named_executor

KWARGS = {
    "ppo": {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "net_width": 8},
    "td3": {"learning_starts": 24, "batch_size": 8, "train_freq": 4, "net_width": 8},
}
SPACE = {"learning_rate": {"type": "float", "lower": 1e-3, "upper": 1e-1, "changeable": True}}
ASHA = {"name": "asha", "rungs": 2}
PBT = {"name": "pbt", "population": 4, "generations": 3, "quantile": 0.5}
# The state of the simulator cannot be saved: its episodes begin anew. That of MuJoCo can. The last two normalise.
CASES = [
    ("ppo", "outside_tasks:Outside/CartPole-v1", PBT),
    ("ppo", "outside_tasks:Outside/Simulator-v0", ASHA),
    ("td3", "outside_tasks:Outside/Pendulum-v1", PBT),
    ("ppo", "HalfCheetah-v5", PBT),
]


def _spec(case, **executor):
    trainer, name, optimizer = case
    if name == "HalfCheetah-v5":
        for module in ("mujoco", "imageio"):
            pytest.importorskip(module, reason="needs the extra mujoco")
    return load_spec(
        {
            "name": "outside",
            "trainer": {"name": f"population/{trainer}", "kwargs": KWARGS[trainer]},
            "environment": {"id": name, "n_envs": 2, "normalize": case in CASES[2:]},
            "space": {"hyperparameters": SPACE},
            "fidelity": {"steps": 192, "evaluations": 3, "episodes": 2},
            "budget": {"runs": 4},
            "seeds": {"tuning": 1, "test": 1},
            "optimizer": optimizer,
            "parallelism": 2,
            "executor": executor or {"name": "in_process"},
            "test": {"top": 1},
        }
    )


def _run(folder, spec, workers=None):
    study = Study.create(spec, folder)
    executor = None
    if workers is not None:
        executor = make_named_executor("processes", spec, trainers.load, workers)
    study.run(executor=executor)
    study.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1].rpartition("/")[2])
def test_killed_again_and_again_the_table_is_that_of_a_quiet_run(case, tmp_path):
    _run(tmp_path / "quiet", _spec(case))
    sessions = 1
    while not run_spec_and_die(tmp_path / "killed", _spec(case), after_events(9)):
        sessions += 1
    assert sessions > 2
    quiet = table(tmp_path / "quiet")
    assert table(tmp_path / "killed") == quiet
    assert all("done" in map(str, row) for row in quiet["segments"])
    assert any(row[4] is not None for row in quiet["segments"]), "no segment continued another"
    anew = [row for row in quiet["segments"] if "not restorable" in str(row[11])]
    assert bool(anew) == (case[1].endswith("Simulator-v0"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1].rpartition("/")[2])
def test_one_and_two_workers_give_the_same_table(case, tmp_path):
    assert executor_name(_spec(case, workers=2)) == "processes"
    for folder, workers in (("alone", None), ("one", 1), ("two", 2)):
        _run(tmp_path / folder, _spec(case), workers)
    assert table(tmp_path / "one") == table(tmp_path / "two") == table(tmp_path / "alone")
