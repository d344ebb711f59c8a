"""Running normalisation against Stable-Baselines3's `VecNormalize`. Programs run as plain Python, the compiled one last."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import outside_tasks
import pytest
from outside_runs import CARTPOLE, SMALL, arrays_of, segment_in, trained
from outside_runs import NORMALISE_OPTIONS as OPTIONS
from population_helpers import make

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.population import normalisation, outside, ppo
from autorl.population.environments import ENVIRONMENTS
from autorl.population.members import World
from autorl.population.outside import EpisodeMonitor, SeededEpisodes, Worlds
from autorl.trainers import load
from autorl.trainers.outside_environments import outside_environment


class Single(gymnasium.ObservationWrapper):
    """Observations in single precision, as the engine's networks take them."""

    def __init__(self, env):
        super().__init__(env)
        shape = env.observation_space.shape
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)

    def observation(self, observation):
        return observation.astype(np.float32)


def _theirs(envs, options, gamma):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    return VecNormalize(DummyVecEnv(envs), **{"gamma": gamma, **dict(options)})


def _statistics(venv):
    observed = venv.obs_rms if venv.norm_obs else None
    running = [(observed, "of_observations"), (venv.ret_rms, "of_returns")]
    moments = {
        name: np.stack([np.ravel(item.mean), np.ravel(item.var)]) for item, name in running if item
    }
    counts = [1e-4 if observed is None else observed.count, venv.ret_rms.count]
    return {**moments, "counts": np.array(counts)}


def _assert_equal(normaliser, venv, tolerance):
    for name, expected in _statistics(venv).items():
        actual = getattr(normaliser, name)
        np.testing.assert_allclose(actual, expected, tolerance, tolerance, err_msg=name)
    np.testing.assert_allclose(normaliser.returns[:, 0], venv.returns, tolerance)


def _actions(environment, n_envs, steps):
    generator = np.random.default_rng(0)
    if environment.n_actions:
        return generator.integers(environment.n_actions, size=(steps, n_envs, 1)).astype(float)
    return generator.normal(size=(steps, n_envs, environment.action_size), scale=2.0)


@pytest.mark.parametrize(
    ("n_envs", "tolerance"),
    [(1, 0.0), (3, 0.0), (12, 1e-5)],  # of 8 and more rows NumPy adds in another order
)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_every_step_of_a_native_task_is_that_of_vec_normalize(
    name, options, n_envs, tolerance, plain_python, monkeypatch
):
    pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3")
    monkeypatch.setattr(outside, "_SEED_BITS", 64)  # the whole key of an episode
    given = FrozenMap(OPTIONS[options])
    native = replace(ENVIRONMENTS[name], time_limit=outside_tasks.SHORT, normalize=given)
    config = {**SMALL, "n_envs": n_envs, "n_steps": 1}
    _, hp, state = make("ppo", 3, native, np.float32, **config)
    _, _, fresh = make("ppo", 3, native, np.float32, **{**SMALL, "n_envs": n_envs})
    member = state["member"]
    limits = (native.time_limit, native.n_actions, native.bounds)
    world = World(native.reset, native.step, native.observe, *limits)
    normaliser = normalisation.normaliser_of(state, native, float(hp.gamma))
    agent = ppo.make_agent(state, native, hp)
    seen: list[np.ndarray] = []
    monkeypatch.setattr(ppo, "act", lambda member, agent, t: None)
    monkeypatch.setattr(ppo, "forward", lambda net, rows, n: seen.append(rows[:n].copy()))

    def made():
        env = Single(EpisodeMonitor(gymnasium.make("Outside/Native-v0", name=name)))
        return SeededEpisodes(env, lambda: outside.next_seed(fresh["member"]))

    venv = _theirs([made] * n_envs, given, float(hp.gamma))
    near = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    normalisation.begin_observed(normaliser, member, world, agent.inputs)
    normalisation.look(normaliser, member, world, agent.inputs)
    near(agent.inputs[:n_envs], venv.reset())
    _assert_equal(normaliser, venv, tolerance)
    truncations = 0
    for actions in _actions(native, n_envs, 50):
        seen.clear()
        agent.rollout.actions[:] = actions
        ppo.collect_rollout(member, agent, hp, world)
        *finals, observed = seen
        applied = actions.clip(*native.bounds)
        if native.n_actions:
            applied = actions[:, 0].astype(int)
        observations, their_rewards, dones, infos = venv.step(applied)
        near(observed, observations)
        near(agent.rollout.rewards, their_rewards)
        assert np.array_equal(agent.rollout.dones, dones)
        for index, final in zip(agent.cut, *finals[:1] or [()], strict=False):
            near(final, infos[index]["terminal_observation"])
            truncations += 1
        _assert_equal(normaliser, venv, tolerance)
    assert truncations > 0


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("environment_id", [CARTPOLE, "Outside/Pendulum-v1", "Outside/Tall-v0"])
def test_every_step_outside_is_that_of_vec_normalize(environment_id, options, plain_python):
    """To the bit; observations of `Tall-v0` are whole numbers (3, 1)."""
    pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3")
    given = FrozenMap(OPTIONS[options])
    environment = replace(outside_environment(EnvironmentSpec(environment_id)), normalize=given)
    _, hp, state = make("ppo", 3, environment, **{**SMALL, "n_envs": 3})
    _, _, fresh = make("ppo", 3, environment, **{**SMALL, "n_envs": 3})
    normaliser = normalisation.normaliser_of(state, environment, float(hp.gamma))
    worlds = Worlds(environment, state["member"], normaliser)

    def made():
        return SeededEpisodes(environment.make(), lambda: outside.next_seed(fresh["member"]))

    venv = _theirs([made] * 3, given, float(hp.gamma))
    worlds.begin()
    assert np.array_equal(worlds.observations, venv.reset().reshape(3, -1))
    ends = 0
    for actions in _actions(environment, 3, 50):
        step = worlds.step(actions)
        observations, rewards, dones, infos = venv.step(environment.applied(actions))
        assert np.array_equal(worlds.observations, observations.reshape(3, -1))
        assert np.array_equal(step.rewards, rewards)
        finals = [np.ravel(infos[index]["terminal_observation"]) for index in step.truncated]
        assert np.array_equal(step.finals, np.reshape(finals, step.finals.shape))
        _assert_equal(normaliser, venv, 0.0)
        ends += dones.sum()
    assert ends >= 6


