"""A schedule trained again: bitwise on its own seeds, on held-out seeds beside the population's best, and from YAML."""

import pytest
import yaml
from study_support import small_spec

from autorl.study import Study
from autorl.study.results.replay import retrain, same, schedule_study
from autorl.study.spec import load_spec

PBT = {"name": "pbt", "population": 6, "generations": 5}
FLOAT = {"type": "float"}
RATE = {**FLOAT, "lower": 1e-4, "upper": 1e-1, "scale": "log", "changeable": True}
DRIFT = {"drift": 0.6, "noise": 0.0, "interaction": 0.0}


def finished(spec):
    study = Study.in_memory(spec)
    study.run()
    return study


def winner(study):
    """The incumbent, which changed its configuration at least once."""
    best = study.result().incumbent
    assert len(best.schedule) > 1, "the case is chosen so that the winner has a schedule"
    return best


def curves_of(study, proposal):
    return {
        seed: study.driver.work.curve(proposal, seed)
        for seed in study.driver.tuning_seeds(proposal)
    }


@pytest.fixture(scope="module")
def study():
    """A small study of pbt whose winner has a schedule."""
    return finished(small_spec(DRIFT, optimizer=PBT, budget={"runs": 12}, parallelism=4))


def assert_reproduced(study):
    """The best proposal of those that exploited another member and changed its configuration."""
    lineage = study.driver.lineage
    best = next(
        number for number in study.driver.ranking.ordered() if len(lineage.schedule(number)) > 1
    )
    assert any(lineage.fork(link, 0) is not None for link in lineage.chain(best))
    again = retrain(study.spec, lineage, study.load, best, study.spec.plan.tuning)
    recorded = curves_of(study, best)
    assert set(again) == set(recorded)
    for seed, curve in again.items():
        assert len(curve.steps) >= study.spec.fidelity.evaluations
        assert same(curve, recorded[seed])


def test_a_schedule_replays_bitwise_on_its_own_seeds(study):
    assert_reproduced(study)


def test_a_schedule_of_the_population_engine_replays_bitwise_on_its_own_seeds():
    spec = load_spec(
        {
            "trainer": {
                "name": "population/ppo",
                "kwargs": {"n_steps": 32, "batch_size": 32, "net_width": 8},
            },
            "environment": {"id": "CartPole-v1", "n_envs": 2},
            "space": {
                "hyperparameters": {
                    "learning_rate": RATE | {"schedule": ["constant", "linear", "cosine"]},
                    "n_epochs": {"type": "int", "lower": 1, "upper": 4, "changeable": True},
                    "gamma": {"lower": 0.8, "upper": 0.999, "scale": "flipped_log", **FLOAT},
                }
            },
            "fidelity": {"steps": 768, "evaluations": 3, "episodes": 2},
            "optimizer": {"name": "pbt", "population": 4, "generations": 3, "quantile": 0.5},
            "budget": {"runs": 8},
            "seeds": {"tuning": 2, "test": 0},
            "executor": {"name": "in_process"},
        }
    )
    assert_reproduced(finished(spec))


def test_held_out_curves_are_those_of_the_test_phase(study):
    best = winner(study).proposal
    again = retrain(
        study.spec, study.driver.lineage, study.load, best, study.spec.plan.test, "test"
    )
    assert {
        seed: curve.metrics[-1]["eval_return"] for seed, curve in again.items()
    } == study.result().test.seeds
    assert not set(again) & set(study.spec.plan.tuning)


def test_the_schedule_as_yaml_is_a_study_that_trains_it(study):
    """If there is no noise and no random stream, the synthetic trainer gives the same score by the
    schedule alone."""
    best = winner(study)
    text = schedule_study(study.spec, best.schedule)
    document = yaml.safe_load(text)
    assert list(document["optimizer"]["schedule"]) == [step for step, _ in best.schedule]
    again = finished(load_spec(document))
    assert again.result().incumbent.schedule == best.schedule
    assert again.result().tuning == pytest.approx(study.result().tuning, abs=1e-12)
    assert again.driver.charges.steps == 100 * len(study.spec.plan.tuning)
