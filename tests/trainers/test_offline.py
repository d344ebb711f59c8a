"""Behaviour cloning and implicit Q-learning on data sets of Minari."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
pytest.importorskip("minari", reason="needs the extra offline")

import minari
import torch
from minari.data_collector import EpisodeBuffer
from segments import refusal, run_well, segment
from stable_baselines3 import DQN, SAC

import autorl
from autorl.core.types import Config, EnvironmentSpec, InputError, Outcome, TrainerSpec, freeze
from autorl.study.results.models import with_start
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers import load
from autorl.trainers.offline.learner import (
    Learner,
    Transitions,
    flat,
    from_unit,
    read_transitions,
    to_unit,
)
from autorl.trainers.offline.trainer import METHODS

torch.set_num_threads(1)  # as the executors do
# Either is read; the extra brings the first.
INSTALLED = [
    kind
    for kind, module in (("hdf5", "h5py"), ("arrow", "pyarrow"))
    if importlib.util.find_spec(module)
]
FORMAT = INSTALLED[0] if INSTALLED else None
if FORMAT is None:
    pytest.skip("needs h5py or pyarrow, which the extra offline brings", allow_module_level=True)
CARTPOLE = "cartpole/leaning-v0"
PENDULUM = "pendulum/random-v0"
SMALL = {"net_arch": [16], "batch_size": 32}


def leaning(observation: Any, rng: np.random.Generator) -> int:
    """Push the cart to where the pole falls, but for every fifth time."""
    right = observation[2] + 0.5 * observation[3] > 0
    return int(right if rng.random() > 0.2 else not right)


def record(name: str, environment: str, episodes: int, policy: Any) -> None:
    env = gym.make(environment)
    rng = np.random.default_rng(0)
    buffers = []
    for seed in range(episodes):
        buffer = EpisodeBuffer(id=seed, seed=seed, observations=[], actions=[])
        observation, _ = env.reset(seed=seed)
        buffer.observations.append(observation)
        while not (buffer.terminations and (buffer.terminations[-1] or buffer.truncations[-1])):
            buffer.actions.append(policy(observation, rng))
            observation, reward, terminated, truncated, _ = env.step(buffer.actions[-1])
            buffer.observations.append(observation)
            buffer.rewards.append(float(reward))
            buffer.terminations.append(bool(terminated))
            buffer.truncations.append(bool(truncated))
        buffers.append(buffer)
    minari.create_dataset_from_buffers(
        name, buffers, env=env, algorithm_name="rule", author="test", data_format=FORMAT
    )
    env.close()


@pytest.fixture(scope="module", autouse=True)
def data_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Record two data sets where Minari of this process and its children looks for them."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(tmp_path_factory.mktemp("minari"))
    read_transitions.cache_clear()
    record(CARTPOLE, "CartPole-v1", 30, leaning)
    record(PENDULUM, "Pendulum-v1", 5, lambda _, rng: rng.uniform(-2, 2, 1).astype(np.float32))
    yield
    read_transitions.cache_clear()
    os.environ.pop("MINARI_DATASETS_PATH")
    if before is not None:
        os.environ["MINARI_DATASETS_PATH"] = before


class TestCloning(TrainerConformance):
    case = Case(
        TrainerSpec("offline/bc", freeze({"dataset": PENDULUM, **SMALL})),
        EnvironmentSpec("Pendulum-v1"),
        configs=(Config(learning_rate=1e-2), Config(learning_rate=1e-3)),
        horizon=64,
        episodes=1,
        fixed=("net_arch", (8,)),
    )


class TestImplicit(TrainerConformance):
    case = Case(
        TrainerSpec("offline/iql", freeze({"dataset": PENDULUM, **SMALL})),
        EnvironmentSpec("Pendulum-v1"),
        configs=(
            Config(learning_rate=1e-2, expectile=0.7, temperature=3.0),
            Config(learning_rate=1e-3, expectile=0.9, temperature=1.0),
        ),
        horizon=64,
        episodes=1,
        fixed=("standardize", False),
    )


def trained(method: str = "bc", steps: int = 100, **config: Any) -> Outcome:
    options = {"dataset": CARTPOLE}
    one = segment(f"offline/{method}", "CartPole-v1", config, steps, None, options, episodes=8)
    return run_well(one)


def test_a_clone_does_what_most_of_the_data_does() -> None:
    metrics = trained(steps=400, learning_rate=3e-3, net_arch=(32,)).reports[0].metrics
    lengths = [len(episode) for episode in minari.load_dataset(CARTPOLE).iterate_episodes()]
    assert metrics["eval_return"] > 1.2 * np.mean(lengths), "the mode leaves out the slips"


def test_at_temperature_zero_implicit_learning_is_cloning() -> None:
    implicit = trained("iql", 60, temperature=0.0).reports[0].metrics
    assert implicit == trained("bc", 60).reports[0].metrics


def test_implicit_learning_prefers_the_better_of_what_was_done() -> None:
    """Two actions, done equally often: one is worth 1 at the end of two steps, the other 0."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 2000)
    first = np.tile(np.array([[1.0, 0.0]], np.float32), (1000, 1))
    second = np.stack([np.zeros(1000), actions[:1000]], axis=1).astype(np.float32)
    nothing = np.zeros((1000, 2), np.float32)
    data = Transitions(
        observations=np.concatenate([first, second]),
        actions=actions,
        rewards=np.concatenate([np.zeros(1000), actions[:1000]]).astype(np.float32),
        following=np.concatenate([second, nothing]),
        ended=np.repeat(np.array([0, 1], np.float32), 1000),
        action_space=gym.spaces.Discrete(2, start=3),
    )
    values = {**METHODS["iql"], "net_arch": (16,), "learning_rate": 3e-3, "standardize": False}
    values |= {"expectile": 0.9, "temperature": 5.0, "tau": 0.05, "gamma": 0.9}
    for implicit, expected in ((True, 0.9), (False, 0.6)):
        torch.manual_seed(0)
        learner = Learner(implicit, data, values, torch.Generator().manual_seed(0))
        for _ in range(400):
            learner.update()
        with torch.no_grad():
            chances = learner.policy(torch.tensor([[1.0, 0.0]])).probs
        assert (chances[0, 1] > expected) == implicit
        chosen, _ = learner.predict(np.array([[1.0, 0.0]], np.float32))
        assert chosen[0] == 4 or not implicit
    judged = learner_values(data, values)
    assert judged == pytest.approx(0.9, abs=0.1), "discounted once, of the better action"


