"""Environments outside the compiled program, by the compiled programs."""

from __future__ import annotations

import os
import subprocess
import sys

import outside_tasks  # noqa: F401 - registers the environments

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, TrainerSpec
from autorl.executors.worker import ONE_THREAD
from autorl.testing.trainers import Case, TrainerConformance

_PPO = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_width": 16}
CARTPOLE = "outside_tasks:Outside/CartPole-v1"


class TestPPOOutside(TrainerConformance):
    case = Case(
        TrainerSpec("population/ppo", FrozenMap(_PPO)),
        EnvironmentSpec(CARTPOLE, n_envs=2),
        configs=(Config(learning_rate=1e-2, gamma=0.99), Config(learning_rate=1e-3, gamma=0.9)),
        fixed=("net_width", 8),
    )


class TestA2COutside(TrainerConformance):
    case = Case(
        TrainerSpec("population/a2c", FrozenMap({"n_steps": 8, "net_width": 16})),
        EnvironmentSpec("outside_tasks:Outside/Pendulum-v1", n_envs=2, normalize=True),
        configs=(
            Config(learning_rate=1e-2, rms_prop_eps=1e-5),
            Config(learning_rate=1e-3, rms_prop_eps=1e-4),
        ),
        fixed=("use_rms_prop", False),
    )


def test_what_is_preloaded_starts_no_thread_and_spares_numba_scipy():
    """A fork server imports it: a process of several threads cannot be forked safely."""
    code = """
import importlib, os, sys
from autorl.trainers import load
from autorl.core.types import TrainerSpec

for module in load(TrainerSpec("population/ppo")).preload:
    importlib.import_module(module)
threads = len(os.listdir("/proc/self/task"))
before = set(sys.modules)
from numba import njit
njit(lambda x: x + 1.0)(1.0)
print(threads, sum(name.startswith("scipy") for name in set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **ONE_THREAD},
    )
    assert done.stdout.strip() == "1 0"
