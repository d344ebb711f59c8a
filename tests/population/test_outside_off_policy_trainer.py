"""DQN, SAC, TD3 and DDPG on environments outside, by the compiled programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import outside_tasks  # noqa: F401 - registers the environments
import pytest
from population_helpers import make

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, TrainerSpec
from autorl.population import kernels
from autorl.population.vector_worlds import worlds_of
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers.outside_environments import outside_environment

_SMALL = {
    "learning_starts": 32,
    "batch_size": 16,
    "buffer_size": 500,
    "net_width": 16,
    "train_freq": 4,
}
_NOISE = {**_SMALL, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.3}
CARTPOLE = EnvironmentSpec("outside_tasks:Outside/CartPole-v1", n_envs=2)
PENDULUM = EnvironmentSpec("outside_tasks:Outside/Pendulum-v1", n_envs=2)
NORMALISED = replace(PENDULUM, normalize=True)
_PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_width": 16, "learning_rate": 1e-2}
_PPO |= {"clip_range_vf": 0.2, "ent_coef": 0.01}
_CONFIGS = (Config(learning_rate=1e-2, gamma=0.99), Config(learning_rate=1e-3, gamma=0.9))
# Greedy episodes of agents so young may all be alike, those in training are not then.
_EXPLORING = (
    Config(learning_rate=1e-2, exploration_final_eps=0.05),
    Config(learning_rate=1e-3, exploration_final_eps=0.9),
)


class TestDQNOutside(TrainerConformance):
    case = Case(
        TrainerSpec("population/dqn", FrozenMap({**_SMALL, "n_steps": 3, "prioritized": True})),
        CARTPOLE,
        configs=_EXPLORING,
        fixed=("buffer_size", 400),
    )


class TestSACOutside(TrainerConformance):
    case = Case(
        TrainerSpec("population/sac", FrozenMap(_SMALL)),
        PENDULUM,
        configs=_CONFIGS,
        fixed=("net_width", 8),
    )


class TestTD3Outside(TrainerConformance):
    case = Case(
        TrainerSpec("population/td3", FrozenMap(_NOISE)),
        PENDULUM,
        configs=_CONFIGS,
        fixed=("net_width", 8),
    )


class TestDDPGOutside(TrainerConformance):
    case = Case(
        TrainerSpec("population/ddpg", FrozenMap({**_NOISE, "n_steps": 3})),
        NORMALISED,
        configs=_CONFIGS,
        fixed=("net_width", 8),
    )


@pytest.mark.parametrize(
    ("name", "spec", "config"),
    [
        ("ppo", CARTPOLE, _PPO),
        ("ppo", PENDULUM, _PPO),
        ("dqn", CARTPOLE, {"n_steps": 3, "prioritized": True, "exploration_fraction": 0.03}),
        ("sac", PENDULUM, {"reward_scale": 0.5}),
        ("td3", PENDULUM, {"noise_std": 0.3}),
        ("dqn", replace(CARTPOLE, normalize=True), {"n_steps": 3, "exploration_fraction": 0.03}),
        ("sac", NORMALISED, {"n_steps": 3}),
    ],
)
def test_the_programs_do_what_the_page_says_in_plain_python(name, spec, config, monkeypatch):
    """A few rounds of steps and updates: the rest of a run is Python in both cases."""
    environment = outside_environment(spec)
    if spec.normalize:
        environment = replace(environment, normalize=FrozenMap())
    config = {"n_envs": 3, "learning_rate": 1e-3, **config}
    rounds, steps, updates = 1, 32 * 3, 6
    if name != "ppo":
        config = {**_SMALL, "learning_starts": 20, **config}
        rounds, steps, updates = 4, 4 * 4 * 3, 3
    states = []
    for programs in ("compiled", "plain"):
        if programs == "plain":
            monkeypatch.setattr(
                kernels.Program, "prepared", lambda program, *arguments: program.py_func
            )
        algorithm, hp, state = make(name, 5, environment, np.float32, **config)
        with np.errstate(over="ignore"), worlds_of(environment, state) as worlds:
            algorithm.bind_outside(state, environment, hp, worlds).advance(rounds)
        states.append(state)
    compiled, plain = (state["member"] for state in states)
    assert np.array_equal(compiled.counts, plain.counts)
    assert compiled.counts.tolist()[:2] == [steps, updates]
    assert np.array_equal(compiled.counters, plain.counters)
    np.testing.assert_allclose(compiled.parameters, plain.parameters, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(compiled.states, plain.states, rtol=1e-3, atol=1e-3)
    if name != "ppo":
        rows = [state["replay"].rows[:48] for state in states]
        np.testing.assert_allclose(rows[0], rows[1], rtol=1e-3, atol=1e-3)
