"""Games of PettingZoo: agents that are alike learn and play by one policy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
pytest.importorskip("pettingzoo", reason="needs the extra pettingzoo")

import torch
from patience import PATIENCE
from pettingzoo.test import parallel_api_test
from segments import refusal, run, segment

from autorl.core.types import EnvironmentSpec, InputError, Outcome, freeze
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.trainers.sb3.shared_policy import make_game, make_games

torch.set_num_threads(1)  # as the executors do
EXAMPLE = Path(__file__).parents[2] / "examples" / "multi_agent"
FOLDERS = (str(EXAMPLE),)
MEETING = EnvironmentSpec("meeting:parallel_env", kwargs=freeze({"agents": 3}), n_envs=6)
ROLLOUT = {"n_steps": 40, "batch_size": 60, "n_epochs": 2, "net_arch": [16]}
REPLAY = {
    **{"learning_starts": 60, "batch_size": 16, "buffer_size": 600, "net_arch": [16]},
    "train_freq": 4,
}
GAMES = """
import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

class Duel(ParallelEnv):
    metadata = {"name": "duel"}
    possible_agents = ["left", "right"]
    render_mode = None

    def __init__(self, kind="apart"):
        self.kind = kind

    def observation_space(self, agent):
        wider = self.kind == "unlike" and agent == "right"
        return gym.spaces.Box(0, 1, (2 if wider else 1,), np.float32)

    def action_space(self, agent):
        return gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        return {agent: np.zeros(1, np.float32) for agent in self.possible_agents}, {}

    def step(self, actions):
        agents = self.possible_agents
        return (
            {agent: np.zeros(1, np.float32) for agent in agents},
            dict.fromkeys(agents, 1.0),
            {"left": False, "right": True},
            dict.fromkeys(agents, False),
            {},
        )

parallel_env = Duel
"""


@pytest.fixture
def games(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Write a module of games under a name that no other test has."""
    name = f"games_{abs(hash(request.node.name)):x}"
    (tmp_path / f"{name}.py").write_text(GAMES)
    return f"{name}:parallel_env", tmp_path


def run_in(folder: Path, environment: EnvironmentSpec = MEETING, **changes: Any) -> Outcome:
    path = changes.pop("path", str(EXAMPLE))
    algorithm = changes.pop("algorithm", "ppo")
    config = changes or ROLLOUT
    name, options, place = f"sb3/{algorithm}", {"path": path}, folder / "run"
    return run(segment(name, environment, config, 480, place, options, episodes=3))


def test_the_example_is_a_game_of_the_library() -> None:
    parallel_api_test(make_game(MEETING, FOLDERS), num_cycles=100)


def test_agents_of_games_are_environments_side_by_side() -> None:
    venv = make_games(MEETING, 6, FOLDERS)
    venv.seed(5)
    first = venv.reset()
    games = [make_game(MEETING, FOLDERS) for _ in range(2)]
    # Seeds of Stable-Baselines3 count environments: the second game has that of its first agent.
    seen = [game.reset(seed=5 + 3 * number)[0] for number, game in enumerate(games)]
    assert np.array_equal(first, [row for of_game in seen for row in of_game.values()])
    rng = np.random.default_rng(0)
    total = np.zeros(6)
    for step in range(1, 21):
        actions = rng.integers(0, 3, 6)
        rows, rewards, dones, infos = venv.step(actions)
        total += rewards
        results = []
        for number, game in enumerate(games):
            chosen = actions[3 * number : 3 * number + 3]
            results.append(
                game.step(dict(zip(game.possible_agents, map(int, chosen), strict=True)))
            )
        expected = [row for result in results for row in result[0].values()]
        if step < 20:
            assert np.array_equal(rows, expected)
            assert not dones.any()
    assert dones.all()
    for index, info in enumerate(infos):
        assert np.array_equal(info["terminal_observation"], expected[index])
        assert info["TimeLimit.truncated"]
        assert info["episode"]["r"] == pytest.approx(total[index], abs=1e-5)
    assert rows.shape == (6, 3), "the next game has begun"


