"""A member's result is the same to the last bit alone or in company, on any thread, however its run is cut."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from population_helpers import CARTPOLE, DQN, PENDULUM, SMALL, advanced, make, same

from autorl.core.types import FrozenMap
from autorl.population import engine
from autorl.population.environments import find_environment

_REPLAY = {**DQN, "buffer_size": 90, "train_freq": 9}
_DQN = {**_REPLAY, "target_update_interval": 10, "tau": 0.5}
_OPTIONS = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}
# Noise begins anew on the way, and episodes are truncated.
SHORT = replace(PENDULUM, time_limit=25)
NORMALISED = replace(SHORT, normalize=FrozenMap())
_NOISE = {"gradient_steps": 3, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.5}
_VARIANT = {"gravity": 5.0, "max_episode_steps": 30, "observation_noise": 0.3}
_VARIANT |= {"random_action_probability": 0.25, "reward_scale": 2.0}
MEMBERS = {
    "ppo": ("ppo", CARTPOLE, {**SMALL, "learning_rate": 3e-3}),
    "dqn": ("dqn", CARTPOLE, {**_DQN, "double": True, "prioritized": True}),
    **{
        f"dqn-{name}": ("dqn", CARTPOLE, {**_DQN, "learning_rate": 3e-3, name: value})
        for name, value in _OPTIONS.items()
    },
    "dqn-all": ("dqn", CARTPOLE, {**_DQN, "learning_rate": 3e-3, **_OPTIONS}),
    "sac": ("sac", PENDULUM, {**_REPLAY, "gradient_steps": 2}),
    "td3": ("td3", SHORT, {**_REPLAY, **_NOISE}),
    # In the program of TD3: here normalised, with sums of rewards.
    "ddpg": ("ddpg", NORMALISED, {**_REPLAY, "noise_std": 0.1, "n_steps": 3}),
    "ppo-variant": ("ppo", find_environment("CartPole-v1", _VARIANT), SMALL),
    # In the program of PPO: here normalised.
    "a2c": ("a2c", NORMALISED, {"n_envs": 3, "n_steps": 12, "net_width": 9}),
}


@pytest.mark.parametrize("case", sorted(MEMBERS))
def test_companions_and_threads_do_not_matter(case):
    name, environment, config = MEMBERS[case]
    alone = [advanced(name, key, (5,), environment, **config) for key in range(4)]
    states: list = [None] * 8

    def work(first):
        for key in range(first, 8, 3):
            states[key] = advanced(name, key, (2, 3), environment, **config)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(alone[key], states[key]) for key in range(4))


@pytest.mark.parametrize("case", sorted(MEMBERS))
def test_a_run_goes_on_from_its_archive(case, tmp_path):
    name, environment, config = MEMBERS[case]
    state = advanced(name, 6, (2,), environment, **config)
    np.savez(tmp_path / "state.npz", **engine.to_arrays(state))
    algorithm, hp, _ = make(name, 6, environment, **config)
    with np.load(tmp_path / "state.npz") as archive:
        restored = engine.from_arrays(algorithm, dict(archive))
    assert same(restored, state)
    algorithm.bind(restored, environment, hp).advance(3)
    assert same(restored, advanced(name, 6, (5,), environment, **config))
