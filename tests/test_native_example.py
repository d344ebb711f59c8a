"""The example of an environment in numba's scalar functions: conformance, and the study that trains on it."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from patience import PATIENCE

from autorl.population import rng
from autorl.population.environments import find_environment

EXAMPLES = Path(__file__).parents[1] / "examples"
NAME = "compiled_corridor:CORRIDOR"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Its modules as a study beside them has them."""
    for folder in ("native_environment", "custom_environment"):
        monkeypatch.syspath_prepend(EXAMPLES / folder)
    yield
    for module in ("compiled_corridor", "corridor"):
        sys.modules.pop(module, None)


class Drawn:
    """Stands for the generator of Gymnasium's environment: gives what the engine draws."""

    def __init__(self):
        self.key = np.uint64(0)

    def random(self):
        with np.errstate(over="ignore"):  # the hash of 64 bits, as plain Python
            return rng.uniform(self.key, 0)


def test_10_000_random_steps_are_those_of_the_gymnasium_environment():
    environment = find_environment(NAME)
    importlib.import_module("corridor")
    reference = gymnasium.make("Corridor-v0", length=8)
    generator = np.random.default_rng(0)
    state = environment.states(1)[0]
    observation = np.zeros(1, np.float32)
    endings = {"terminated": 0, "truncated": 0}
    running = False
    for _ in range(10_000):
        key = generator.integers(2**63, dtype=np.uint64)
        if not running:
            environment.reset(state, key)
            seen, _ = reference.reset()
            drawn = Drawn()
            reference.unwrapped._np_random = drawn
            length = 0
        environment.observe(state, observation)
        assert np.array_equal(observation, seen)
        drawn.key = key
        # Rather to the right than to the left, or no episode reaches the end.
        action = int(generator.random() < 0.58)
        gained, terminated = environment.step(state, np.array([float(action)]), key)
        length += 1
        truncated = not terminated and length >= environment.time_limit
        seen, reward, over, limited, _ = reference.step(action)
        assert (gained, terminated, truncated) == (reward, over, limited and not over)
        endings["terminated"] += terminated
        endings["truncated"] += truncated
        running = not (terminated or truncated)
    assert min(endings.values()) > 20


@pytest.mark.slow
def test_the_study_tunes_it(tmp_path):
    folder = Path(shutil.copytree(EXAMPLES / "native_environment", tmp_path / "native"))
    options = ("--runs", "3", "--set", "seeds.test=2", "--out", str(tmp_path / "out"), "--json")
    done = subprocess.run(
        [sys.executable, "-m", "autorl", "tune", str(folder / "study.yaml"), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    # The corridor has 8 cells, an episode 60 steps.
    assert -60 <= json.loads(done.stdout)["test"]["value"] <= -8
