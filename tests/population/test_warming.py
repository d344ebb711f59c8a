"""The engine compiled before anybody trains: `autorl doctor --warm`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autorl.population import kernels
from autorl.population.kernels import Function, Program, prepare, tell_preparations

_TRAIN = """
import numpy as np
from autorl.population import engine
from autorl.population.environments import find_environment
from autorl.population.hyperparameters import record
for name, inside in (("ddpg", "Pendulum-v1"), ("ddpg", "MountainCarContinuous-v0")):
    algorithm, environment = engine.find_algorithm(name), find_environment(inside)
    hp = record(algorithm.settings, {"learning_starts": 10, "buffer_size": 100}, 1000)
    state = algorithm.create(environment, hp, 3, np.float32)
    bound = algorithm.bind(state, environment, hp)
    bound.advance(20)
    engine.evaluation(bound, state, environment, [2, 4])
"""


def _count(out):
    for index in range(len(out)):
        out[index] = index


def _autorl(*arguments, cache, code=0):
    command = [sys.executable, "-m", "autorl", "doctor", *arguments]
    environment = {**os.environ, "AUTORL_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def _compiled(folder: Path) -> set[Path]:
    return set(folder.rglob("*.nbc"))


def test_preparations_are_told_once_and_say_what_came_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "cache_directory", lambda: tmp_path)
    told = []
    with tell_preparations(told.append):
        for _ in range(2):  # the second is loaded, as in another process
            program = Program(_count)
            for _ in range(2):
                out = np.zeros(3)
                program(out)
                assert list(out) == [0, 1, 2]
    assert [(made.name, made.compiled) for made in told] == [
        ("test_warming._count", True),
        ("test_warming._count", False),
    ]
    assert all(made.seconds > 0 for made in told)
    Program(_count)(np.zeros(3, np.float32))
    assert len(told) == 2  # nobody asks any more


def test_functions_of_an_environment_are_prepared_like_a_program(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "cache_directory", lambda: tmp_path)
    kind = kernels.types.FunctionType(kernels.types.void(kernels.types.float64[::1]))
    told = []
    with tell_preparations(told.append):
        for _ in range(2):
            prepare("counting", [Function(kernels.cached(_count), kind)])
    assert [(made.name, made.compiled) for made in told] == [
        ("counting", True),
        ("counting", False),
    ]
    assert len(_compiled(tmp_path)) == 1


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    error = _autorl("--warm", "ppo", cache=tmp_path / "file" / "cache", code=2).stderr
    assert "AUTORL_CACHE" in error
    assert str(tmp_path / "file" / "cache") in error
    assert error.count("\n") == 1


def test_an_unknown_algorithm_is_one_line(tmp_path):
    error = _autorl("--warm", "pppo", cache=tmp_path, code=2).stderr
    assert "did you mean 'ppo'" in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_what_was_warmed_is_not_compiled_again(tmp_path):
    first = json.loads(_autorl("--warm", "ddpg", "--json", cache=tmp_path).stdout)
    assert all(program["compiled"] for program in first)
    names = {program["name"] for program in first}
    assert {"td3.train", "evaluation.evaluate", "Pendulum-v1", "variants of Pendulum-v1"} <= names
    assert "CartPole-v1" not in names  # no algorithm named here has discrete actions
    compiled = _compiled(tmp_path)
    environment = {**os.environ, "AUTORL_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _TRAIN], env=environment, check=True)
    assert _compiled(tmp_path) == compiled
    lines = _autorl("--warm", "ddpg", cache=tmp_path).stdout.splitlines()
    assert len(lines) == len(first)
    assert all(line.startswith("there ") for line in lines)
    assert _compiled(tmp_path) == compiled
