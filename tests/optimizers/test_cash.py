"""Algorithm choice with every optimizer: one space of two algorithms, conditions, constraints and prefixes inside."""

import importlib.util

import pytest

from autorl.core.types import Failed, InputError
from autorl.optimizers import find, make, names
from autorl.space import compile_algorithms, load_space, split_algorithm
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.testing.optimizers import some_fail
from autorl.testing.simulation import simulate

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
SPACE = compile_algorithms(PARTS)
OPTIONS = {
    "cmaes": {"population_size": 4},
    "gp": {"startup": 4},
    "grid": {"levels": 2},
    "smac": {"startup": 6, "refit": 4},
    "tpe": {"startup": 5},
    "pbt": {"population": 10},
    "pb2": {"population": 10},
}
SLOW = ("gp", "smac")
ONE_CONFIGURATION = ("schedule",)  # nothing is chosen: it replays what it is given
NO_CHOICE = {"phases": "algorithm.* cannot change during training"}
MARKS = (pytest.mark.slow, pytest.mark.cpu_seconds(900))
MARKED = [pytest.param(name, marks=MARKS if name in SLOW else ()) for name in names()]


def score(number, proposal):
    name, own = split_algorithm(proposal.config)
    return proposal.until / 100 + (own["lr"] * 100 if name == "ppo" else -abs(own["lr"] - 0.2))


@pytest.mark.parametrize("name", MARKED)
def test_every_optimizer_chooses_among_algorithms(name):
    if name == "smac" and importlib.util.find_spec("smac") is None:
        pytest.skip("the extra `smac` is not installed")
    changeable = SPACE.changeable if find(name).partial else frozenset()

    def factory():
        return make(
            name, SPACE, horizon=100, budget=40, changeable=changeable, **OPTIONS.get(name, {})
        )

    if name in NO_CHOICE:
        with pytest.raises(InputError, match=NO_CHOICE[name]):
            factory()
        return
    simulation = simulate(factory, score, 16 if name in SLOW else 40, lag=3, fail=some_fail, seed=2)
    assert any(isinstance(event, Failed) for event in simulation.events)
    chosen = set()
    for proposal in simulation.proposals:
        SPACE.check(proposal.config)
        algorithm, own = split_algorithm(proposal.config)
        PARTS[algorithm].check(
            own
        )  # exactly its own active hyperparameters, without their prefix, rules kept
        assert {key.partition(".")[0] for key in proposal.config} == {"algorithm", algorithm}
        chosen.add(algorithm)
    assert chosen == ({"ppo"} if name in ONE_CONFIGURATION else {"ppo", "dqn"})


@pytest.mark.parametrize("name", ["asha", "pbt", "rising_bandits", "tpe"])
def test_a_study_trains_what_was_chosen(name, tmp_path):
    """Through the study file: each segment has the trainer and the hyperparameters of its own algorithm."""
    trainer = {"name": "synthetic", "kwargs": {"optimum": {"lr": 0.5}}}
    file = {
        "algorithms": {
            "ppo": {"trainer": trainer, "space": PPO},
            "dqn": {"trainer": trainer, "space": DQN},
        },
        "fidelity": {"steps": 100, "evaluations": 2},
        "optimizer": {"name": name, **({"population": 6} if name == "pbt" else {})},
        "budget": {"configurations": 8},
        "seeds": {"tuning": 1, "test": 0},
        "executor": {"name": "in_process"},
        "test": {"top": 0},
    }
    study = Study.create(load_spec(file), tmp_path / "study")
    try:
        result = study.run()
        rows = study.store.query(
            "SELECT runs.algorithm, config, runs.status FROM runs JOIN configurations USING (config_id)"
        )
    finally:
        study.close()
    assert result.incumbent is not None
    assert rows
    assert {status for _, _, status in rows} == {"done"}
