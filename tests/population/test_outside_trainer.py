"""Environments outside the compiled program, by the compiled programs."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import outside_tasks  # noqa: F401 - registers the environments
import pytest
from population_helpers import make

from autorl.executors.worker import ONE_THREAD
from autorl.population import ppo
from autorl.population.outside import Worlds
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers.outside_environments import outside_environment
from autorl.types import Config, EnvironmentSpec, FrozenMap, TrainerSpec

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


@pytest.mark.parametrize("environment_id", ["Outside/CartPole-v1", "Outside/Pendulum-v1"])
def test_the_programs_do_what_the_page_says_in_plain_python(environment_id):
    """One rollout and its updates: the rest of a run is Python in both cases."""
    environment = outside_environment(EnvironmentSpec(environment_id))
    config = {**_PPO, "n_envs": 3, "clip_range_vf": 0.2, "ent_coef": 0.01, "learning_rate": 1e-2}
    members = []
    for programs in ("compiled", "plain"):
        _, hp, state = make("ppo", 5, environment, np.float32, **config)
        member = state["member"]
        worlds = Worlds(environment, member)
        if programs == "compiled":
            ppo.bind_outside(state, environment, hp, worlds).advance(1)
        else:
            agent = ppo.make_agent(member.parameters, environment, hp)
            plain = (ppo.choose.py_func, ppo.propagate.py_func)
            with np.errstate(over="ignore"):
                ppo.collect_outside(member, agent, hp, worlds, plain)
                ppo.learn.py_func(member, agent, hp)
        worlds.close()
        members.append(member)
    compiled, plain = members
    assert np.array_equal(compiled.counts, plain.counts)
    assert compiled.counts[0] == 3 * 32
    assert np.array_equal(compiled.counters, plain.counters)
    np.testing.assert_allclose(compiled.parameters, plain.parameters, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(compiled.states, plain.states, rtol=1e-3, atol=1e-3)


def test_what_is_preloaded_starts_no_thread_and_spares_numba_scipy():
    """A fork server imports it: a process of several threads cannot be forked safely."""
    code = """
import importlib, os, sys
from autorl.trainers import load
from autorl.types import TrainerSpec

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