def learner_values(data: Transitions, values: dict[str, Any]) -> float:
    torch.manual_seed(0)
    learner = Learner(True, data, values, torch.Generator().manual_seed(0))
    for _ in range(600):
        learner.update()
    with torch.no_grad():
        return float(learner.values(torch.tensor([[1.0, 0.0]])))


def test_transitions_are_those_of_the_episodes() -> None:
    data = read_transitions(PENDULUM)
    episodes = list(minari.load_dataset(PENDULUM).iterate_episodes())
    assert len(data.rewards) == sum(len(episode) for episode in episodes) == 1000
    assert np.allclose(data.observations[199], episodes[0].observations[199])
    assert np.allclose(data.following[199], episodes[0].observations[200])
    assert np.allclose(data.observations[200], episodes[1].observations[0])
    assert np.allclose(data.actions[:200], episodes[0].actions / 2)
    assert not data.ended.any(), "a time limit is no end of the task"
    assert read_transitions(CARTPOLE).ended.sum() > 0


def test_actions_and_observations_are_scaled_and_flattened() -> None:
    space = gym.spaces.Box(np.array([-1.0, 0.0]), np.array([3.0, 10.0]), dtype=np.float32)
    actions = np.array([[-1.0, 10.0], [1.0, 2.5]], np.float32)
    assert np.allclose(to_unit(actions, space), [[-1, 1], [0, -0.5]])
    assert np.allclose(from_unit(to_unit(actions, space), space), actions)
    parts = {"b": gym.spaces.Box(0, 1, (2,)), "a": gym.spaces.Box(0, 1, (1, 2))}
    both = gym.spaces.Dict(parts)
    sample = both.sample()
    rows = {name: value[None] for name, value in sample.items()}
    assert np.allclose(flat(rows, both)[0], gym.spaces.flatten(both, sample))
    with pytest.raises(InputError, match="not from Discrete"):
        flat(np.zeros(3), gym.spaces.Discrete(2))
    with pytest.raises(InputError, match="bounded or numbered"):
        to_unit(actions, gym.spaces.Box(-np.inf, np.inf, (2,)))


