from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import outside_tasks  # noqa: F401 - registers the environments
import pytest
from segments import segment, train

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.executors.worker import ONE_THREAD
from autorl.population.hyperparameters import SHAPES, scheduled
from autorl.space import load_space, schedule_function
from autorl.testing.trainers import Case, Runner, TrainerConformance
from autorl.trainers import load

_PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_width": 16}
_A2C = {"n_steps": 8, "net_width": 16}
_REPLAY = {"learning_starts": 32, "batch_size": 16, "buffer_size": 500, "net_width": 16}
_REPLAY |= {"train_freq": 4}
_RAINBOW = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}
_DQN = {"learning_starts": 20, "batch_size": 10, "net_width": 9, "buffer_size": 500}
_DQN |= {"train_freq": 4, "learning_rate": 1e-2, **_RAINBOW}
_OU = {**_REPLAY, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.3}
_RATES = ({"learning_rate": 1e-2, "gamma": 0.99}, {"learning_rate": 1e-3, "gamma": 0.9})
_FALLING = {"learning_rate.shape": "linear", "learning_rate.end": 1e-3}
_RMS = (
    {"learning_rate": 1e-2, "rms_prop_eps": 1e-5},
    {"learning_rate": 1e-3, "rms_prop_eps": 1e-4},
)
_TAU = ({"learning_rate": 1e-2, "tau": 0.01}, {"learning_rate": 1e-2, "tau": 0.1})
_EXPLORING = (
    {"learning_rate": 1e-2, "exploration_fraction": 0.8, "target_update_interval": 50},
    {"learning_rate": 1e-2, "exploration_fraction": 0.3, "target_update_interval": 10},
)
_ANNEALED = {"priority_beta.shape": "linear", "priority_beta.end": 1.0, "priority_beta": 0.4}
_DELAYED = (
    {"learning_rate": 1e-2, "policy_delay": 2, "noise_std": 0.1},
    {"learning_rate": 1e-2, "policy_delay": 3, "noise_std": 0.5},
)
CARTPOLE = EnvironmentSpec("CartPole-v1", n_envs=2)
PENDULUM = EnvironmentSpec("Pendulum-v1")
OUTSIDE = EnvironmentSpec("outside_tasks:Outside/CartPole-v1", n_envs=2)
OUTSIDE_PENDULUM = replace(OUTSIDE, id="outside_tasks:Outside/Pendulum-v1")
NORMALISED = replace(PENDULUM, n_envs=2, normalize=True)
# name: (algorithm, options, environment, two configurations, a fixed hyperparameter)
CASES = {
    "ppo": ("ppo", _PPO, CARTPOLE, [one | _FALLING for one in _RATES], ("net_width", 8)),
    "ppo-normalised": ("ppo", _PPO, NORMALISED, _RATES, ("net_width", 8)),
    "ppo-outside": ("ppo", _PPO, OUTSIDE, _RATES, ("net_width", 8)),
    "a2c": ("a2c", _A2C, replace(PENDULUM, n_envs=2), _RMS, ("use_rms_prop", False)),
    "dqn": ("dqn", {**_REPLAY, "prioritized": True}, CARTPOLE, _EXPLORING, ("buffer_size", 400)),
    "dqn-with-all-options": (
        "dqn",
        _DQN,
        CARTPOLE,
        (
            {"exploration_fraction": 0.8, "double": True, **_ANNEALED},
            {"exploration_fraction": 0.3, "double": False, **_ANNEALED},
        ),
        ("n_steps", 5),
    ),
    "dqn-outside": (
        "dqn",
        {**_REPLAY, "n_steps": 3, "prioritized": True},
        OUTSIDE,
        # Greedy episodes of agents so young may all be alike, those in training are not then.
        (
            {"learning_rate": 1e-2, "exploration_final_eps": 0.05},
            {"learning_rate": 1e-3, "exploration_final_eps": 0.9},
        ),
        ("buffer_size", 400),
    ),
    "sac": ("sac", _REPLAY, PENDULUM, _TAU, ("net_width", 8)),
    "sac-outside": ("sac", _REPLAY, OUTSIDE_PENDULUM, _RATES, ("net_width", 8)),
    "td3": ("td3", _OU, PENDULUM, _DELAYED, ("net_width", 8)),
    "ddpg": (
        "ddpg",
        {**_REPLAY, "noise_std": 0.1},
        replace(PENDULUM, n_envs=2),
        _TAU,
        ("buffer_size", 400),
    ),
    "ddpg-outside": (
        "ddpg",
        {**_OU, "n_steps": 3},
        replace(OUTSIDE_PENDULUM, normalize=True),
        _RATES,
        ("net_width", 8),
    ),
}


class TestTrainers(TrainerConformance):
    @pytest.fixture(scope="class", params=CASES)
    @classmethod
    def runner(cls, request, tmp_path_factory):
        name, options, environment, configs, fixed = CASES[request.param]
        spec = TrainerSpec(f"population/{name}", FrozenMap(options))
        cls.case = Case(spec, environment, configs=tuple(map(Config, configs)), fixed=fixed)
        return Runner(cls.case, tmp_path_factory.mktemp("conformance"))


