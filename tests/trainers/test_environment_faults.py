"""Environments of the user's that raise when they are made: one line before a study, no traceback."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from autorl.cli import app

MODULE = """
    import gymnasium
    import numpy as np
    from gymnasium.spaces import Box, Discrete, Tuple


    class Unlicensed(gymnasium.Env):
        def __init__(self, where="init"):
            self.observation_space = Box(-1, 1, (2,))
            self.action_space = Discrete(2)
            if where == "init":
                raise ValueError("no licence\\nbuy one")
            if where == "library":
                np.zeros(2) @ np.zeros(3)
            if where == "spaces":
                del self.observation_space

        def reset(self, *, seed=None, options=None):
            raise RuntimeError("no licence")

        def close(self):
            raise OSError("not connected")


    class Spaces(gymnasium.Env):
        observation_space = Box(-1, 1, (2,))
        action_space = Tuple([Discrete(2), Discrete(2)])


    def parallel_env():
        raise ConnectionError("the simulator is down")


    gymnasium.register("Unlicensed-v0", Unlicensed)
    gymnasium.register("Unsupported-v0", Spaces)
"""
# Each test writes the module anew, under another name.
pytestmark = pytest.mark.filterwarnings("ignore:.*Overriding environment")
PPO = {"learning_rate": {"type": "float", "lower": 1e-4, "upper": 1e-3, "scale": "log"}}
TRAINERS = ("sb3/ppo", "population/ppo")


def line_of(text: str) -> int:
    """The number of the line of the module that has a text."""
    lines = textwrap.dedent(MODULE).splitlines()
    return 1 + next(index for index, line in enumerate(lines) if text in line)


def error_of(folder: Path, trainer: str, module: str, monkeypatch: Any, **environment: Any) -> str:
    """What `autorl tune --dry-run` says of an environment; it must be one line, with exit code 2."""
    if trainer.startswith("sb3"):
        pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    (folder / f"{module}.py").write_text(textwrap.dedent(MODULE))
    study = {
        "trainer": trainer,
        "environment": environment,
        "space": {"hyperparameters": PPO},
        "fidelity": {"steps": 100},
        "budget": {"runs": 4},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, ["tune", "study.yaml", "--dry-run"])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return str(line)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_what_an_environment_raises_is_said_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    module = f"unlicensed_{trainer[:3]}"
    name = f"{module}:Unlicensed-v0"
    text = error_of(tmp_path, trainer, module, monkeypatch, id=name)
    place = f"{tmp_path / module}.py:{line_of('raise ValueError')}"
    assert text.endswith(f"environment: '{name}' raised ValueError: no licence buy one ({place})")
    assert "study.yaml:2: environment" in text


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_place_is_the_users_line_where_a_library_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    module = f"mismatched_{trainer[:3]}"
    name = f"{module}:Unlicensed-v0"
    text = error_of(tmp_path, trainer, module, monkeypatch, id=name, kwargs={"where": "library"})
    assert "ValueError: matmul: " in text
    assert text.endswith(f"({tmp_path / module}.py:{line_of('np.zeros(2) @')})")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_spaces_that_are_missing_or_unsupported_are_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    module = f"spaces_{trainer[:3]}"
    name = f"{module}:Unlicensed-v0"
    text = error_of(tmp_path, trainer, module, monkeypatch, id=name, kwargs={"where": "spaces"})
    assert f"'{name}' raised " in text
    assert "The environment must specify an " in text
    text = error_of(tmp_path, trainer, module, monkeypatch, id=f"{module}:Unsupported-v0")
    assert "has Tuple" in text


@pytest.mark.parametrize("trainer", TRAINERS)
def test_what_an_environment_raises_when_it_is_closed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    module = f"closed_{trainer[:3]}"
    name = f"{module}:Unlicensed-v0"
    text = error_of(tmp_path, trainer, module, monkeypatch, id=name, kwargs={"where": ""})
    assert f"'{name}' raised OSError: not connected" in text


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_module_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    broken = f"half_written_{trainer[:3]}"
    (tmp_path / f"{broken}.py").write_text("def broken(:\n")
    text = error_of(tmp_path, trainer, "whole", monkeypatch, id=f"{broken}:Mine-v0")
    assert f"SyntaxError: invalid syntax ({broken}.py, line 1)" in text


def test_what_a_game_of_several_agents_raises_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "games:parallel_env"
    text = error_of(tmp_path, "sb3/ppo", "games", monkeypatch, id=name)
    place = f"{tmp_path / 'games'}.py:{line_of('raise ConnectionError')}"
    assert text.endswith(f"'{name}' raised ConnectionError: the simulator is down ({place})")
