"""Environments that are stepped together: Gymnasium's vectors and EnvPool's pools."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import partial

import gymnasium
import numpy as np
import outside_tasks
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit
from outside_runs import SMALL, arrays_of, compare_rollout, segment_in, trained
from population_helpers import make
from refusals import expect_error

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.population import ppo
from autorl.population.outside import VectorWorlds, next_seed, propagate
from autorl.testing.trainers import Case, TrainerConformance, metrics
from autorl.trainers import load
from autorl.trainers.outside_environments import vector_environment

try:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
except ImportError:
    pytest.skip("Gymnasium 1.0 has no modes of autoreset", allow_module_level=True)

N_ENVS = 3
needs_envpool = pytest.mark.skipif(
    importlib.util.find_spec("envpool") is None, reason="needs the extra envpool"
)


def task():
    return TimeLimit(CartPoleEnv(), outside_tasks.SHORT)


def _vector(mode, num_envs):
    return SyncVectorEnv([task] * num_envs, autoreset_mode=mode)


for _mode in AutoresetMode:
    gymnasium.register(f"Vector/{_mode.name}-v0", vector_entry_point=partial(_vector, _mode))
SAME_STEP = EnvironmentSpec("Vector/SAME_STEP-v0", n_envs=2, vec_env="gymnasium")
DISABLED = EnvironmentSpec("Vector/DISABLED-v0", n_envs=2, vec_env="gymnasium")


def _pool(environment_id, **kwargs):
    return EnvironmentSpec(environment_id, FrozenMap(kwargs), n_envs=2, vec_env="envpool")


def _collected(spec, n_envs=N_ENVS):
    environment = vector_environment(spec)
    config = {**SMALL, "n_steps": 50, "n_envs": n_envs}
    _, hp, state = make("ppo", 3, environment, np.float64, **config)
    agent = ppo.make_agent(state, environment, hp)
    worlds = VectorWorlds(environment, state["member"])
    ppo.collect_outside(state["member"], agent, hp, worlds, (ppo.choose.py_func, propagate.py_func))
    worlds.close()
    return environment, hp, state, agent


@pytest.mark.usefixtures("plain_python")
@pytest.mark.parametrize("spec", [SAME_STEP, DISABLED], ids=lambda spec: spec.id)
def test_a_rollout_is_that_of_stable_baselines3(spec, monkeypatch):
    pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3")
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    environment, hp, state, agent = _collected(spec)
    _, _, fresh = make("ppo", 3, environment, np.float64, **{**SMALL, "n_envs": N_ENVS})
    venv = DummyVecEnv([lambda: Monitor(task())] * N_ENVS)
    # Each is seeded once, as in a vector.
    venv._seeds = [next_seed(fresh["member"]) for _ in range(N_ENVS)]
    compare_rollout(environment, hp, state, agent, venv, monkeypatch)


@needs_envpool
@pytest.mark.usefixtures("plain_python")
@pytest.mark.parametrize("environment_id", ["LunarLander-v3", "CartPole-v1"])
def test_a_rollout_is_what_the_pool_gives_less_its_rows_that_are_no_transition(environment_id):
    import envpool

    spec = _pool(environment_id, max_episode_steps=12)
    environment, hp, _, agent = _collected(spec)
    steps = int(hp.n_steps)
    rollout = agent.rollout
    actions = rollout.actions.reshape(steps, N_ENVS).astype(np.int32)
    observations = rollout.observations.reshape(steps, N_ENVS, -1)
    ends = rollout.dones.reshape(steps, N_ENVS) == 1.0
    _, _, fresh = make("ppo", 3, environment, np.float64, **{**SMALL, "n_envs": N_ENVS})
    seeds = [next_seed(fresh["member"]) for _ in range(N_ENVS)]
    options = {"env_type": "gymnasium", "num_threads": 2, "max_episode_steps": 12}
    for slot in range(N_ENVS):
        pool = envpool.make(environment_id, num_envs=1, seed=[seeds[slot]], **options)
        observed = pool.reset()[0][0]
        for step in range(steps):
            assert np.array_equal(observed, observations[step, slot].astype(observed.dtype))
            following, _, terminated, truncated, _ = pool.step(actions[step, slot : slot + 1])
            assert (terminated | truncated)[0] == ends[step, slot]
            if ends[step, slot]:  # the step after begins an episode, whatever the action
                following = pool.step(actions[step, slot : slot + 1])[0]
            observed = following[0]
        pool.close()
    assert ends.sum() >= 2 * N_ENVS


class InAVector(TrainerConformance):
    def test_n_plus_n_steps_equal_2n(self, runner):
        """But for episodes: the second half begins new ones and says so."""
        second = runner.second_half()
        assert second.notes == ("environment state not restorable: new episodes at step 128",)
        assert second.reached == runner.run("whole").reached
        assert metrics(runner.second_half("again")) == metrics(second)


_PPO = FrozenMap({"n_steps": 32, "batch_size": 32, "n_epochs": 2, "net_width": 16})
_RATES = (Config(learning_rate=1e-2, gamma=0.99), Config(learning_rate=1e-3, gamma=0.9))
_DQN = FrozenMap({"learning_starts": 16, "net_width": 16, "buffer_size": 100, "batch_size": 8})


class TestPPOInAVector(InAVector):
    case = Case(TrainerSpec("population/ppo", _PPO), SAME_STEP, _RATES, fixed=("net_width", 8))


class TestDQNInAVector(InAVector):
    case = Case(TrainerSpec("population/dqn", _DQN), DISABLED, _RATES, fixed=("net_width", 8))


@needs_envpool
class TestPPOInAPool(InAVector):
    case = Case(
        TrainerSpec("population/ppo", _PPO), _pool("LunarLander-v3"), _RATES, fixed=("net_width", 8)
    )


@needs_envpool
class TestSACInAPool(InAVector):
    case = Case(
        TrainerSpec("population/sac", _DQN),
        _pool("LunarLanderContinuous-v3"),
        # From slow to fast: the greedy actions of few fast steps are at their bounds already.
        (Config(learning_rate=1e-4), Config(learning_rate=1e-2)),
        fixed=("net_width", 8),
    )


@needs_envpool
@pytest.mark.usefixtures("plain_python")
def test_threads_of_a_pool_change_nothing(tmp_path):
    runs = []
    for threads in (1, 2):
        spec = _pool("LunarLander-v3", num_threads=threads)
        runs.append(trained(segment_in(tmp_path / str(threads), spec)))
    assert runs[0].reports[0].metrics == runs[1].reports[0].metrics
    left, right = map(arrays_of, runs)
    # But the description, which has the number of threads.
    assert all(np.array_equal(left[name], right[name]) for name in left if name != "meta")


@pytest.mark.usefixtures("plain_python")
def test_evaluation_plays_the_first_episode_of_each_seed(tmp_path):
    spec = EnvironmentSpec("Vector/SAME_STEP-v0", n_envs=2, vec_env="gymnasium")
    outcome = trained(segment_in(tmp_path / "a", spec, episodes=5))
    metrics = outcome.reports[0].metrics
    # A step of CartPole has reward 1.
    assert metrics["eval_return"] == metrics["eval_length"] <= outside_tasks.SHORT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"id": "Vector/NEXT_STEP-v0"},
            "the vector of 'Vector/NEXT_STEP-v0' begins an episode in the step after",
        ),
        ({"id": "Outside/CartPole-v1"}, "Gymnasium has no vector of 'Outside/CartPole-v1'"),
        ({"id": "Nowhere-v0"}, "Gymnasium has no vector of 'Nowhere-v0'"),
        ({"id": "no_module:X-v0"}, "the module of 'no_module:X-v0' cannot be imported"),
        (
            {"wrappers": ("gymnasium.wrappers:ClipAction",)},
            "wrappers go around single environments, vec_env: gymnasium has none",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(changes, message):
    arguments = {"id": "Vector/SAME_STEP-v0", "vec_env": "gymnasium", **changes}
    expect_error(re.escape(message), vector_environment, EnvironmentSpec(**arguments))


@needs_envpool
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_pool("LunarLandr-v3"), "EnvPool has no environment 'LunarLandr-v3'"),
        (_pool("CartPole-v1", num_envs=4), "num_envs is set by the trainer"),
        (_pool("CartPole-v1", gravitas=4), "EnvPool does not make 'CartPole-v1' of these"),
        (_pool("Pong-v5"), "shows images"),
        (_pool("MiniGrid-Empty-5x5-v0"), "take Box observations"),
    ],
)
def test_what_envpool_does_not_have_is_one_line(spec, message):
    expect_error(re.escape(message), vector_environment, spec)


def test_without_envpool_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    expect_error(r"pip install .autorl\[envpool\]", vector_environment, _pool("CartPole-v1"))


@pytest.mark.usefixtures("plain_python")
def test_a_checkpoint_goes_on_only_in_the_same_vector(tmp_path):
    first = trained(segment_in(tmp_path / "first", SAME_STEP, until=64, evaluate_at=(64,)))
    other = EnvironmentSpec("Vector/SAME_STEP-v0", n_envs=2, vec_env="dummy")
    rest = {"parent": first.checkpoint, "start": 64}
    with pytest.raises(InputError, match=r"vec_env gymnasium|no environment"):
        trained(segment_in(tmp_path / "second", other, **rest))


def test_a_native_environment_is_stepped_by_no_vector():
    trainer = load(TrainerSpec("population/ppo"))
    with pytest.raises(InputError, match="CartPole-v1 is native: the compiled program steps it"):
        trainer.check(_pool("CartPole-v1"), [])


def test_stable_baselines3_has_no_such_vectors():
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    with pytest.raises(InputError, match="Stable-Baselines3 has dummy and subproc, got envpool"):
        load(TrainerSpec("sb3/ppo")).check(_pool("CartPole-v1"), [])
