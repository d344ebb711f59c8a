"""Episodes of an evaluation that a study file does not state: by the time limit of the environment."""

import pytest

from autorl.study.spec import load_spec, thaw

PENDULUM = {"id": "Pendulum-v1"}  # 200 steps


def spec(steps, environment, trainer="sb3/sac", **fidelity):
    return load_spec(
        {
            "name": "episodes",
            "trainer": trainer,
            "environment": environment,
            "space": {"hyperparameters": {"gamma": {"type": "float", "lower": 0.9, "upper": 0.99}}},
            "optimizer": "random",
            "fidelity": {"steps": steps, "evaluations": 10, **fidelity},
            "budget": {"runs": 4},
        }
    )


@pytest.mark.parametrize(
    ("study", "episodes"),
    [
        (spec(2_000, PENDULUM), 2),
        (spec(200_000, PENDULUM), 10),
        (spec(200_000, PENDULUM, evaluations=5), 20),
        (spec(2_000_000, PENDULUM), 32),
        (spec(200_000, PENDULUM | {"kwargs": {"max_episode_steps": 100}}), 20),
        (spec(2_000, PENDULUM, episodes=32), 32),
        # The engine evaluates its own environments at next to no cost.
        (spec(2_000, PENDULUM, "population/sac"), 32),
        (spec(200_000, PENDULUM | {"vec_env": "gymnasium"}, "population/sac"), 32),
        # Nobody knows the limit of an environment that is not registered yet.
        (spec(2_000, "corridor:Corridor-v0"), 32),
        (spec(2_000, {}, "synthetic"), 32),
    ],
)
def test_all_evaluations_take_a_tenth_of_the_steps_unless_episodes_are_stated(study, episodes):
    assert study.fidelity.episodes == episodes


def test_the_stored_study_has_the_number(monkeypatch):
    begun = spec(200_000, PENDULUM)
    stored = thaw(begun.freeze(), "study.yaml")
    assert stored.fidelity.episodes == 10
    assert begun.same_study(stored)
    assert not spec(200_000, PENDULUM, episodes=32).same_study(stored)
