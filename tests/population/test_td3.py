from __future__ import annotations

import math

import numpy as np
import pytest
from population_helpers import CARTPOLE, OFF_POLICY, PENDULUM, TWO, advanced, make, same

from autorl.population import engine, td3
from autorl.population.networks import hidden_widths


@pytest.mark.parametrize("kind", ["normal", "ornstein-uhlenbeck"])
def test_exploration_noise_is_that_of_stable_baselines3s_class(kind, monkeypatch):
    noises = pytest.importorskip("stable_baselines3.common.noise")
    name = {"normal": "NormalActionNoise", "ornstein-uhlenbeck": "OrnsteinUhlenbeckActionNoise"}
    theirs = getattr(noises, name[kind])(np.zeros(2), np.full(2, 0.7), dtype=np.float64)
    _, hp, state = make("td3", 3, TWO, np.float64, noise_type=kind, noise_std=0.7)
    waiting = list(np.random.default_rng(1).normal(size=(50, 2)))
    monkeypatch.setattr(
        "numpy.random.normal", lambda mean=0.0, scale=1.0, size=None: mean + scale * waiting.pop(0)
    )
    ours = state["exploration"].noise[0]
    for draws in list(waiting):
        expected = theirs()
        noise = [td3.exploration_noise(ours, i, hp.noise_type, 0.7, draws[i]) for i in range(2)]
        np.testing.assert_allclose(noise, expected, rtol=1e-12, atol=1e-15)


_ROLLOUT = {"n_envs": 3, "n_steps": 6, "net_width": 9, "learning_rate": 1e-2, "ent_coef": 0.01}
_OF_A2C = {"n_epochs": 1, "batch_size": 18, "clip_range": math.inf, "gae_lambda": 1.0}
_OF_A2C |= {"normalize_advantage": False}
_RMSPROP = {"optimizer": "rmsprop", "optimizer_eps": 3e-6}
_REPLAY = {**OFF_POLICY, "noise_std": 0.2}
_OF_DDPG = {"policy_delay": 1, "n_critics": 1, "target_noise_clip": 0.0, "target_policy_noise": 0.0}
# The special case, its own hyperparameters, the general algorithm with those that make it, shared.
SPECIAL = [
    ("ddpg", {}, "td3", _OF_DDPG, _REPLAY, PENDULUM),
    ("a2c", {"rms_prop_eps": 3e-6}, "ppo", _OF_A2C | _RMSPROP, _ROLLOUT, CARTPOLE),
    ("a2c", {"use_rms_prop": False}, "ppo", _OF_A2C, _ROLLOUT, CARTPOLE),
]


@pytest.mark.parametrize(("name", "own", "general", "made", "shared", "environment"), SPECIAL)
def test_a_special_case_trains_as_the_general_algorithm(
    name, own, general, made, shared, environment
):
    special = advanced(name, 8, (5,), environment, **shared, **own)
    assert same(special, advanced(general, 8, (5,), environment, **shared, **made))


@pytest.mark.parametrize("name", ["a2c", "td3", "ddpg"])
def test_defaults_are_those_of_stable_baselines3s_constructor(name):
    import inspect

    library = pytest.importorskip("stable_baselines3")
    parameters = inspect.signature(getattr(library, name.upper())).parameters
    settings = engine.find_algorithm(name).settings
    shared = set(settings) & set(parameters)
    assert len(shared) >= 8
    assert {key: settings[key].default for key in shared} == {
        key: parameters[key].default for key in shared
    }
    if name != "a2c":
        assert hidden_widths(int(settings["net_width"].encode("net_width", "400-300")), 2) == (
            400,
            300,
        )
