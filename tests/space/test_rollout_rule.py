"""Shipped spaces have no rollout longer than the steps between two evaluations."""

import numpy as np
import pytest

from autorl.space import load_space
from autorl.spec import load_spec
from autorl.spec.study_file import thaw
from autorl.study.landscape import read_study
from autorl.types import InputError

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
def test_a_default_that_breaks_it_is_one_clear_line(changes):
    with pytest.raises(InputError) as caught:
        study(**changes)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(
        "space: the default configuration breaks the constraint 'n_steps * n_envs <= evaluation_int"
    )
    assert "n_steps 2,048" in line
    assert (
        "more fidelity.steps, fewer fidelity.evaluations or rungs, fewer environment.n_envs, or a smaller "
        in line
    )
    smaller = {"extends": "sb3/ppo", "hyperparameters": {"n_steps": {"default": 64}}}
    assert study(**changes | {"space": smaller}).search_space.default()["n_steps"] == 64


def test_a_stored_study_keeps_its_space():
    spec = study(n_envs=4)
    stored = thaw(spec.freeze(), "study.yaml")
    assert stored.search_space == spec.search_space
    assert stored.search_space.constants == {"n_envs": 4, "evaluation_interval": 10_000}
    assert (
        spec.changed(
            fidelity=spec.fidelity.model_copy(update={"evaluations": 5})
        ).evaluation_interval
        == 20_000
    )


def test_the_landscape_of_a_study_has_the_same_space(tmp_path):
    from autorl.study import Study

    study_of = Study.create(study("population/ppo", steps=30_000), tmp_path / "s")
    study_of.close()
    assert read_study(tmp_path / "s").space == study_of.spec.search_space
