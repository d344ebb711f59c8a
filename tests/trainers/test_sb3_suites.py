"""Atari, Box2D, MuJoCo and MiniGrid: what a study of them begins with, built and trained."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

import gymnasium as gym
import torch
from segments import run_well, segment
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from autorl.core.types import Config, EnvironmentSpec, InputError, Outcome, TrainerSpec, freeze
from autorl.report.plan import make_plan
from autorl.report.plan_text import plan_text
from autorl.space import load_space
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.study.spec.study_file import read_study, space_study
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers.info import TrainedRun
from autorl.trainers.sb3 import suites
from autorl.trainers.sb3.environments import make_environment
from autorl.trainers.sb3.suites import FRAME_STACK, suite_of
from autorl.trainers.sb3.wrappers import FrameStack
from autorl.trainers.sb3.zoo_write import zoo_entry

torch.set_num_threads(1)  # as the executors do
ATARI_WRAPPER = "stable_baselines3.common.atari_wrappers:AtariWrapper"
PACKAGES = {"atari": "ale_py", "box2d": "Box2D", "mujoco": "mujoco", "minigrid": "minigrid"}


def needs(suite: str, *modules: str) -> None:
    for module in (PACKAGES[suite], *modules):
        pytest.importorskip(module, reason=f"needs the extra {suite}", exc_type=ImportError)


def without(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a module be looked for in vain."""
    real = importlib.util.find_spec

    def find(name: str, *more: Any) -> Any:
        return None if name == module else real(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find)


OF_SUITES = {
    "atari": ("ALE/Pong-v5", "ale_py:ALE/MsPacman-v5", "BreakoutNoFrameskip-v4"),
    "box2d": (
        *("LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalkerHardcore-v3"),
        "CarRacing-v3",
    ),
    "mujoco": ("Hopper-v5", "HumanoidStandup-v4"),
    "minigrid": ("MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToObj-v0"),
    None: ("CartPole-v1", "AntMaze_UMaze-v5", "my_envs:Hopperlike-v0"),
}


@pytest.mark.parametrize("name", OF_SUITES)
def test_an_id_tells_its_suite(name: str | None) -> None:
    suites = [suite_of(environment) for environment in OF_SUITES[name]]
    assert {suite.name if suite else None for suite in suites} == {name}


