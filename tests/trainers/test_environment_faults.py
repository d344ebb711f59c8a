"""Environments of the user's that raise when they are made: one line before a study, no traceback."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from autorl.cli import app
from autorl.core.types import EnvironmentSpec, InputError
from autorl.trainers.gymnasium_tasks import make_task

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
    """Return the line of `autorl tune --dry-run` on an environment, with exit code 2."""
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
@pytest.mark.parametrize(
    ("where", "said", "line"),
    [
        ("init", "raised ValueError: no licence buy one (", "raise ValueError"),
        ("library", "raised ValueError: matmul: ", "np.zeros(2) @"),  # the user's line
        ("spaces", "The environment must specify an ", None),
        ("", "raised OSError: not connected", None),  # when it is closed
    ],
)
def test_what_an_environment_raises_is_said_with_its_place(
    tmp_path, monkeypatch, trainer, where, said, line
):
    module = f"unlicensed_{trainer[:3]}_{where}"
    name = f"{module}:Unlicensed-v0"
    text = error_of(tmp_path, trainer, module, monkeypatch, id=name, kwargs={"where": where})
    assert "study.yaml:2: environment" in text
    assert f"environment: '{name}' raised " in text
    assert said in text
    if line is not None:
        assert text.endswith(f"({tmp_path / module}.py:{line_of(line)})")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_spaces_that_are_unsupported_are_one_line_too(tmp_path, monkeypatch, trainer):
    module = f"spaces_{trainer[:3]}"
    text = error_of(tmp_path, trainer, module, monkeypatch, id=f"{module}:Unsupported-v0")
    assert "has Tuple" in text


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


def test_an_old_version_is_refused_before_gymnasium_warns_of_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="'Pendulum-v0'; did you mean 'Pendulum-v1'"):
            make_task(EnvironmentSpec("Pendulum-v0"))