def test_another_number_of_environments_and_gamma(tmp_path, plain_python):
    """Statistics stay, discounted returns begin anew, rewards are discounted by the agent's gamma."""
    spec = EnvironmentSpec(CARTPOLE, n_envs=2, normalize=True)
    first = trained(segment_in(tmp_path / "first", spec, until=64, evaluate_at=()))
    assert arrays_of(first)["normaliser.settings"][normalisation.GAMMA] == 0.99
    config = Config(learning_rate=1e-2, n_envs=4, gamma=0.5)
    rest = {"parent": first.checkpoint, "start": 64, "config": config}
    outcome = trained(segment_in(tmp_path / "second", spec, **rest))
    assert outcome.notes == ("n_envs changed: new episodes at step 64",)
    second = arrays_of(outcome)
    assert second["normaliser.settings"][normalisation.GAMMA] == 0.5
    assert second["normaliser.returns"].shape == (4, 1)
    # Two resets of 2 and of 4, and 64 steps for each of both segments.
    assert second["normaliser.counts"] == pytest.approx([2 + 64 + 4 + 64, 128], abs=2e-4)
    own = replace(spec, normalize=FrozenMap(gamma=0.9))
    third = trained(segment_in(tmp_path / "third", own, until=64, evaluate_at=()))
    assert arrays_of(third)["normaliser.settings"][normalisation.GAMMA] == 0.9


def test_evaluation_reads_statistics_and_sums_rewards_of_the_task(tmp_path, plain_python):
    spec = EnvironmentSpec(CARTPOLE, n_envs=2, normalize=True)
    some = trained(segment_in(tmp_path / "some", spec))
    many = trained(segment_in(tmp_path / "many", spec, evaluate_at=(32, 64, 96, 128), episodes=20))
    a, b = arrays_of(some), arrays_of(many)
    assert all(np.array_equal(a[name], b[name]) for name in a)
    metrics = many.reports[-1].metrics
    assert metrics["eval_return"] == metrics["eval_length"]
    assert 9 <= metrics["train_return"] <= outside_tasks.SHORT


@pytest.mark.parametrize(
    ("normalize", "message"),
    [
        ({"norm_observations": True}, "unknown argument of VecNormalize"),
        ({"norm_obs_keys": ["a"]}, "unknown argument of VecNormalize"),
        ({"clip_obs": -1.0}, "environment.normalize.clip_obs"),
        ({"norm_obs": 1}, "expected true or false"),
        ({"gamma": 1.5}, "environment.normalize.gamma"),
    ],
)
def test_wrong_arguments_are_one_line(normalize, message):
    spec = EnvironmentSpec("CartPole-v1", normalize=FrozenMap(normalize))
    with pytest.raises(InputError, match=message) as error:
        load(TrainerSpec("population/a2c")).check(spec, ())
    assert "\n" not in str(error.value)


def test_a_checkpoint_of_another_kind_of_training_is_refused(tmp_path, plain_python):
    spec = EnvironmentSpec(CARTPOLE, n_envs=2)
    for number, (before, after) in enumerate(((False, True), (True, False))):
        folder = tmp_path / str(number)
        parent = trained(segment_in(folder / "a", replace(spec, normalize=before), until=64))
        rest = {"parent": parent.checkpoint, "start": parent.reached}
        with pytest.raises(InputError, match=r"environment\.normalize: the checkpoint is of"):
            trained(segment_in(folder / "b", replace(spec, normalize=after), **rest))


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_the_program_rounds_as_plain_python_does(real):
    """To the bit, whatever the compiler may do elsewhere."""
    generator = np.random.default_rng(1)
    environment = replace(ENVIRONMENTS["Pendulum-v1"], normalize=FrozenMap())
    pair = [normalisation.normaliser_part(environment, 5, 0.99)["normaliser"] for _ in range(2)]
    programs = (normalisation.normalised_step, normalisation.normalised_step.py_func)
    for _ in range(200):
        rows = generator.normal(7.0, 3.0, (5, 3)).astype(real)
        rewards = generator.normal(-100.0, 30.0, 5)
        ended = (generator.random(5) < 0.1).astype(float)
        finals = generator.normal(size=(2, 3))
        results = []
        for program, normaliser in zip(programs, pair, strict=True):
            copies = [array.copy() for array in (rows, rewards, ended, finals)]
            program(normaliser, *copies)
            results.append([*copies, *normaliser])
        assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