@pytest.mark.parametrize("suite", suites.SUITES, ids=lambda suite: suite.name)
def test_a_missing_package_is_a_line_that_names_the_extra(
    suite: suites.Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(suite.module, monkeypatch)
    with pytest.raises(InputError, match=rf'pip install "autorl\[{suite.name}\]"') as caught:
        make_environment(EnvironmentSpec(OF_SUITES[suite.name][0]))
    assert caught.value.key == "environment.id"


@pytest.mark.parametrize(
    ("name", "environment", "space"),
    [
        ("sb3/ppo", "ALE/Pong-v5", "sb3/ppo-atari"),
        ("sb3/ppo", "Hopper-v5", "sb3/ppo-mujoco"),
        ("sb3/sac", "BipedalWalker-v3", "sb3/sac-box2d"),
        ("sb3/dqn", "MiniGrid-Empty-5x5-v0", "sb3/dqn-minigrid"),
        ("sb3/ddpg", "Hopper-v5", "sb3/ddpg"),  # MuJoCo has no space of its own there
        ("sb3/ppo-small", "Hopper-v5", "sb3/ppo-small"),  # asked for by name
        ("sb3/ppo", "CartPole-v1", "sb3/ppo"),
    ],
)
def test_a_bare_name_takes_the_space_of_the_suite(name: str, environment: str, space: str) -> None:
    assert space_study(name, environment)["space"] == space


def test_what_the_user_says_comes_before_the_suite() -> None:
    changes = {"environment.id": "Hopper-v5", "environment.n_envs": 4, "space": "sb3/ppo"}
    spec = read_study("sb3/ppo", {**changes, "fidelity.steps": 200_000})
    assert spec.space == "sb3/ppo"
    assert (spec.environment.id, spec.environment.n_envs) == ("Hopper-v5", 4)
    assert spec.environment.normalize is True
    assert spec.fidelity.steps == 200_000
    mapping = space_study("sb3/ppo", {"id": "ALE/Pong-v5", "wrappers": []})
    assert mapping["environment"]["wrappers"] == []
    assert mapping["environment"]["n_envs"] == 8


def test_the_engine_begins_as_stable_baselines3_does() -> None:
    """But native tasks, and its spaces: it has one for all environments."""
    for name in ("ppo", "sac", "td3"):
        for environment in ("HalfCheetah-v5", "BipedalWalker-v3", "BabyAI-GoToObj-v0"):
            ours = space_study(f"population/{name}", environment)
            theirs = space_study(f"sb3/{name}", environment)
            # The space of PPO searches how many environments stand side by side.
            expected = {**theirs["environment"]}
            if name == "ppo":
                expected.pop("n_envs", None)
            assert ours["environment"] == expected
            assert ours["fidelity"] == theirs["fidelity"]
            assert ours["space"] == f"population/{name}"
            normalized = name == "ppo"
            assert ours["environment"].get("normalize", False) is normalized
    native = space_study("population/ppo", "CartPole-v1")
    for environment in ("MiniGrid-DoorKey-5x5-v0", "ALE/Pong-v5"):
        of_suite = space_study("population/ppo", environment)
        assert of_suite["fidelity"] == native["fidelity"]
        assert of_suite["environment"] == environment


@pytest.mark.parametrize("environment", ["LunarLander-v3", "Hopper-v5", "BabyAI-GoToObj-v0"])
@pytest.mark.parametrize("name", ["ppo", "ppo-small", "a2c", "dqn", "sac", "td3", "ddpg"])
def test_a_study_of_the_engine_can_be_begun_by_a_bare_name(name: str, environment: str) -> None:
    spec = read_study(f"population/{name}", {"environment.id": environment})
    assert spec.environment.id == environment
    assert ("n_envs" in spec.search_space.hyperparameters) == (name in ("ppo", "ppo-small", "a2c"))


SHIPPED = Path(__file__).parents[2] / "search_spaces" / "sb3" / "ppo.yaml"


@pytest.mark.parametrize(
    ("content", "space"),
    [
        (b"hyperparameters: {learning_rate: 'log(1e-4, 1e-3)'}\n", "sb3/ppo"),
        # As in a checkout of this repository where an installed package is used.
        (SHIPPED.read_bytes(), "sb3/ppo-mujoco"),
    ],
)
def test_a_space_of_ones_own_with_the_trainers_name_stays_unless_it_is_the_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, space: str
) -> None:
    own = tmp_path / "search_spaces" / "sb3" / "ppo.yaml"
    own.parent.mkdir(parents=True)
    own.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert space_study("sb3/ppo", "Hopper-v5")["space"] == space


