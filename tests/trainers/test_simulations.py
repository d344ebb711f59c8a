"""Tasks of MuJoCo go on from a checkpoint to the bit, though they pickle no simulation themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the extra mujoco")
pytest.importorskip("imageio", reason="needs the extra mujoco")

import gymnasium as gym
import mujoco
from segments import segment, train

from autorl.core.types import EnvironmentSpec, Outcome
from autorl.trainers.environment_state import (
    NotRestoredError,
    pickle_environment,
    unpickle_environment,
)
from autorl.trainers.gymnasium_tasks import make_task
from autorl.trainers.sb3 import suites as mujoco_warnings

TASKS = [
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5"),
    *("InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5"),
    *("Swimmer-v5", "Walker2d-v5"),
]
pytestmark = pytest.mark.filterwarnings("ignore:.*out of date")


@contextmanager
def no_handler() -> Iterator[None]:
    """Nobody has set a handler of MuJoCo's warnings in a block."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _stepped(name: str, steps: int = 40) -> gym.Env[object, object]:
    """A task in the middle of an episode."""
    env = gym.make(name)
    env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    return env


def _assert_go_on_alike(
    first: gym.Env[object, object], second: gym.Env[object, object], steps: int = 60
) -> None:
    generator = np.random.default_rng(0)
    space = first.action_space
    for _ in range(steps):
        action = generator.uniform(space.low, space.high).astype(space.dtype)
        results = [env.step(action) for env in (first, second)]
        assert np.array_equal(results[0][0], results[1][0])
        assert results[0][1:4] == results[1][1:4]
        if results[0][2] or results[0][3]:
            # The next episode is the same too: the generators have been saved.
            assert np.array_equal(first.reset()[0], second.reset()[0])


@pytest.mark.parametrize("name", TASKS)
def test_a_task_goes_on_to_the_bit(name: str) -> None:
    env = _stepped(name)
    state = pickle_environment(env)
    assert len(state) < 100_000
    restored = unpickle_environment(state, gym.make(name), trust=False)
    assert restored.get_wrapper_attr("_elapsed_steps") == env.get_wrapper_attr("_elapsed_steps")
    _assert_go_on_alike(env, restored)
    assert np.array_equal(env.reset(seed=3)[0], restored.reset(seed=3)[0])
    _assert_go_on_alike(env, restored, 5)
    # Once more, from the copy.
    _assert_go_on_alike(
        restored, unpickle_environment(pickle_environment(restored), gym.make(name), trust=False), 5
    )


def test_saving_leaves_the_task_as_it_was() -> None:
    one, other = _stepped("Ant-v5"), _stepped("Ant-v5")
    assert pickle_environment(one)
    _assert_go_on_alike(one, other)


def test_a_model_that_the_task_has_changed_goes_on_too() -> None:
    env = _stepped("Hopper-v5")
    env.unwrapped.model.body_mass[1] *= 2.0
    _assert_go_on_alike(
        env, unpickle_environment(pickle_environment(env), gym.make("Hopper-v5"), trust=False)
    )


def test_a_task_that_keeps_a_part_of_the_simulation_is_not_saved() -> None:
    env = _stepped("Hopper-v5")
    env.unwrapped.position = env.unwrapped.data.qpos[1:]
    assert pickle_environment(env) == b""


def test_another_task_does_not_go_on() -> None:
    with pytest.raises(NotRestoredError, match="of another environment"):
        unpickle_environment(
            pickle_environment(_stepped("Hopper-v5")), gym.make("Walker2d-v5"), trust=False
        )


def test_a_cut_run_of_stable_baselines3_is_the_uncut_one(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    few = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": (4,)}}
    environment = EnvironmentSpec("Ant-v5", n_envs=2, normalize=True)

    def trained(name: str, until: int = 64, **changes: Any) -> Outcome:
        config, of_run = {"learning_rate": 1e-2}, {"seed": 3, "episodes": 1, "horizon": 64}
        place = tmp_path / name
        return train(segment("sb3/ppo", environment, config, until, place, few, **of_run | changes))

    whole = trained("whole")
    first = trained("first", 32, evaluate_at=())
    second = trained("second", after=first)
    assert not second.notes
    assert second.reports[0].metrics == whole.reports[0].metrics


def test_warnings_are_said_once_and_in_no_file(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mujoco_warnings, "_said", set())
    with no_handler():
        for _ in range(2):
            env = make_task(EnvironmentSpec("HalfCheetah-v5")).unwrapped
            env.reset(seed=0)
            env.data.qvel[:] = 1e30
            mujoco.mj_step(env.model, env.data)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == len(set(said))
    assert sum("The simulation is unstable" in line for line in said) == 1
    assert all(line.startswith("MuJoCo: ") for line in said)
    assert not list(tmp_path.iterdir())


def test_a_handler_of_warnings_that_somebody_has_set_stays():
    found = []
    with no_handler():
        mujoco.set_mju_user_warning(found.append)
        env = make_task(EnvironmentSpec("HalfCheetah-v5")).unwrapped
        env.reset(seed=0)
        env.data.qvel[:] = 1e30
        mujoco.mj_step(env.model, env.data)
    assert any("The simulation is unstable" in warning for warning in found)


def test_more_warnings_than_a_hundred_are_not_said(monkeypatch, capsys):
    monkeypatch.setattr(mujoco_warnings, "_said", set())
    for number in range(150):
        mujoco_warnings._say(str(number))
    assert capsys.readouterr().err.splitlines()[-1] == "MuJoCo: 99"
