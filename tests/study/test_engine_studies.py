"""Studies of the population engine, of its options and of environments outside it: one table, whatever is killed."""

from __future__ import annotations

import pytest
from study_support import table
from test_kill import after_events, run_spec_and_die

from autorl import trainers
from autorl.study import Study
from autorl.study.setup import executor_name, make_named_executor
from autorl.study.spec import load_spec

KWARGS = {
    "ppo": {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "net_width": 8},
    "td3": {"learning_starts": 24, "batch_size": 8, "train_freq": 4, "net_width": 8},
    "dqn": {"learning_starts": 32, "batch_size": 16, "buffer_size": 200, "net_width": 8},
}
RATE = {"type": "float", "lower": 1e-3, "upper": 1e-2, "changeable": True}
BOTH = {"type": "categorical", "choices": [True, False]}
SPACES = {
    "dqn": {
        **{"learning_rate": RATE, "double": BOTH, "dueling": BOTH, "prioritized": BOTH},
        "n_steps": {"type": "ordinal", "choices": [1, 3]},
    }
}
ASHA = {"name": "asha", "rungs": 2}
PBT = {"name": "pbt", "population": 4, "generations": 3, "quantile": 0.5}
# The state of the simulator cannot be saved: its episodes begin anew. That of MuJoCo can.
CASES = {
    "outside": ("ppo", "outside_tasks:Outside/CartPole-v1", PBT),
    "simulator": ("ppo", "outside_tasks:Outside/Simulator-v0", ASHA),
    "normalized": ("td3", "outside_tasks:Outside/Pendulum-v1", PBT),
    "mujoco normalized": ("ppo", "HalfCheetah-v5", PBT),
    "options of dqn asha": ("dqn", "CartPole-v1", ASHA),
    "options of dqn pbt": ("dqn", "CartPole-v1", PBT),
}


def _spec(case, **executor):
    trainer, name, optimizer = CASES[case]
    if "mujoco" in case:
        for module in ("mujoco", "imageio"):
            pytest.importorskip(module, reason="needs the extra mujoco")
    return load_spec(
        {
            "name": "outside",
            "trainer": {"name": f"population/{trainer}", "kwargs": KWARGS[trainer]},
            "environment": {"id": name, "n_envs": 2, "normalize": "normalized" in case},
            "space": {"hyperparameters": SPACES.get(trainer, {"learning_rate": RATE})},
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
        executor = make_named_executor(executor_name(spec), spec, trainers.load, workers)
    study.run(executor=executor)
    study.close()


@pytest.mark.parametrize("case", CASES)
def test_killed_or_with_other_workers_a_study_has_one_table(case, tmp_path):
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
    assert bool(anew) == (case == "simulator")
    outside = "dqn" not in case
    assert executor_name(_spec(case, workers=2)) == ("processes" if outside else "threads")
    _run(tmp_path / "two", _spec(case, workers=2), 2)
    assert table(tmp_path / "two") == quiet
