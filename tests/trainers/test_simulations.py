"""Tasks of MuJoCo go on from a checkpoint to the bit: their simulations are saved as data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the extra mujoco")
pytest.importorskip("imageio", reason="needs the extra mujoco")

import gymnasium as gym
import mujoco

from autorl.trainers import load
from autorl.trainers.gymnasium_tasks import make_task
from autorl.trainers.sb3 import mujoco_warnings
from autorl.trainers.sb3.environment_state import capture, restore
from autorl.trainers.sb3.environments import Freezable
from autorl.types import Config, EnvironmentSpec, Outcome, Segment, TrainerSpec, freeze

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
def test_a_task_goes_on_from_its_data_to_the_bit(name: str) -> None:
    env = _stepped(name)
    captured = capture(env, partial(gym.make, name))
    assert captured is not None
    document, arrays = captured
    copies = {key: array.copy() for key, array in arrays.items()}
    restored = gym.make(name)
    restore(restored, json.loads(json.dumps(document)), copies)
    assert restored.get_wrapper_attr("_elapsed_steps") == env.get_wrapper_attr("_elapsed_steps")
    _assert_go_on_alike(env, restored)
    assert np.array_equal(env.reset(seed=3)[0], restored.reset(seed=3)[0])
    _assert_go_on_alike(env, restored, 5)


def test_saving_leaves_the_task_as_it_was() -> None:
    one, other = _stepped("Ant-v5"), _stepped("Ant-v5")
    assert capture(one, partial(gym.make, "Ant-v5")) is not None
    _assert_go_on_alike(one, other)


def test_freezable_saves_no_pickle_of_it() -> None:
    make = partial(gym.make, "Hopper-v5")
    frozen = Freezable(_stepped("Hopper-v5"), make).freeze()
    assert frozen is not None
    assert not frozen.pickled
    thawed = Freezable(make(), make)
    assert thawed.thaw(frozen)
    _assert_go_on_alike(_stepped("Hopper-v5"), thawed)
    assert not Freezable(gym.make("Walker2d-v5"), make).thaw(frozen)


@pytest.mark.parametrize("change", ["model", "view"])
def test_what_the_data_would_not_have_is_not_saved(change: str) -> None:
    env = _stepped("Hopper-v5")
    make = partial(gym.make, "Hopper-v5")
    task = env.unwrapped
    if change == "model":
        task.model.body_mass[1] *= 2.0
    else:
        task.position = task.data.qpos[1:]
    assert capture(env, make) is None
    assert Freezable(env, make).freeze() is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("version", "saved by MuJoCo 2.0"),
        ("size", "of another model"),
        ("missing", "simulation"),
    ],
)
def test_another_state_is_refused_before_anything_is_changed(change: str, message: str) -> None:
    captured = capture(_stepped("Hopper-v5"), partial(gym.make, "Hopper-v5"))
    assert captured is not None
    document, arrays = captured
    (name,) = (key for key in arrays if key.startswith("simulation"))
    if change == "version":
        document = {**document, "mujoco": "2.0"}
    elif change == "size":
        arrays = {**arrays, name: arrays[name][:-1]}
    else:
        arrays = {key: array for key, array in arrays.items() if key != name}
    untouched, changed = _stepped("Hopper-v5"), _stepped("Hopper-v5")
    with pytest.raises((ValueError, KeyError), match=message):
        restore(changed, document, arrays)
    _assert_go_on_alike(untouched, changed, 20)


def test_a_cut_run_of_stable_baselines3_is_the_uncut_one(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    few = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": (4,)}}
    segment = Segment(
        id="a",
        trainer=TrainerSpec("sb3/ppo", freeze(few)),
        environment=EnvironmentSpec("Ant-v5", n_envs=2, normalize=True),
        config=Config(learning_rate=1e-2),
        seed=3,
        role="tuning",
        until=64,
        horizon=64,
        evaluate_at=(64,),
        episodes=1,
        save=True,
        folder=str(tmp_path / "whole"),
    )

    def trained(**changes: Any) -> Outcome:
        part = replace(segment, **changes)
        outcome: Outcome = load(part.trainer).train(part, lambda report: None)
        return outcome

    whole = trained()
    first = trained(until=32, evaluate_at=(), folder=str(tmp_path / "first"))
    second = trained(start=32, parent=first.checkpoint, folder=str(tmp_path / "second"))
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
