"""Normalisation under DQN, SAC, TD3 and DDPG, and sums of several rewards, against Stable-Baselines3.

The memory has what the task gave; networks see it by the present statistics. The programs run as plain Python.
"""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from outside_runs import CARTPOLE, PENDULUM, arrays_of, collect_given, greedy_returns, trained
from outside_runs import NORMALISE_OPTIONS as OPTIONS
from population_helpers import make
from test_normalisation import _assert_equal, _statistics, _theirs
from test_outside import _segment
from test_outside_off_policy import ON, _trainer
from test_outside_off_policy import SMALL as OUTSIDE
from test_sb3_updates import PAGES, REPLAY, _train

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import Config, EnvironmentSpec, FrozenMap
from autorl.population import engine, outside
from autorl.population.environments import ENVIRONMENTS
from autorl.population.export import to_sb3
from autorl.population.normalisation import normaliser_of
from autorl.population.outside import EpisodeMonitor, SeededEpisodes, Worlds
from autorl.population.replay import begin_targets
from autorl.trainers import load
from autorl.trainers.outside_environments import outside_environment

pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3")
torch = pytest.importorskip("torch", reason="compares with Stable-Baselines3")
pytestmark = pytest.mark.usefixtures("plain_python")


@pytest.mark.parametrize("options", [None, *OPTIONS])
@pytest.mark.parametrize(
    ("name", "environment_id"),
    [("dqn", CARTPOLE), ("sac", PENDULUM), ("td3", "Outside/Tall-v0"), ("ddpg", PENDULUM)],
)
def test_steps_leave_the_memory_and_statistics_of_stable_baselines3(
    name, environment_id, options, monkeypatch
):
    """The same actions in `VecNormalize` and `DummyVecEnv`, collected by `collect_rollouts`."""
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    n_envs = 3
    given = None if options is None else FrozenMap(OPTIONS[options])
    environment = replace(outside_environment(EnvironmentSpec(environment_id)), normalize=given)
    config = {**OUTSIDE, "n_envs": n_envs, "train_freq": 50, "learning_starts": 1000}
    config |= {"gradient_steps": 0}
    algorithm, hp, state = make(name, 3, environment, np.float64, **config)
    member = state["member"]
    worlds = Worlds(environment, member, state.get("normaliser"))
    algorithm.bind(state, environment, hp, worlds).advance(1)
    size = environment.observation_size
    rows = state["replay"].rows[:150].reshape(50, n_envs, -1)
    _, _, fresh = make(name, 3, environment, np.float64, **config)

    def made():
        seeded = SeededEpisodes(environment.make(), lambda: outside.next_seed(fresh["member"]))
        return Monitor(seeded)

    model = to_sb3(engine.find_algorithm(name), state, environment, hp)
    venv = (
        DummyVecEnv([made] * n_envs)
        if given is None
        else _theirs([made] * n_envs, given, float(hp.gamma))
    )
    model.set_env(venv)
    actions = rows[..., 2 * size : 2 * size + environment.action_size]
    memory = collect_given(model, actions, monkeypatch)
    ended = memory.dones[:50].astype(bool)
    assert ended.sum() >= 6
    close = {"rtol": 1e-5, "atol": 1e-5}
    for remembered, values in (
        (memory.observations, rows[..., :size]),
        (memory.actions, rows[..., 2 * size : -2]),
        (memory.rewards, rows[..., -2]),
    ):
        np.testing.assert_allclose(remembered[:50].reshape(values.shape), values, **close)
    following = memory.next_observations[:50].reshape(50, n_envs, -1)
    np.testing.assert_allclose(following[~ended], rows[~ended][:, size : 2 * size], **close)
    # Last observations have been normalised there, and back: what was clipped is lost, and what is
    # left is cut to whole numbers where the memory has these. Here they are the task's.
    if given is None or (options != "others" and environment_id != "Outside/Tall-v0"):
        np.testing.assert_allclose(following[ended], rows[ended][:, size : 2 * size], **close)
    assert np.array_equal(memory.dones[:50] * (1 - memory.timeouts[:50]), rows[..., -1])
    assert (rows[..., -1].sum() > 0) == (name == "dqn")
    returned = [info["r"] for info in model.ep_info_buffer]
    assert member.recent[: member.counts[2]] == pytest.approx(returned, abs=1e-5)
    if given is not None:
        _assert_equal(state["normaliser"], venv, 0.0)
    # What it acts on next.
    assert np.array_equal(worlds.observations, model._last_obs.reshape(n_envs, -1))
    worlds.close()