def test_one_policy_trains_and_games_are_scored_by_the_mean_agent(tmp_path: Path) -> None:
    outcome = run_in(tmp_path)
    assert not outcome.message, outcome.message
    metrics = outcome.reports[0].metrics
    assert outcome.reached == 480
    assert metrics["eval_length"] == 20
    assert -20 <= metrics["eval_return"] <= 0
    again = run_in(tmp_path / "again")
    assert again.reports[0].metrics == metrics


def test_a_game_of_the_library_trains(tmp_path: Path) -> None:
    pytest.importorskip("pygame", reason="this game of PettingZoo needs pygame")
    environment = EnvironmentSpec(
        "pettingzoo.classic.rps_v2:parallel_env", kwargs=freeze({"max_cycles": 5}), n_envs=4
    )
    outcome = run_in(tmp_path, environment)
    assert not outcome.message, outcome.message
    # Of two, what one wins the other loses.
    assert outcome.reports[0].metrics["eval_return"] == 0.0
    assert outcome.reports[0].metrics["eval_length"] == 5


def test_an_algorithm_with_a_replay_memory_shares_a_policy_too(tmp_path: Path) -> None:
    outcome = run_in(tmp_path, algorithm="dqn", **REPLAY)
    assert not outcome.message, outcome.message
    assert outcome.reached == 480


def study(**changes: Any) -> dict[str, Any]:
    return {
        "trainer": "sb3/ppo",
        "environment": {"id": "meeting:parallel_env", "n_envs": 6},
        "space": {"learning_rate": {"type": "float", "lower": 1e-4, "upper": 1e-2}},
        "fidelity": {"steps": 24_576, "evaluations": 1},
        "budget": {"runs": 8},
        "path": str(EXAMPLE),
        **changes,
    }


def wrong(**changes: Any) -> InputError:
    return refusal(study(**changes))


def test_what_cannot_share_a_policy_is_refused_before_training(games: tuple[str, Path]) -> None:
    name, folder = games
    spec = load_spec(study())
    check(spec, trainer_loader(spec))
    five = wrong(environment={"id": "meeting:parallel_env", "n_envs": 5})
    assert five.key == "environment.n_envs"
    assert "expected a multiple of 3, got 5" in five.message
    wrapped = wrong(
        environment={
            **{"id": "meeting:parallel_env", "n_envs": 6},
            "wrappers": ["gymnasium.wrappers:FlattenObservation"],
        }
    )
    assert wrapped.key == "environment.wrappers"
    processes = {"id": "meeting:parallel_env", "n_envs": 6, "vec_env": "subproc"}
    assert wrong(environment=processes).key == "environment.vec_env"
    unlike = {"id": name, "n_envs": 2, "kwargs": {"kind": "unlike"}}
    assert "agents that are alike" in wrong(environment=unlike, path=str(folder)).message
    nothing = {"id": "meeting:parallel_env", "n_envs": 6, "kwargs": {"players": 3}}
    assert wrong(environment=nothing).key == "environment.kwargs"


def test_agents_that_end_before_others_fail_their_run(
    tmp_path: Path, games: tuple[str, Path]
) -> None:
    name, folder = games
    outcome = run_in(tmp_path / "out", EnvironmentSpec(name, n_envs=2), path=str(folder))
    assert "right ended before the others" in outcome.message


@pytest.mark.slow
def test_the_example_is_tuned(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "example"))
    command = [sys.executable, "-m", "autorl", "tune", "study.yaml", "--json", "--runs", "2"]
    done = subprocess.run(
        [*command, "--out", "out", "--set", "fidelity.steps=4000", "--set", "seeds.test=2"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert -20 <= json.loads(done.stdout)["test"]["value"] < 0