def _segment(tmp_path, **changes):
    environment, config = "CartPole-v1", {"learning_rate": 1e-3}
    of_run = {"horizon": 512, "evaluate_at": (100, 256), "episodes": 40}
    first = segment("population/ppo", environment, config, 256, tmp_path / "a", _PPO, **of_run)
    return replace(first, **changes)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_schedules_are_those_of_the_space(shape):
    config = {"x": 0.3, "x.shape": shape, "x.end": 0.01}
    expected = schedule_function(config, "x")
    for progress in (-0.1, 0.0, 0.123, 0.5, 0.99, 1.0, 1.3):
        assert scheduled(0.3, 0.01, SHAPES[shape], progress) == pytest.approx(
            expected(progress), rel=1e-15
        )


SPACES = {
    "population/ppo": ("population/ppo", "CartPole-v1"),
    "population/ppo-small": ("population/ppo", "CartPole-v1"),
    "population/dqn": ("population/dqn", "MountainCar-v0"),
    "population/dqn-rainbow": ("population/dqn", "MountainCar-v0"),
    "population/sac": ("population/sac", "Pendulum-v1"),
    "population/td3": ("population/td3", "Pendulum-v1"),
    "population/ddpg": ("population/ddpg", "MountainCarContinuous-v0"),
    "population/a2c": ("population/a2c", "CartPole-v1"),
}


@pytest.mark.parametrize("name", sorted(SPACES))
def test_shipped_spaces_hold_hyperparameters_the_trainer_takes(name, tmp_path):
    space, (trainer_name, environment) = load_space(name), SPACES[name]
    spec = TrainerSpec(
        trainer_name,
        FrozenMap(learning_starts=0)
        if name in ("population/sac", "population/td3", "population/ddpg")
        else FrozenMap(),
    )
    trainer = load(spec)
    trainer.check(EnvironmentSpec(environment), space.names)
    assert set(space.changeable) <= {
        part for base in trainer.changes for part in (base, f"{base}.end", f"{base}.shape")
    }
    rng = np.random.default_rng(0)
    for config in (space.default(), *(space.sample(rng) for _ in range(4))):
        until = trainer.algorithm.stride(trainer._record(config, EnvironmentSpec(environment), 1))
        assert [trainer.align(config, step) for step in (0, until - 1, until, 2 * until)] == [
            0,
            0,
            until,
            2 * until,
        ]
        segment = _segment(
            tmp_path,
            trainer=spec,
            environment=EnvironmentSpec(environment),
            config=config,
            until=until,
        )
        outcome = train(replace(segment, horizon=until, evaluate_at=(), save=False))
        assert outcome.reached == until
        assert {
            key: value for key, value in outcome.applied.items() if ".shape" not in key
        }.keys() >= {key for key in config if not key.endswith((".shape", ".end"))}


@pytest.mark.parametrize(
    ("environment", "config", "message"),
    [
        (EnvironmentSpec("CartPole-v2"), Config(), "did you mean 'CartPole-v1'"),
        (EnvironmentSpec("CartPole-v1", vec_env="subproc"), Config(), "use sb3/ppo"),
        (EnvironmentSpec("CartPole-v1", kwargs=FrozenMap(g=1)), Config(), "unknown parameter"),
        (EnvironmentSpec("CartPole-v1"), Config(learning_rat=1e-3), "did you mean 'learning_rate'"),
        (EnvironmentSpec("CartPole-v1"), Config(gamma=1.5), r"\[0.0, 1.0\]"),
        (EnvironmentSpec("CartPole-v1"), Config(n_steps=2.5), "whole"),
        (EnvironmentSpec("CartPole-v1"), Config(activation="swish"), "tanh, relu"),
        (
            EnvironmentSpec("CartPole-v1"),
            Config({"learning_rate": 1.0, "learning_rate.shape": "linear"}),
            "final value",
        ),
        (
            EnvironmentSpec("CartPole-v1"),
            Config({"gamma": 0.9, "gamma.shape": "linear"}),
            "unknown",
        ),
    ],
)
def test_wrong_input_is_named(tmp_path, environment, config, message):
    with pytest.raises(InputError, match=message):
        train(_segment(tmp_path, environment=environment, config=config))


def test_what_is_preloaded_starts_no_thread_and_spares_numba_scipy():
    """A fork server imports it: a process of several threads cannot be forked safely."""
    code = """
import importlib, os, sys
from autorl.trainers import load
from autorl.core.types import TrainerSpec

for module in load(TrainerSpec("population/ppo")).preload:
    importlib.import_module(module)
threads = len(os.listdir("/proc/self/task"))
before = set(sys.modules)
from numba import njit
njit(lambda x: x + 1.0)(1.0)
print(threads, sum(name.startswith("scipy") for name in set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **ONE_THREAD},
    )
    assert done.stdout.strip() == "1 0"
