"""Shipped spaces have no rollout longer than the steps between two evaluations."""

import numpy as np
import pytest

from autorl.core.types import InputError
from autorl.space import load_space
from autorl.study.spec import load_spec
from autorl.study.spec.study_file import thaw

SHIPPED = ["sb3/ppo", "sb3/ppo-small", "sb3/a2c", "population/ppo"]


def study(name="sb3/ppo", steps=100_000, evaluations=10, n_envs=None, **changes):
    trainer = name.removesuffix("-small")
    fidelity = {"steps": steps, "evaluations": evaluations}
    document = {"trainer": trainer, "space": name, "fidelity": fidelity, "budget": {"runs": 300}}
    environment = {"id": "CartPole-v1"} | ({} if n_envs is None else {"n_envs": n_envs})
    return load_spec(document | {"environment": environment} | changes)


@pytest.mark.parametrize("name", SHIPPED)
def test_no_configuration_has_a_longer_rollout(name):
    searched = "n_envs" in load_space(name).hyperparameters
    n_envs = None if searched else 4
    spec = study(name, n_envs=n_envs)
    rng = np.random.default_rng(0)
    assert spec.evaluation_interval == 10_000
    rollouts = []
    for _ in range(200):
        config = spec.search_space.sample(rng)
        rollouts.append(config["n_steps"] * config.get("n_envs", 4))
    assert max(rollouts) <= 10_000
    alone = [load_space(name).sample(rng) for _ in range(200)]
    assert len({config["n_steps"] for config in alone}) == len(
        load_space(name).hyperparameters["n_steps"].choices
    )


@pytest.mark.parametrize(
    ("optimizer", "interval"),
    [
        ("tpe", 10_000),
        ({"name": "tpe", "stop": "median", "rungs": 20}, 5_000),
        ({"name": "hyperband", "rungs": 5}, 6_250),
        ({"name": "asha", "rungs": 4, "eta": 3}, 3_704),
        ({"name": "pbt", "generations": 20}, 5_000),
        ({"name": "phases", "phases": 16}, 6_250),
        ({"name": "cost_aware", "shortest": 0.05}, 5_000),
    ],
)
def test_the_interval_is_the_shortest_between_evaluations_or_rungs(optimizer, interval):
    spec = study(optimizer=optimizer, space={"x": {"type": "float", "lower": 0, "upper": 1}})
    assert spec.evaluation_interval == interval


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 20_000},
        {"evaluations": 50},
        {"n_envs": 8},
        {"optimizer": {"name": "pbt", "generations": 50}},
    ],
)
def test_only_what_somebody_wrote_breaks_it(changes):
    written = {"extends": "sb3/ppo", "hyperparameters": {"n_steps": {"default": 2048}}}
    with pytest.raises(InputError) as caught:
        study(**changes | {"space": written})
    (line,) = str(caught.value).splitlines()
    assert line.startswith("space: ")
    assert "'n_steps * n_envs <= evaluation_interval'" in line
    assert "n_steps 2,048" in line
    assert "fewer fidelity.evaluations" in line
    spec = study(**changes)
    assert spec.search_space.default()["n_steps"] < 2048
    assert any("n_steps" in text for text in spec.given_way)


@pytest.mark.parametrize(
    ("steps", "n_envs", "evaluations", "n_steps"),
    [(100_000, 1, 10, 2048), (20_000, 1, 9, 2048), (100_000, 16, 3, 2048), (4096, 16, 1, 256)],
)
def test_defaults_give_way_to_the_steps(steps, n_envs, evaluations, n_steps):
    document = {"trainer": "sb3/ppo", "space": "sb3/ppo", "budget": {"runs": 300}}
    environment = {"id": "CartPole-v1", "n_envs": n_envs}
    spec = load_spec(document | {"environment": environment, "fidelity": {"steps": steps}})
    assert spec.fidelity.evaluations == evaluations
    assert spec.search_space.default()["n_steps"] == n_steps
    assert bool(spec.given_way) == ((evaluations, n_steps) != (10, 2048))
    stored = thaw(spec.freeze(), "study.yaml")
    assert stored.fidelity.evaluations == evaluations
    assert stored.search_space == spec.search_space


def test_defaults_of_each_algorithm_give_way_to_the_steps():
    parts = {name: {"trainer": f"sb3/{name}", "space": f"sb3/{name}"} for name in ("ppo", "a2c")}
    document = {"algorithms": parts, "budget": {"runs": 300}}
    environment = {"id": "CartPole-v1", "n_envs": 16}
    fidelity = {"steps": 4096, "evaluations": 4}
    spec = load_spec(document | {"environment": environment, "fidelity": fidelity})
    assert spec.spaces["ppo"].default()["n_steps"] == 64
    assert spec.given_way == ("ppo: default of n_steps: 64, not 2048: evaluations are near",)
    parts["ppo"]["space"] = {"extends": "sb3/ppo", "hyperparameters": {"n_steps": {"default": 128}}}
    with pytest.raises(InputError, match="n_steps 128"):
        load_spec(document | {"environment": environment, "fidelity": fidelity})


def test_a_default_that_goes_to_the_nearest_bound_is_said():
    narrow = {"gamma": {"lower": 0.9, "upper": 0.95}, "ent_coef": {"lower": 0.0, "upper": 0.01}}
    spec = study(steps=100_000, space={"extends": "sb3/ppo", "hyperparameters": narrow})
    assert spec.search_space.default()["gamma"] == 0.95
    assert "default of gamma: 0.95, not 0.99: it is the nearest bound" in spec.given_way
    assert not any("ent_coef" in line for line in spec.given_way)
