"""Algorithm choice as one conditional space."""

import numpy as np
import pytest
from refusals import expect_error

from autorl.core.types import Config, InputError
from autorl.space import compile_algorithms, load_space, read_space, split_algorithm

PPO = load_space({
    "hyperparameters": {
        "lr": {
            "type": "float", "lower": 1e-5, "upper": 1e-2, "scale": "log",
            "schedule": ["constant", "linear"],
        },
        "batch_size": {"type": "int", "lower": 8, "upper": 512, "default": 64},
        "n_steps": {"type": "int", "lower": 8, "upper": 512},
        "use_kl": {"choices": [True, False]},
        "target_kl": {"type": "float", "lower": 0, "upper": 1, "changeable": True},
    },
    "conditions": {"target_kl": "use_kl == true"},
    "forbidden": [{"use_kl": True, "n_steps": 8}],
    "constraints": ["batch_size <= n_steps * n_envs"],
    "constants": {"n_envs": 1},
})  # fmt: skip
DQN = load_space({"lr": "uniform(0, 1)", "tau": ["lr", "hard"]})


def test_every_hyperparameter_belongs_to_its_algorithm():
    space = compile_algorithms({"ppo": PPO, "dqn": DQN})
    assert space.names[0] == "algorithm"
    parts = {"ppo": PPO, "dqn": DQN}
    names = {f"{part}.{name}" for part, of_it in parts.items() for name in of_it.names}
    assert set(space.names) == {"algorithm", *names}
    assert split_algorithm(space.default()) == ("ppo", PPO.default())
    assert space.changeable == {"ppo.target_kl"}
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        name, config = split_algorithm(space.sample(rng))
        parts[name].check(config)
        seen.add(name)
    assert seen == {"ppo", "dqn"}


def test_validity_is_that_of_the_parts():
    space = compile_algorithms({"ppo": PPO, "dqn": DQN})
    rng = np.random.default_rng(1)
    outcomes = set()
    for _ in range(300):
        config = PPO.from_unit(rng.random(len(PPO.names)))
        joint = Config(
            {"algorithm": "ppo", **{f"ppo.{name}": value for name, value in config.items()}}
        )
        assert space.is_valid(joint) == PPO.is_valid(config)
        outcomes.add(PPO.is_valid(config))
    assert outcomes == {True, False}


def test_constants_are_shared():
    space = compile_algorithms({"ppo": PPO, "b": PPO}).with_constants({"n_envs": 64})
    config = {**PPO.default(), "n_steps": 9, "batch_size": 500}
    assert space.is_valid(
        {"algorithm": "b", **{f"b.{name}": value for name, value in config.items()}}
    )
    other = PPO.with_constants({"n_envs": 2})
    with pytest.raises(
        InputError, match=r"algorithms\.b: the algorithms give 'n_envs' different values"
    ):
        compile_algorithms({"ppo": PPO, "b": other})


def test_it_is_a_space_like_any_other():
    space = compile_algorithms({"ppo": PPO, "dqn": DQN})
    assert read_space(space.to_dict()) == space
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert space.is_valid(space.perturb(space.sample(rng), rng, names=space.names))
    assert space.hyperparameters["dqn.tau"].choices == ("lr", "hard")


def test_errors():
    expect_error("at least one algorithm", compile_algorithms, {})
    expect_error("has no dot", compile_algorithms, {"a.b": DQN})
    expect_error("name of an algorithm", split_algorithm, {"lr": 1})