PUBLISHED: dict[str, dict[str, Any]] = {
    # RL Baselines3 Zoo, commit 22e3ff2: what its presets have that is no name of a policy.
    "ppo-atari": {
        **{"n_steps": 128, "n_epochs": 4, "batch_size": 256, "learning_rate": 2.5e-4},
        **{"clip_range": 0.1, "vf_coef": 0.5, "ent_coef": 0.01},
        **{"learning_rate.shape": "linear", "clip_range.shape": "linear"},
    },
    "dqn-atari": {
        **{"buffer_size": 100_000, "learning_rate": 1e-4, "batch_size": 32},
        **{"learning_starts": 100_000, "target_update_interval": 1000, "train_freq": 4},
        **{"gradient_steps": 1, "exploration_fraction": 0.1, "exploration_final_eps": 0.01},
    },
    "qrdqn-atari": {"learning_starts": 50_000, "exploration_fraction": 0.025},
    "ppo-box2d": {
        **{"n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999},
        **{"n_epochs": 4, "ent_coef": 0.01},
    },
    "dqn-box2d": {
        **{"learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000},
        **{"learning_starts": 0, "gamma": 0.99, "target_update_interval": 250, "train_freq": 4},
        **{"gradient_steps": -1, "exploration_fraction": 0.12, "exploration_final_eps": 0.1},
        "net_arch": (256, 256),
    },
    "sac-box2d": {
        **{"batch_size": 256, "learning_rate": 7.3e-4, "learning_rate.shape": "linear"},
        **{"ent_coef": "auto", "gamma": 0.99, "tau": 0.01, "train_freq": 1},
        **{"learning_starts": 10_000, "net_arch": (400, 300)},
    },
    "sac-mujoco": {"learning_starts": 10_000},
    "tqc-mujoco": {"learning_starts": 10_000},
    "td3-mujoco": {
        **{"learning_starts": 10_000, "noise_type": "normal", "noise_std": 0.1},
        **{"train_freq": 1, "learning_rate": 1e-3, "batch_size": 256, "net_arch": (400, 300)},
    },
    "ppo-minigrid": {
        **{"n_steps": 128, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.99},
        **{"n_epochs": 10, "ent_coef": 0.0, "learning_rate": 2.5e-4, "clip_range": 0.2},
    },
    "ppo-mujoco": {"n_steps": 2048, "batch_size": 64, "n_epochs": 10, "learning_rate": 3e-4},
    "dqn-minigrid": {"target_update_interval": 10_000, "learning_rate": 1e-4},
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_defaults_are_the_published_presets(name: str) -> None:
    default = load_space(f"sb3/{name}").default()
    expected = PUBLISHED[name]
    assert {key: default[key] for key in expected} == expected


def test_every_suite_has_its_spaces_in_the_table() -> None:
    files = Path(__file__).parents[2].joinpath("search_spaces", "sb3").glob("*-*.yaml")
    assert {path.stem for path in files} - {"ppo-small"} == set(PUBLISHED)


BUILT = {
    "sb3/ppo": (
        *("ALE/Pong-v5", "LunarLander-v3", "CarRacing-v3", "HalfCheetah-v5"),
        *("MiniGrid-Empty-5x5-v0", "BabyAI-GoToObj-v0"),
    ),
    "sb3/dqn": ("BreakoutNoFrameskip-v4", "LunarLander-v3", "MiniGrid-DoorKey-5x5-v0"),
    "sb3/qrdqn": ("ALE/Pong-v5",),
    "sb3/sac": ("BipedalWalker-v3", "Hopper-v5"),
    "sb3/td3": ("Walker2d-v5",),
    "sb3/tqc": ("Ant-v5",),
}
PAIRS = [(name, environment) for name, own in BUILT.items() for environment in own]


@pytest.mark.parametrize(("name", "environment"), PAIRS)
def test_a_study_that_is_begun_so_can_be_built(name: str, environment: str) -> None:
    suite = suite_of(environment)
    assert suite is not None
    needs(suite.name, *(["cv2"] if suite.name == "atari" or "CarRacing" in environment else []))
    if name in ("sb3/qrdqn", "sb3/tqc"):
        pytest.importorskip("sb3_contrib", reason="needs the extra contrib")
    spec = read_study(name, {"environment.id": environment})
    assert spec.space == f"{name}-{suite.name}"
    check(spec, trainer_loader(spec))  # builds the model of the default configuration
    env = make_environment(spec.environment.resolve())
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    if suite.name == "atari":
        assert observation.shape == (84, 84, 4)
        assert env.unwrapped._frameskip == 1  # type: ignore[attr-defined]
    env.close()


def test_a_dry_run_says_what_the_suite_has_put_around_the_task(tmp_path: Path) -> None:
    needs("atari", "cv2")
    spec = read_study("sb3/ppo", {"environment.id": "ALE/Pong-v5", "budget": {"runs": 3}})
    text = plan_text(make_plan(spec))
    assert "ALE/Pong-v5, 8 side by side, wrapped by AtariWrapper, FrameStack" in text
    assert "sb3/ppo-atari, 14 hyperparameters" in text


def trained(
    folder: Path, trainer: str, environment: EnvironmentSpec, config: dict[str, Any], **options: Any
) -> Outcome:
    """Train 128 steps and evaluate two episodes."""
    outcome = run_well(segment(trainer, environment, config, 128, folder / "run", options))
    assert outcome.reached == 128
    return outcome


def begun(name: str, environment: str, **kwargs: Any) -> EnvironmentSpec:
    """Return the environments that a study of a bare name trains on, two at most."""
    spec = read_study(name, {"environment.id": environment}).environment
    changes = {"n_envs": min(2, spec.n_envs), "kwargs": {**spec.kwargs, **kwargs}}
    return spec.model_copy(update=changes).resolve()


ROLLOUT = {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
REPLAY = {"learning_starts": 32, "batch_size": 16, "buffer_size": 200}


def test_pixels_of_atari_train_and_whole_games_are_evaluated(tmp_path: Path) -> None:
    needs("atari", "cv2")
    environment = begun("sb3/ppo", "BreakoutNoFrameskip-v4")
    outcome = trained(tmp_path, "sb3/ppo", environment, ROLLOUT, deterministic=False)
    metrics = outcome.reports[0].metrics
    # Five lives, not the one that an episode of the training is; frames of the game, not of four.
    assert metrics["eval_length"] > 400
    assert metrics["eval_return"] == round(metrics["eval_return"] * 2) / 2


def test_memory_of_atari_trains_without_pictures(tmp_path: Path) -> None:
    needs("atari")
    wrappers = "stable_baselines3.common.atari_wrappers"
    own = (f"{wrappers}:EpisodicLifeEnv", f"{wrappers}:ClipRewardEnv")
    memory = EnvironmentSpec("ALE/Breakout-v5", kwargs=freeze({"obs_type": "ram"}), wrappers=own)
    changes = {"n_envs": 2, "normalize": freeze({"norm_reward": False})}
    environment = replace(memory, **changes)
    outcome = trained(tmp_path, "sb3/ppo", environment, ROLLOUT, deterministic=False)
    assert outcome.reports[0].metrics["eval_length"] > 50
    refused = replace(memory, wrappers=(ATARI_WRAPPER,))
    with pytest.raises(InputError, match=r"is for images .*\(128,\)"):
        make_environment(refused)


@pytest.mark.parametrize(
    ("name", "environment", "config"),
    [
        ("sb3/dqn", "LunarLander-v3", REPLAY | {"train_freq": 8, "gradient_steps": -1}),
        ("sb3/ppo", "Hopper-v5", ROLLOUT | {"n_steps": 64, "log_std_init": -1.0}),
        ("sb3/td3", "Hopper-v5", REPLAY | {"train_freq": 8, "gradient_steps": -1}),
    ],
)
def test_box2d_and_mujoco_train(
    tmp_path: Path, name: str, environment: str, config: dict[str, Any]
) -> None:
    suite = suite_of(environment)
    assert suite is not None
    needs(suite.name)
    outcome = trained(tmp_path, name, begun(name, environment), config)
    assert np.isfinite(outcome.reports[0].metrics["eval_return"])
    assert {key: outcome.applied[key] for key in config} == config


def test_opencv_that_is_missing_is_said_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("atari")
    without("cv2", monkeypatch)
    with pytest.raises(InputError, match="needs OpenCV") as caught:
        make_environment(EnvironmentSpec("ALE/Pong-v5", wrappers=(ATARI_WRAPPER,)))
    assert caught.value.key == "environment.wrappers"


def test_text_among_the_observations_is_refused_with_the_wrapper_for_it() -> None:
    needs("minigrid")
    changes = {"environment.id": "MiniGrid-Empty-5x5-v0", "environment.wrappers": []}
    spec = read_study("sb3/ppo", changes)
    with pytest.raises(InputError, match=r"takes no MissionSpace \(mission\).*FlatObsWrapper"):
        check(spec, trainer_loader(spec))


def test_the_study_of_the_page_can_be_built(tmp_path: Path) -> None:
    needs("atari", "cv2")
    page = Path(__file__).parents[2] / "docs" / "stable-baselines3.md"
    [text] = [part for part in page.read_text().split("```") if part.startswith("yaml\nname: pong")]
    file = tmp_path / "pong.yaml"
    file.write_text(text.removeprefix("yaml\n"))
    spec = load_spec(file)
    check(spec, trainer_loader(spec))
    of_bare_name = read_study("sb3/ppo", {"environment.id": "ALE/Pong-v5"})
    for part in ("environment", "trainer", "fidelity"):
        assert getattr(spec, part) == getattr(of_bare_name, part)


class TestStackedFrames(TrainerConformance):
    """The stack is part of the state of an environment: n + n steps equal 2n."""

    case = Case(
        TrainerSpec("sb3/ppo", freeze(ROLLOUT | {"net_arch": [16]})),
        EnvironmentSpec("CartPole-v1", n_envs=2, wrappers=(freeze({FRAME_STACK: {"n_stack": 3}}),)),
        configs=(Config(learning_rate=1e-2), Config(learning_rate=1e-3)),
        fixed=("net_arch", (8,)),
    )


class Noisy(gym.Env[Any, Any]):
    """Random observations of a shape, episodes of three to seven steps."""

    def __init__(self, shape: tuple[int, ...], kind: Any) -> None:
        top = 255 if kind is np.uint8 else 1
        self.observation_space = gym.spaces.Box(0, top, shape, kind)
        self.action_space = gym.spaces.Discrete(2)
        self.left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 8))
        return self._drawn(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._drawn(), 1.0, self.left == 0, False, {}

    def _drawn(self) -> Any:
        space: Any = self.observation_space
        drawn = self.np_random.random(space.shape) * space.high
        return drawn.astype(space.dtype)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((36, 40, 1), np.uint8), ((3, 36, 40), np.uint8), ((5,), np.float32), ((4, 6), np.float32)],
)
def test_stacked_frames_are_those_of_vec_frame_stack(shape: tuple[int, ...], kind: Any) -> None:
    theirs = VecFrameStack(DummyVecEnv([lambda: Noisy(shape, kind)] * 2), n_stack=3)
    ours = DummyVecEnv([lambda: FrameStack(Noisy(shape, kind), n_stack=3)] * 2)
    assert ours.observation_space == theirs.observation_space
    for venv in (theirs, ours):
        venv.seed(7)
    assert np.array_equal(ours.reset(), theirs.reset())
    ended = 0
    for _ in range(30):
        expected, _, dones, expected_infos = theirs.step(np.zeros(2, int))
        observed, _, _, infos = ours.step(np.zeros(2, int))
        assert np.array_equal(observed, expected)
        for index in np.flatnonzero(dones):
            last = infos[index]["terminal_observation"]
            assert np.array_equal(last, expected_infos[index]["terminal_observation"])
            ended += 1
    assert ended >= 6


@pytest.mark.parametrize("n_stack", [0, True, "4"])
def test_a_wrong_number_of_frames_is_refused(n_stack: object) -> None:
    spec = EnvironmentSpec("CartPole-v1", wrappers=(freeze({FRAME_STACK: {"n_stack": n_stack}}),))
    with pytest.raises(InputError, match=r"FrameStack\.n_stack"):
        make_environment(spec)


def test_frames_are_stacked_for_the_zoo_by_its_own_key() -> None:
    environment = {"id": "ALE/Pong-v5", "wrappers": [ATARI_WRAPPER, {FRAME_STACK: {"n_stack": 3}}]}
    run = TrainedRun(TrainerSpec("sb3/ppo"), *({"learning_rate": 1e-3}, 1000, 1000, environment))
    text = zoo_entry(run)
    assert "frame_stack: 3" in text
    assert "policy: CnnPolicy" in text
    assert "atari_wrappers.AtariWrapper" in text
    assert "FrameStack" not in text
