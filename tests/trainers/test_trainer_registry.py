from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from typing import Any

import pytest

from autorl.core.types import InputError, TrainerSpec
from autorl.trainers import info, load, names
from autorl.trainers.info import TrainedRun
from autorl.trainers.registry import ALIASES


def test_every_trainer_has_one_line_for_people() -> None:
    assert {"sb3/ppo", "sb3/sac", "command", "synthetic", "python:module:function"} <= set(names())
    assert all(text and "\n" not in text for text in names().values())


@pytest.mark.parametrize(
    ("names", "unit"),
    [
        (["sb3/ppo", "population/dqn"], "environment_steps"),
        (["trl/rloo", "trl/cpo"], "optimizer_steps"),
        (["rlhf/ppo", "trl/ppo"], "optimizer_steps"),
        (["python:my_module:train"], None),
        (["trl/rloo", "sb3/ppo"], None),
    ],
)
def test_what_a_step_is_can_be_told_without_building_a_trainer(
    names: list[str], unit: str | None
) -> None:
    units = {info(name).step_unit for name in names}
    assert (units.pop() if len(units) == 1 else None) == unit


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_an_earlier_name_is_the_same_trainer_and_is_said_beside_the_name(
    alias: str, name: str
) -> None:
    assert alias not in names()
    assert alias in names()[name]
    assert info(alias) is info(name)


def test_a_trainer_is_built_once_per_process() -> None:
    assert load(TrainerSpec("synthetic")) is load(TrainerSpec("synthetic"))
    assert pickle.loads(pickle.dumps(load)) is load


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.util.find_spec

    def without_sb3(name: str, package: str | None = None) -> Any:
        return None if name == "stable_baselines3" else original(name, package)

    load.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", without_sb3)
    with pytest.raises(InputError, match=r'needs stable_baselines3: pip install "autorl\[sb3\]"'):
        load(TrainerSpec("sb3/ppo"))
    run = TrainedRun(TrainerSpec("sb3/ppo"), {"gamma": 0.9}, 100, 100, {})
    with pytest.raises(InputError, match=r"names of its constructor are unknown: .*autorl\[sb3\]"):
        info("sb3/ppo").arguments(run, as_flags=False)
    assert info("sb3/ppo").arguments(run, as_flags=True).values == {"gamma": 0.9}


def test_the_registry_imports_no_library() -> None:
    code = (
        "import sys, autorl.trainers; autorl.trainers.names();"
        "print([m for m in ('torch', 'stable_baselines3', 'gymnasium', 'numpy', 'yaml') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