def test_rewards_are_scaled_beside_the_statistics():
    """`reward_scale` of SAC multiplies what is learned from, not what the statistics have."""
    environment = replace(ENVIRONMENTS["Pendulum-v1"], normalize=FrozenMap(clip_reward=100.0))
    learned, statistics = [], []
    for scale in (1.0, 3.0):
        config = {**REPLAY, "n_envs": 2, "learning_starts": 1000, "reward_scale": scale}
        _, hp, state = make("sac", 3, environment, np.float64, net_width=4, **config)
        page = PAGES["SAC"]
        normaliser_of(state, environment, float(hp.gamma))
        agent = page.make_agent(state, environment, hp)
        _train(page, state, environment, hp, agent)
        agent.batch[:] = np.arange(len(agent.batch)) % 10
        begin_targets(agent, hp)
        learned.append(agent.targets.copy())
        statistics.append(state["normaliser"].of_returns.copy())
    assert np.array_equal(*statistics)
    np.testing.assert_allclose(learned[1], 3.0 * learned[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "task"), [("ppo", CARTPOLE), ("ppo", "Outside/Tall-v0"), *ON.items()]
)
def test_an_exported_model_acts_through_its_vec_normalize(name, task, tmp_path):
    import stable_baselines3 as sb3
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    spec = EnvironmentSpec(task, n_envs=2, normalize=FrozenMap(clip_obs=2.0))
    config = Config(learning_rate=3e-3, gamma=0.9)
    given = {} if name == "ppo" else {"trainer": _trainer(name, n_steps=2)}
    segment = _segment(tmp_path / "a", spec=spec, config=config, **given)
    outcome = trained(segment)
    trainer = load(segment.trainer)
    exported = trainer.export_model(outcome.checkpoint, tmp_path / "model.zip")
    assert exported.beside == (tmp_path / "model.vecnormalize.pkl",)
    model = getattr(sb3, name.upper()).load(exported.path, device="cpu")
    assert (model.n_steps, model.gamma) == (16 if name == "ppo" else 2, 0.9)
    notes = " ".join(exported.notes)
    assert "VecNormalize.load" in notes
    assert ("and an empty replay memory" in notes) == (name != "ppo")
    # After the last episode `DummyVecEnv` begins another.
    seeds = iter([*evaluation_seeds(3, "tuning", 128, 3), 0])

    def made():
        return SeededEpisodes(EpisodeMonitor(gymnasium.make(task)), lambda: next(seeds))

    venv = VecNormalize.load(str(exported.beside[0]), DummyVecEnv([made]))
    arrays = arrays_of(outcome)
    for part, expected in _statistics(venv).items():
        assert np.array_equal(arrays[f"normaliser.{part}"], expected)
    assert (venv.clip_obs, venv.clip_reward, venv.gamma) == (2.0, 10.0, 0.9)
    venv.training = venv.norm_reward = False
    returns = greedy_returns(model, venv, 3)
    expected = outcome.reports[0].metrics["eval_return"]
    assert expected == pytest.approx(np.mean(returns), rel=1e-4)
    loaded = trainer.load_model(outcome.checkpoint).get_vec_normalize_env()
    assert np.array_equal(loaded.obs_rms.mean, venv.obs_rms.mean)
    assert not loaded.training
    # It learns on, by the statistics it was trained with.
    seeds = iter(range(1000))
    training = VecNormalize.load(str(exported.beside[0]), DummyVecEnv([made] * 2))
    model.set_env(training)
    before = training.obs_rms.count
    model.learn(64, reset_num_timesteps=False)
    assert training.obs_rms.count > before
