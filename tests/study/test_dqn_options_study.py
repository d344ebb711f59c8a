"""Studies of DQN's options: killed anywhere, or with other workers, they end with the table of a quiet run."""

from __future__ import annotations

import pytest
from study_support import table
from test_kill import after_events, run_spec_and_die

from autorl import executors, trainers
from autorl.spec import load_spec
from autorl.study import Study

KWARGS = {"learning_starts": 32, "batch_size": 16, "buffer_size": 200, "net_width": 8}
SPACE = {
    "learning_rate": {"type": "float", "lower": 1e-3, "upper": 1e-2, "changeable": True},
    "double": {"type": "categorical", "choices": [True, False]},
    "dueling": {"type": "categorical", "choices": [True, False]},
    "prioritized": {"type": "categorical", "choices": [True, False]},
    "n_steps": {"type": "ordinal", "choices": [1, 3]},
}
OPTIMIZERS = {
    "asha": {"name": "asha", "rungs": 2},
    "pbt": {"name": "pbt", "population": 4, "generations": 3, "quantile": 0.5},
}


def _spec(optimizer):
    return load_spec(
        {
            "name": "options",
            "trainer": {"name": "population/dqn", "kwargs": KWARGS},
            "environment": "CartPole-v1",
            "space": {"hyperparameters": SPACE},
            "fidelity": {"steps": 192, "evaluations": 3, "episodes": 2},
            "budget": {"runs": 4},
            "seeds": {"tuning": 1, "test": 1},
            "optimizer": OPTIMIZERS[optimizer],
            "parallelism": 2,
            "executor": {"name": "in_process"},
            "test": {"top": 1},
        }
    )


def _run(folder, optimizer, workers=None):
    study = Study.create(_spec(optimizer), folder)
    study.run(
        executor=None if workers is None else executors.make("threads", trainers.load, workers)
    )
    study.close()


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_killed_again_and_again_the_table_is_that_of_a_quiet_run(tmp_path, optimizer):
    _run(tmp_path / "quiet", optimizer)
    sessions = 1
    while not run_spec_and_die(tmp_path / "killed", _spec(optimizer), after_events(9)):
        sessions += 1
    assert sessions > 2
    quiet = table(tmp_path / "quiet")
    assert table(tmp_path / "killed") == quiet
    assert all("done" in map(str, row) for row in quiet["segments"])
    assert any(row[4] is not None for row in quiet["segments"]), "no segment continued another"


def test_one_and_three_workers_give_the_same_table(tmp_path):
    for name, workers in (("alone", None), ("one", 1), ("three", 3)):
        _run(tmp_path / name, "asha", workers)
    assert table(tmp_path / "one") == table(tmp_path / "three") == table(tmp_path / "alone")
