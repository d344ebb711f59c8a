"""Algorithm choice with every optimizer: one space of two algorithms, conditions, constraints and prefixes inside."""

import pytest

from autorl.optimizers import names
from autorl.space import load_space, split_algorithm
from autorl.study import Study
from autorl.study.spec import load_spec

FLOAT = {"type": "float", "changeable": True}
PPO = {
    "hyperparameters": {
        "lr": {**FLOAT, "lower": 1e-5, "upper": 1e-2, "scale": "log", "default": 1e-3},
        "batch_size": {"type": "int", "lower": 8, "upper": 512, "scale": "log", "default": 64},
        "n_steps": {"type": "int", "lower": 8, "upper": 512, "scale": "log", "default": 128},
        "use_kl": {"type": "categorical", "choices": [True, False], "default": True},
        "target_kl": {**FLOAT, "lower": 0.0, "upper": 1.0, "default": 0.1},
    },
    "conditions": {"target_kl": "use_kl == true"},
    "forbidden": [{"use_kl": False, "n_steps": 8}],
    "constraints": ["batch_size <= n_steps"],
}
DQN = {
    "hyperparameters": {
        "lr": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5, "changeable": True},
        "update": {"type": "categorical", "choices": ["soft", "hard"], "default": "soft"},
        "tau": {
            "type": "float",
            "lower": 0.8,
            "upper": 0.999,
            "scale": "flipped_log",
            "default": 0.99,
        },
        "gamma": {"type": "constant", "value": 0.99},
    },
    "conditions": {"tau": "update == soft"},
}
PARTS = {"ppo": load_space(PPO), "dqn": load_space(DQN)}


COSTLY = {"smac"}
# A grid of two algorithms begins with the first, and the last two are given what they train.
CHOOSING = sorted({*names()} - COSTLY - {"grid", "phases", "schedule"})
SETTINGS = {
    "cmaes": {"population_size": 4},
    "pb2": {"population": 8},
    "pbt": {"population": 8},
    "tpe": {"startup": 5},
}


@pytest.mark.parametrize("name", CHOOSING)
def test_a_study_trains_what_was_chosen(name):
    """Each segment has the trainer and the hyperparameters of its own algorithm, under its rules."""
    trainer = {"name": "synthetic", "kwargs": {"optimum": {"lr": 0.5}}}
    file = {
        "algorithms": {
            "ppo": {"trainer": trainer, "space": PPO},
            "dqn": {"trainer": trainer, "space": DQN},
        },
        "fidelity": {"steps": 100, "evaluations": 2},
        "optimizer": {"name": name, **SETTINGS.get(name, {})},
        "budget": {"configurations": 12},
        "seeds": {"tuning": 1, "test": 0},
        "executor": {"name": "in_process"},
        "test": {"top": 0},
    }
    study = Study.in_memory(load_spec(file))
    try:
        assert study.run().incumbent is not None
        configs = [one.config for one in study.driver.lineage.proposals.values()]
        statuses = study.store.query("SELECT DISTINCT status FROM runs")
    finally:
        study.close()
    assert statuses == [("done",)]
    for config in configs:
        algorithm, own = split_algorithm(config)
        PARTS[algorithm].check(own)  # exactly its own active hyperparameters, without their prefix
        assert {key.partition(".")[0] for key in config} == {"algorithm", algorithm}
    assert {config["algorithm"] for config in configs} == {"ppo", "dqn"}
