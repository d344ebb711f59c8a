"""Runs in variants of environments: their checkpoints, models and environments under both kinds of trainers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from segments import segment, train

from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.population import engine
from autorl.population.environments import find_environment
from autorl.population.export import to_sb3
from autorl.population.hyperparameters import record
from autorl.trainers import load
from autorl.trainers.saved_state import STATE, read

CHANGED = FrozenMap(
    gravity=5.0,
    reward_scale=2.0,
    observation_noise=0.2,
    random_action_probability=0.1,
    max_episode_steps=30,
)
VARIANT = EnvironmentSpec("CartPole-v1", kwargs=CHANGED)
TRAINER = TrainerSpec("population/ppo", FrozenMap(n_steps=32, batch_size=32, net_width=8))


def one_segment(folder, name, **changes):
    place = folder / name
    first = segment(TRAINER, VARIANT, {"learning_rate": 1e-3}, 128, place, episodes=5, horizon=256)
    return replace(first, **changes)


def arrays(outcome):
    return read(Path(outcome.checkpoint.path) / STATE)["arrays"]


def test_a_run_in_a_variant_goes_on_from_its_checkpoint_and_only_there(tmp_path):
    half = train(one_segment(tmp_path, "half"))
    assert half.reports[0].metrics["eval_return"] == 2.0 * half.reports[0].metrics["eval_length"]
    assert half.reports[0].metrics["eval_length"] <= 30
    later = {"start": 128, "until": 256, "evaluate_at": (256,), "parent": half.checkpoint}
    whole = train(one_segment(tmp_path, "whole", until=256, evaluate_at=(256,)))
    rest = train(one_segment(tmp_path, "rest", **later))
    ours, theirs = arrays(rest), arrays(whole)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert rest.reports[0].metrics == whole.reports[0].metrics
    other = EnvironmentSpec("CartPole-v1", kwargs=FrozenMap({**CHANGED, "gravity": 6.0}))
    for environment in (other, EnvironmentSpec("CartPole-v1")):
        with pytest.raises(
            InputError, match=r"environment.kwargs: the checkpoint is of .*gravity': 5"
        ):
            train(one_segment(tmp_path, "no", environment=environment, **later))


def test_a_variant_that_changes_nothing_is_its_environment_to_the_bit(tmp_path):
    stated = EnvironmentSpec("CartPole-v1", kwargs=FrozenMap(gravity=9.8, observation_noise=0))
    plain = EnvironmentSpec("CartPole-v1")
    ours, theirs = (
        train(one_segment(tmp_path, f"run{index}", environment=environment))
        for index, environment in enumerate((stated, plain))
    )
    assert ours.reports[0].metrics == theirs.reports[0].metrics
    assert arrays(ours).keys() == arrays(theirs).keys()
    assert arrays(ours)["member.states"].shape == (1, 4)


def test_an_exported_model_names_its_variant_and_has_it(tmp_path):
    pytest.importorskip("stable_baselines3")
    outcome = train(one_segment(tmp_path, "run"))
    written = load(TRAINER).export_model(outcome.checkpoint, tmp_path / "model")
    note = next(note for note in written.notes if "acts in" in note)
    assert "gymnasium_variants.make('CartPole-v1', gravity=5" in note
    algorithm = engine.find_algorithm("ppo")
    hp = record(algorithm.settings, {"net_width": 8}, 256)
    environment = find_environment("CartPole-v1", CHANGED)
    state = engine.from_arrays(algorithm, arrays(outcome))
    inside = to_sb3(algorithm, state, environment, hp).get_env().envs[0]
    assert inside.unwrapped.gravity == 5.0
    inside.reset(seed=0)
    rewards = [inside.step(0)[1] for _ in range(3)]
    assert rewards == [2.0] * 3


def test_environments_of_sb3_are_variants_whose_noise_is_saved():
    pytest.importorskip("stable_baselines3")
    from autorl.trainers.sb3.environments import make_training_environment

    env = make_training_environment(VARIANT)
    env.reset(seed=3)
    env.step(1)
    frozen = env.freeze()
    expected = [env.step(0) for _ in range(4)]
    again = make_training_environment(VARIANT)
    again.reset(seed=9)
    assert again.thaw(frozen, trust=False) == ""
    for before, after in zip(expected, (again.step(0) for _ in range(4)), strict=True):
        assert np.array_equal(before[0], after[0])
        assert before[1] == after[1] == 2.0
    with pytest.raises(InputError, match=r"environment.kwargs.masspole: expected a number"):
        make_training_environment(EnvironmentSpec("CartPole-v1", kwargs=FrozenMap(masspole=-1)))
    # What Gymnasium takes itself is as before there were variants.
    lighter = make_training_environment(EnvironmentSpec("Pendulum-v1", kwargs=FrozenMap(g=-3.0)))
    assert lighter.unwrapped.g == -3.0
