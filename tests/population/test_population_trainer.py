from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from segments import segment, train

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Status,
    TrainerSpec,
)
from autorl.population.hyperparameters import SHAPES, scheduled
from autorl.space import load_space, schedule_function
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers import load
from autorl.trainers.saved_state import STATE, read

_PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_width": 16}


_FALLING = {"learning_rate.shape": "linear", "learning_rate.end": 1e-3}


class TestPPO(TrainerConformance):
    case = Case(
        TrainerSpec("population/ppo", FrozenMap(_PPO)),
        EnvironmentSpec("CartPole-v1", n_envs=2),
        configs=(
            Config({"learning_rate": 1e-2, "gamma": 0.99, **_FALLING}),
            Config({"learning_rate": 1e-3, "gamma": 0.9, **_FALLING}),
        ),
        fixed=("net_width", 8),
    )


_OFF_POLICY = {
    "learning_starts": 32,
    "batch_size": 16,
    "buffer_size": 500,
    "net_width": 16,
    "train_freq": 4,
}


class TestPPONormalised(TrainerConformance):
    case = Case(
        TrainerSpec("population/ppo", FrozenMap(_PPO)),
        EnvironmentSpec("Pendulum-v1", n_envs=2, normalize=True),
        configs=(Config(learning_rate=1e-2, gamma=0.99), Config(learning_rate=1e-3, gamma=0.9)),
        fixed=("net_width", 8),
    )


class TestDQN(TrainerConformance):
    case = Case(
        TrainerSpec("population/dqn", FrozenMap({**_OFF_POLICY, "prioritized": True})),
        EnvironmentSpec("CartPole-v1", n_envs=2),
        configs=(
            Config(learning_rate=1e-2, exploration_fraction=0.8, target_update_interval=50),
            Config(learning_rate=1e-2, exploration_fraction=0.3, target_update_interval=10),
        ),
        fixed=("buffer_size", 400),
    )


class TestSAC(TrainerConformance):
    case = Case(
        TrainerSpec("population/sac", FrozenMap(_OFF_POLICY)),
        EnvironmentSpec("Pendulum-v1"),
        configs=(Config(learning_rate=1e-2, tau=0.01), Config(learning_rate=1e-2, tau=0.1)),
        fixed=("net_width", 8),
    )


class TestTD3(TrainerConformance):
    case = Case(
        TrainerSpec(
            "population/td3", FrozenMap({**_OFF_POLICY, "noise_type": "ornstein-uhlenbeck"})
        ),
        EnvironmentSpec("Pendulum-v1"),
        configs=(
            Config(learning_rate=1e-2, policy_delay=2, noise_std=0.1),
            Config(learning_rate=1e-2, policy_delay=3, noise_std=0.5),
        ),
        fixed=("net_width", 8),
    )


class TestDDPG(TrainerConformance):
    case = Case(
        TrainerSpec("population/ddpg", FrozenMap({**_OFF_POLICY, "noise_std": 0.1})),
        EnvironmentSpec("Pendulum-v1", n_envs=2),
        configs=(Config(learning_rate=1e-2, tau=0.01), Config(learning_rate=1e-2, tau=0.1)),
        fixed=("buffer_size", 400),
    )


class TestA2C(TrainerConformance):
    case = Case(
        TrainerSpec("population/a2c", FrozenMap({"n_steps": 8, "net_width": 16})),
        EnvironmentSpec("Pendulum-v1", n_envs=2),
        configs=(
            Config(learning_rate=1e-2, rms_prop_eps=1e-5),
            Config(learning_rate=1e-3, rms_prop_eps=1e-4),
        ),
        fixed=("use_rms_prop", False),
    )


def _segment(tmp_path, **changes):
    environment, config = "CartPole-v1", {"learning_rate": 1e-3}
    of_run = {"horizon": 512, "evaluate_at": (100, 256), "episodes": 40}
    first = segment("population/ppo", environment, config, 256, tmp_path / "a", _PPO, **of_run)
    return replace(first, **changes)


def test_evaluations_are_those_of_the_seeds_and_leave_training_alone(tmp_path):
    often = train(_segment(tmp_path))
    assert [report.step for report in often.reports] == [100, 256]
    assert often.reached == 256
    assert 1 <= often.reports[0].metrics["eval_return"] <= 500
    once = train(_segment(tmp_path, evaluate_at=(256,)))
    assert once.reports[0] == often.reports[1]
    fewer = train(_segment(tmp_path, evaluate_at=(256,), episodes=3))
    assert fewer.reports[0].metrics["eval_return"] != once.reports[0].metrics["eval_return"]
    assert (
        len(set(evaluation_seeds(1, "tuning", 256, 40)) & set(evaluation_seeds(1, "test", 256, 40)))
        == 0
    )


def test_the_archive_is_plain_arrays(tmp_path):
    train(_segment(tmp_path))
    arrays = read(tmp_path / "a" / STATE)["arrays"]
    assert arrays["member.counts"][0] == 256
    assert arrays["member.parameters"].dtype == np.float32


def test_divergence_is_a_status(tmp_path):
    outcome = train(_segment(tmp_path, config=Config(learning_rate=1e30, max_grad_norm=1e30)))
    assert outcome.status is Status.DIVERGED
    assert outcome.checkpoint is None
    assert outcome.reports == ()
    assert "not finite" in outcome.message


def test_another_number_of_environments_starts_new_episodes(tmp_path):
    outcome = train(_segment(tmp_path))
    parent = Checkpoint("a", outcome.checkpoint.path)
    after = _segment(
        tmp_path, id="b", parent=parent, start=256, until=512, evaluate_at=(), save=False
    )
    more = train(replace(after, config=Config(learning_rate=1e-3, n_envs=4)))
    assert more.reached == 512
    assert "new episodes" in more.notes[0]
    assert train(after).notes == ()


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
