"""Rewards that are vectors: weighted for training, evaluated one by one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
pytest.importorskip("mo_gymnasium", reason="needs the extra morl")

import mo_gymnasium
import torch
from segments import refusal, run, segment

import autorl
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, Outcome, TrainerSpec
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.trainers.info import TrainedRun
from autorl.trainers.sb3.environments import make_environment
from autorl.trainers.sb3.zoo_write import zoo_entry

torch.set_num_threads(1)  # as the executors do
TREASURE = EnvironmentSpec("mo_gymnasium:deep-sea-treasure-v0", n_envs=2)
EXAMPLE = Path(__file__).parents[2] / "examples" / "multi_objective"
WEIGHTS = "environment.kwargs.reward_weights"
ROLLOUT = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "net_arch": [8]}
DOWN, RIGHT = 1, 3


def weighted(weights: Any) -> EnvironmentSpec:
    return replace(TREASURE, kwargs=FrozenMap(reward_weights=weights))


def run_in(folder: Path, until: int = 128, after: Outcome | None = None, **changes: Any) -> Outcome:
    """Train a segment of PPO."""
    environment, config = changes.get("environment", TREASURE), ROLLOUT | changes.get("config", {})
    options, place = changes.get("kwargs", {}), folder / f"run-{until}"
    of_run = {"after": after, "horizon": 128}
    return run(segment("sb3/ppo", environment, config, until, place, options, **of_run))


@pytest.mark.parametrize("weights", [None, (1.0, 3.0), (0, 1)])
def test_the_reward_is_the_weighted_mean_of_the_components(weights: Any) -> None:
    env = make_environment(weighted(weights) if weights else TREASURE)
    task: Any = mo_gymnasium.make("deep-sea-treasure-v0")
    env.reset(seed=1)
    task.reset(seed=1)
    factors = np.array(weights or (1, 1))
    totals = np.zeros(2)
    for action in (RIGHT, RIGHT, DOWN, DOWN, DOWN, DOWN):
        _, reward, ended, _, info = env.step(action)
        vector = task.step(action)[1]
        totals += vector
        assert reward == pytest.approx(float(vector @ factors) / factors.sum())
        assert np.array_equal(info["reward_vector"], vector)
        if ended:
            break
    assert ended
    assert totals[0] > 0
    assert np.allclose(env.get_wrapper_attr("component_returns"), totals)
    env.reset(seed=2)
    assert not env.get_wrapper_attr("component_returns").any()


def test_components_are_evaluated_whatever_the_weights(tmp_path: Path) -> None:
    outcome = run_in(tmp_path, config={WEIGHTS: (0.25, 4.0)})
    assert not outcome.message, outcome.message
    metrics = outcome.reports[0].metrics
    assert metrics["eval_return_1"] == -metrics["eval_length"]  # one of time for each step
    # By equal weights: the configuration's would make every one comparable to itself alone.
    mean = (metrics["eval_return_0"] + metrics["eval_return_1"]) / 2
    assert metrics["eval_return"] == pytest.approx(mean)
    assert outcome.applied[WEIGHTS] == (0.25, 4.0)


def test_weights_that_are_fixed_weigh_the_evaluation_too(tmp_path: Path) -> None:
    outcome = run_in(tmp_path, environment=weighted((0.0, 1.0)))
    assert not outcome.message, outcome.message
    metrics = outcome.reports[0].metrics
    assert metrics["eval_return"] == pytest.approx(metrics["eval_return_1"])


def test_weights_change_what_is_learnt(tmp_path: Path) -> None:
    treasure = run_in(tmp_path / "a", config={WEIGHTS: (1, 0)})
    time = run_in(tmp_path / "b", config={WEIGHTS: (0, 1)})
    assert treasure.checkpoint is not None
    assert time.checkpoint is not None
    trained = treasure.reports[0].metrics["train_return"]
    assert trained != time.reports[0].metrics["train_return"]


def study(**changes: Any) -> dict[str, Any]:
    return {
        "trainer": "sb3/ppo",
        "environment": "mo_gymnasium:deep-sea-treasure-v0",
        "space": {WEIGHTS: {"type": "simplex", "size": 2}},
        "objective": [{"metric": "eval_return_0"}, {"metric": "eval_return_1"}],
        "optimizer": "random",
        "fidelity": {"steps": 4096},
        "budget": {"runs": 8},
        **changes,
    }


def wrong(**changes: Any) -> InputError:
    return refusal(study(**changes))


def test_what_the_environment_does_not_have_is_refused_before_training() -> None:
    spec = load_spec(study())
    check(spec, trainer_loader(spec))
    plain = wrong(environment="CartPole-v1", objective={"metric": "eval_return"})
    assert "unexpected keyword argument 'reward_weights'" in plain.message
    assert "expected 2 weights" in wrong(space={WEIGHTS: {"type": "simplex", "size": 3}}).message
    third = [{"metric": "eval_return_0"}, {"metric": "eval_return_2"}]
    assert "unknown metric 'eval_return_2'" in wrong(objective=third).message


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((-1.0, 1.0), "expected a number of at least 0"),
        (("much", 1.0), "expected a number of at least 0"),
        ((0, 0), "must be above 0"),
        ((1.0,), "expected 2 weights"),
        (1.0, "expected 2 weights"),
    ],
)
def test_weights_are_numbers_from_zero_on(weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_environment(weighted(weights))


def test_the_zoo_is_told_what_it_cannot_say() -> None:
    environment = {"id": TREASURE.id}
    config = {"learning_rate": 1e-3, WEIGHTS: (0.5, 0.5)}
    text = zoo_entry(TrainedRun(TrainerSpec("sb3/ppo"), config, 1000, 1000, environment))
    assert "# trained with environment.kwargs.reward_weights=[0.5, 0.5]" in text
    assert "policy_kwargs" not in text


def test_the_example_ends_with_a_front(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "example")
    result = autorl.tune(
        folder / "study.yaml",
        runs=4,
        out=tmp_path / "out",
        workers=1,
        fidelity__steps=512,
        fidelity__evaluations=2,
        optimizer__population_size=2,
        seeds__test=2,
    )
    assert len(result.front) >= 1
    for point in result.front:
        treasure, time = point.tuning.values()
        assert treasure >= 0
        assert time < 0
