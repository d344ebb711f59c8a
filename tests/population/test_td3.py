from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from population_helpers import CARTPOLE, OFF_POLICY, PENDULUM, TWO, advanced, make, same

from autorl.population import a2c, ddpg, engine, td3
from autorl.population.members import UPDATES
from autorl.population.networks import hidden_widths


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_actions_in_memory_are_scaled_and_random_at_first(name):
    config = {**OFF_POLICY, "buffer_size": 480, "learning_starts": 10_000}
    actions = advanced(name, 2, (60,), PENDULUM, **config)["replay"].rows
    assert np.abs(actions[:, 6]).max() <= 1.0
    assert actions[:, 6].std() == pytest.approx(1 / math.sqrt(3), rel=0.1)
    assert (actions[:, -1] == 0.0).all()  # time limits are not terminations
    if name == "sac":
        return
    noisy = advanced("td3", 2, (60,), PENDULUM, **config, noise_std=0.5)["replay"].rows
    # Random actions get noise too, and are cut at their bounds, as in Stable-Baselines3.
    assert (np.abs(noisy[:, 6]) == 1.0).mean() > 0.1


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


def test_noise_begins_anew_with_every_episode():
    short = replace(PENDULUM, time_limit=12)
    config = {**OFF_POLICY, "n_envs": 1, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.4}
    ends = [advanced("td3", 4, (n,), short, **config)["exploration"].noise[0, 0] for n in (2, 3, 4)]
    assert ends[0] != 0.0
    assert ends[1] == 0.0  # twelve steps: the episode is over
    assert ends[2] != 0.0


def test_the_delayed_networks_wait():
    config = {**OFF_POLICY, "policy_delay": 4, "gradient_steps": 3, "learning_starts": 0}
    algorithm, hp, state = make("td3", 6, PENDULUM, **config)
    bound, split = algorithm.bind(state, PENDULUM, hp), td3.make_agent(state, PENDULUM, hp)
    split = len(split.actor.parameters)
    before = state["member"].parameters.copy()
    bound.advance(1)
    assert np.array_equal(before[:split], state["member"].parameters[:split])
    assert np.array_equal(before, state["target"].parameters)
    assert not np.array_equal(before[split:], state["member"].parameters[split:])
    bound.advance(1)  # the fourth update is among these
    assert not np.array_equal(before[:split], state["member"].parameters[:split])
    assert not np.array_equal(before, state["target"].parameters)
    assert (state["member"].counts[UPDATES], state["target"].updates[0]) == (6, 1)


def test_ddpg_is_td3_with_one_critic_and_no_delay_or_smoothing():
    config = {**OFF_POLICY, "noise_std": 0.2}
    special = {"policy_delay": 1, "target_noise_clip": 0.0, "n_critics": 1}
    special |= {"target_policy_noise": 0.0}
    assert same(
        advanced("ddpg", 8, (5,), PENDULUM, **config),
        advanced("td3", 8, (5,), PENDULUM, **config, **special),
    )
    assert not {"policy_delay", "n_critics"} & set(ddpg.ALGORITHM.settings)


@pytest.mark.parametrize("use_rms_prop", [True, False])
def test_a2c_is_ppo_with_one_update_per_rollout(use_rms_prop):
    config = {"n_envs": 3, "n_steps": 6, "net_width": 9, "learning_rate": 1e-2, "ent_coef": 0.01}
    special = {"n_epochs": 1, "batch_size": 18, "clip_range": math.inf, "gae_lambda": 1.0}
    special |= {"normalize_advantage": False}
    special |= {"optimizer": "rmsprop", "optimizer_eps": 3e-6} if use_rms_prop else {}
    mine = {"use_rms_prop": use_rms_prop, "rms_prop_eps": 3e-6}
    assert same(
        advanced("a2c", 8, (5,), CARTPOLE, **config, **mine),
        advanced("ppo", 8, (5,), CARTPOLE, **config, **special),
    )
    # Names and defaults of Stable-Baselines3's constructor.
    assert a2c.ALGORITHM.settings["gae_lambda"].default == 1.0


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