def study(**changes: Any) -> dict[str, Any]:
    return {
        "trainer": {"name": "offline/iql", "kwargs": {"dataset": CARTPOLE}},
        "environment": "CartPole-v1",
        "space": {"extends": "offline/iql", "hyperparameters": {"net_arch": {"value": [16]}}},
        "fidelity": {"steps": 40, "evaluations": 2, "episodes": 2},
        "budget": {"runs": 4},
        "seeds": {"tuning": 1, "test": 2},
        "optimizer": "random",
        **changes,
    }


def wrong(**changes: Any) -> InputError:
    return refusal(study(**changes))


def test_what_does_not_fit_is_refused_before_training() -> None:
    spec = load_spec(study())
    check(spec, trainer_loader(spec))
    missing = wrong(trainer={"name": "offline/iql", "kwargs": {"dataset": "mujoco/none-v0"}})
    assert missing.key == "trainer.kwargs.dataset"
    assert "minari download mujoco/none-v0" in missing.message
    unnamed = wrong(trainer="offline/iql")
    assert unnamed.key == "trainer.kwargs.dataset"
    assert "observations of 4 numbers" in wrong(environment="Pendulum-v1").message
    space = {"clip_range": {"type": "float", "lower": 0.1, "upper": 0.3}}
    assert "offline/iql" in wrong(space=space).message


def test_the_study_of_the_page_can_be_begun(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "offline.md"
    file = tmp_path / "pendulum.yaml"
    file.write_text(page.read_text().split("```yaml\n")[1].split("```")[0])
    spec = load_spec(file)
    check(spec, trainer_loader(spec))
    assert spec.space == "offline/iql"


@pytest.mark.parametrize(("kind", "name"), [(DQN, CARTPOLE), (SAC, PENDULUM)])
def test_a_replay_memory_begins_with_the_end_of_a_data_set(
    tmp_path: Path, kind: Any, name: str
) -> None:
    data = read_transitions(name)
    task = minari.load_dataset(name).env_spec.id
    model = kind("MlpPolicy", task, buffer_size=50)
    model.save(tmp_path / "model.zip")
    start = {"model": str(tmp_path / "model.zip"), "memory": name}
    trainer = {"name": f"sb3/{kind.__name__.lower()}"}
    changes = {"trainer": trainer, "space": f"sb3/{kind.__name__.lower()}"}
    spec = with_start(load_spec(study(environment=task, start=start, **changes)))
    assert any(name in place for place in spec.start.files)
    load(spec.trainers[""]).begin_from_start(model)
    memory = model.replay_buffer
    assert memory.full
    assert np.array_equal(memory.next_observations.reshape(50, -1), data.following[-50:])
    assert np.array_equal(memory.actions.reshape(50), data.actions[-50:].reshape(50))
    assert np.array_equal(memory.dones.reshape(50), data.ended[-50:])


@pytest.mark.slow
def test_a_study_tunes_on_recorded_episodes(tmp_path: Path) -> None:
    result = autorl.tune(study(), out=tmp_path / "study", workers=1)
    assert result.test is not None
    assert result.test.value > 5
