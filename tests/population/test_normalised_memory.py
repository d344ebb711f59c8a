"""Normalisation under DQN, SAC, TD3 and DDPG, and sums of several rewards, against Stable-Baselines3.

The memory has what the task gave; networks see it by the present statistics. The programs run as plain Python.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from outside_runs import CARTPOLE, PENDULUM, arrays_of, collect_given, greedy_returns, trained
from population_helpers import make
from test_normalisation import _assert_equal, _statistics, _theirs
from test_outside import _equal, _segment
from test_outside_off_policy import ON, _trainer
from test_outside_off_policy import SMALL as OUTSIDE
from test_sb3_updates import (
    PAGES,
    REPLAY,
    _as_engine_has_it,
    _assert_same,
    _copy,
    _pair,
    _parameters,
    _train,
    _world,
)

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import Config, EnvironmentSpec, FrozenMap
from autorl.population import dqn, engine, minibatch, normalisation, off_policy, outside, rng, td3
from autorl.population.environments import ENVIRONMENTS
from autorl.population.export import to_sb3, vec_normalize
from autorl.population.kernels import kernel
from autorl.population.normalisation import begin_observed, normaliser_of
from autorl.population.outside import EpisodeMonitor, SeededEpisodes, Worlds
from autorl.trainers import load
from autorl.trainers.outside_environments import outside_environment

pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3")
torch = pytest.importorskip("torch", reason="compares with Stable-Baselines3")
pytestmark = pytest.mark.usefixtures("plain_python")
ALGORITHMS = ("dqn", "sac", "td3", "ddpg")
TASKS = {"DQN": "CartPole-v1", "SAC": "Pendulum-v1", "TD3": "Pendulum-v1", "DDPG": "Pendulum-v1"}
OPTIONS = {
    "defaults": {},
    "others": {"clip_obs": 0.8, "clip_reward": 0.3, "gamma": 0.7, "epsilon": 0.1},
    "observations": {"norm_reward": False},
    "rewards": {"norm_obs": False},
    "nothing": None,
}


def _memory_of_sb3(model, agent, hp):
    """Stable-Baselines3's memory with the transitions of the engine's."""
    from stable_baselines3.common import buffers

    rows = agent.replay.rows
    n_envs = int(hp.n_envs)
    length = len(rows) // n_envs
    several = hp.n_steps > 1
    # With a Python float the powers of gamma are of 32 bits.
    options = {"n_steps": int(hp.n_steps), "gamma": np.float64(hp.gamma)} if several else {}
    kind = buffers.NStepReplayBuffer if several else buffers.ReplayBuffer
    spaces = (model.observation_space, model.action_space)
    memory = kind(len(rows), *spaces, "cpu", n_envs, **options)
    assert memory.buffer_size == length
    table = rows.reshape(length, n_envs, -1)
    inputs = model.observation_space.shape[0]
    end = table.shape[2] - 2 - several
    memory.observations = table[..., :inputs]
    memory.next_observations = table[..., inputs : 2 * inputs]
    memory.actions = table[..., 2 * inputs : end]
    memory.rewards = table[..., end]
    terminated = table[..., end + 1]
    # Of single steps the engine keeps only what `_get_samples` makes of both.
    ended = table[..., end + 2] if several else terminated
    memory.dones = ended.copy()
    memory.timeouts = (ended > terminated).astype(float)
    written = int(agent.replay.counts[0]) // n_envs
    memory.pos = written % length
    memory.full = written >= length
    return memory


def _next_batch(page, state, agent, hp, noise):
    """Draw the engine's next minibatch, and the normal draws made for it."""
    member = state["member"]
    n = int(hp.batch_size)
    if page is dqn:
        dqn.sample_batch(member, agent, hp, 0.0)
        return
    update = member.counters[rng.UPDATE]
    member.counters[rng.UPDATE] += 1
    key = member.key[0]
    page.memory.sample_uniform(
        agent.replay, rng.bits(rng.stream(key, rng.REPLAY), update), agent.batch
    )
    seed = rng.bits(rng.stream(key, rng.UPDATE), update)
    streams = [seed] if page is td3 else [rng.stream(seed, 0), rng.stream(seed, 1)]
    for stream in streams:
        draws = [rng.normal(stream, r) for r in range(n)]
        noise.append(torch.tensor(draws, dtype=torch.float64)[:, None])


@pytest.mark.parametrize("n_steps", [1, 4])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", PAGES)
def test_updates_are_those_of_stable_baselines3(kind, options, n_steps, monkeypatch):
    """Its own memory normalises and sums the engine's transitions, its own `train` learns from them."""
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    if not hasattr(buffers, "NStepReplayBuffer"):
        pytest.skip("Stable-Baselines3 before 2.7 has no n-step memory")
    given = OPTIONS[options]
    if given is None and n_steps == 1:
        pytest.skip("is test_sb3_updates.py")
    normalize = None if given is None else FrozenMap(given)
    environment = replace(ENVIRONMENTS[TASKS[kind]], time_limit=13, normalize=normalize)
    page = PAGES[kind]
    config = {**REPLAY, "n_envs": 2, "n_steps": n_steps, "tau": 0.1}
    hp, state, model = _pair(kind, environment, config, monkeypatch)
    assert model.n_steps == n_steps
    noise: list[object] = []
    monkeypatch.setattr(
        "torch.distributions.normal._standard_normal", lambda *shape, **kwargs: noise.pop(0)
    )
    if page is td3:
        monkeypatch.setattr(
            "torch.Tensor.normal_", lambda self, mean, std: self.copy_(mean + std * noise.pop(0))
        )
    short = 0
    for _ in range(12):
        before = _copy(state)
        agent = page.make_agent(before, environment, hp)
        begin_observed(agent.observer, before["member"], _world(environment))
        for _ in range(int(hp.train_freq)):
            page.LOOP.step_environments(before["member"], agent, hp, _world(environment))
        _train(page, state, environment, hp, page.make_agent(state, environment, hp))
        if page is dqn:
            # Its target follows in `learn`, which is not called here: it gets the engine's.
            named = _as_engine_has_it(model, "dqn", state, environment, hp)
            part = "q_net_target."
            model.q_net_target.load_state_dict(
                {key[len(part) :]: named[key] for key in named if key.startswith(part)}
            )
        if before["member"].counts[0] <= hp.learning_starts:
            continue
        venv = None if normalize is None else vec_normalize(before["normaliser"], model)
        memory = _memory_of_sb3(model, agent, hp)
        batches = []
        for _ in range(3):
            _next_batch(page, before, agent, hp, noise)
            drawn = agent.batch.copy()
            with monkeypatch.context() as patch:
                patch.setattr("numpy.random.randint", lambda *a, d=drawn, **k: d % int(hp.n_envs))
                sample = memory._get_samples(drawn // int(hp.n_envs), env=venv)
            batches.append(
                type(sample)(*(part if part is None else part.double() for part in sample))
            )
            if n_steps > 1:
                short += int((sample.discounts > float(hp.gamma) ** n_steps + 1e-9).sum())
            _assert_sampled(agent, hp, batches[-1])
        model.replay_buffer = SimpleNamespace(
            sample=lambda *a, waiting=batches, **k: waiting.pop(0)
        )
        model.train(3, int(hp.batch_size))
        _assert_same(
            _as_engine_has_it(model, kind.lower(), state, environment, hp), _parameters(model)
        )
        assert not noise
    assert int(state["member"].counts[1]) >= 24
    assert n_steps == 1 or short > 20  # sums that ended before the fourth reward


def _assert_sampled(agent, hp, sample):
    """Check that networks get the minibatch that Stable-Baselines3's memory hands out."""
    inputs = agent.observations
    size = inputs.shape[1]
    n = len(agent.batch)
    column = agent.replay.rows.shape[1] - 2 - int(hp.n_steps > 1)
    minibatch.sum_rewards(agent, hp, column)
    np.testing.assert_allclose(agent.targets, sample.rewards[:, 0], rtol=1e-12)
    if sample.discounts is not None:
        np.testing.assert_allclose(agent.discounts, sample.discounts[:, 0], rtol=1e-12)
    for rows, first, expected in (
        (agent.batch, 0, sample.observations),
        (agent.ends, size, sample.next_observations),
    ):
        minibatch.take_rows(agent.replay, agent.observer, rows, first, inputs)
        assert np.array_equal(inputs[:n], expected)
    terminated = agent.replay.rows[agent.ends, column + 1]
    assert np.array_equal(terminated, sample.dones[:, 0])


@pytest.mark.parametrize("options", ["defaults", "others", "observations", "rewards"])
@pytest.mark.parametrize(
    ("name", "environment_id"),
    [("dqn", CARTPOLE), ("sac", PENDULUM), ("td3", "Outside/Tall-v0"), ("ddpg", PENDULUM)],
)
def test_steps_leave_the_memory_and_statistics_of_stable_baselines3(
    name, environment_id, options, monkeypatch
):
    """The same actions in `VecNormalize` and `DummyVecEnv`, collected by `collect_rollouts`."""
    from stable_baselines3.common.monitor import Monitor

    n_envs = 3
    given = FrozenMap(OPTIONS[options])
    environment = replace(outside_environment(EnvironmentSpec(environment_id)), normalize=given)
    config = {**OUTSIDE, "n_envs": n_envs, "train_freq": 50, "learning_starts": 1000}
    config |= {"gradient_steps": 0}
    algorithm, hp, state = make(name, 3, environment, np.float64, **config)
    worlds = Worlds(environment, state["member"], state["normaliser"])
    algorithm.bind_outside(state, environment, hp, worlds).advance(1)
    size = environment.observation_size
    rows = state["replay"].rows[:150].reshape(50, n_envs, -1)
    _, _, fresh = make(name, 3, environment, np.float64, **config)

    def made():
        seeded = SeededEpisodes(environment.make(), lambda: outside.next_seed(fresh["member"]))
        return Monitor(seeded)

    model = to_sb3(engine.find_algorithm(name), state, environment, hp)
    venv = _theirs([made] * n_envs, given, float(hp.gamma))
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
    clips = given.get("norm_obs", True) and float(given.get("clip_obs", 10.0)) < 10.0
    if not clips and environment_id != "Outside/Tall-v0":
        np.testing.assert_allclose(following[ended], rows[ended][:, size : 2 * size], **close)
    assert np.array_equal(memory.dones[:50] * (1 - memory.timeouts[:50]), rows[..., -1])
    _assert_equal(state["normaliser"], venv, 0.0)
    # What it acts on next.
    assert np.array_equal(worlds.observations, model._last_obs.reshape(n_envs, -1))
    worlds.close()


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_it_acts_on_normalised_observations(name):
    """The network's inputs are what the statistics make of the states, the memory has the states."""
    task = "CartPole-v1" if name == "dqn" else "Pendulum-v1"
    environment = replace(ENVIRONMENTS[task], normalize=FrozenMap())
    config = {**REPLAY, "n_envs": 3, "net_width": 4, "buffer_size": 300}
    _, hp, state = make(name, 3, environment, np.float64, **config)
    page = {"dqn": dqn, "td3": td3}.get(name) or PAGES["SAC"]
    agent = page.make_agent(state, environment, hp)
    inputs = agent.observations
    world = _world(environment)
    member = state["member"]
    begin_observed(agent.observer, member, world)
    for _ in range(30):
        page.LOOP.step_environments(member, agent, hp, world)
    seen = []

    def stop(member, agent, *rest):
        seen.append(inputs[:3].copy())
        raise StopIteration

    loop = off_policy.make_loop(page.__name__, kernel(stop), page.update_networks)
    with pytest.raises(StopIteration):
        loop.step_environments(member, agent, hp, world)
    raw = np.zeros((3, environment.observation_size))
    for index in range(3):
        world.observe(member.states[index], raw[index])
    mean, variance = state["normaliser"].of_observations
    expected = np.clip((raw - mean) / np.sqrt(variance + 1e-8), -10, 10).astype(np.float32)
    assert np.array_equal(seen[0], expected)
    assert not np.allclose(seen[0], raw)
    remembered = state["replay"].rows[87:90, raw.shape[1] : 2 * raw.shape[1]]
    assert np.array_equal(remembered, raw)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_cut_run_is_the_uncut_one(name, tmp_path):
    of_run = {
        "trainer": _trainer(name, n_steps=3),
        "spec": EnvironmentSpec(ON[name], n_envs=2, normalize=True),
    }
    whole = trained(_segment(tmp_path / "whole", evaluate_at=(72, 128), **of_run))
    of_first = {"until": 72, "evaluate_at": (72,), **of_run}
    first = trained(_segment(tmp_path / "first", **of_first))
    rest = {"parent": first.checkpoint, "start": 72, **of_run}
    second = trained(_segment(tmp_path / "second", **rest))
    assert not second.notes
    assert _equal(whole, second)
    assert whole.reports[1].metrics == second.reports[0].metrics
    arrays = arrays_of(second)
    assert {f"normaliser.{part}" for part in normalisation.Normaliser._fields} < arrays.keys()
    # Evaluation, twice in one and once in the other, left no trace: 2 first observations, 128 steps.
    assert arrays["normaliser.counts"] == pytest.approx([130, 128], abs=2e-4)
    fork = trained(_segment(tmp_path / "fork", fork=7, **rest))
    assert not _equal(fork, second)
    assert np.array_equal(arrays_of(fork)["normaliser.counts"], arrays["normaliser.counts"])
    assert _equal(fork, trained(_segment(tmp_path / "again", fork=7, **rest)))


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
        minibatch.sum_rewards(agent, hp, 7)
        learned.append(agent.targets.copy())
        statistics.append(state["normaliser"].of_returns.copy())
    assert np.array_equal(*statistics)
    np.testing.assert_allclose(learned[1], 3.0 * learned[0], rtol=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_exported_model_acts_through_its_vec_normalize(name, tmp_path):
    import stable_baselines3 as sb3
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    spec = EnvironmentSpec(ON[name], n_envs=2, normalize=FrozenMap(clip_obs=2.0))
    config = Config(learning_rate=3e-3, gamma=0.9)
    trainer_spec = _trainer(name, n_steps=2)
    segment = _segment(tmp_path / "a", spec=spec, config=config, trainer=trainer_spec)
    outcome = trained(segment)
    trainer = load(segment.trainer)
    exported = trainer.export_model(outcome.checkpoint, tmp_path / "model.zip")
    assert exported.beside == (tmp_path / "model.vecnormalize.pkl",)
    model = getattr(sb3, name.upper()).load(exported.path, device="cpu")
    assert (model.n_steps, model.gamma) == (2, 0.9)
    # After the last episode `DummyVecEnv` begins another.
    seeds = iter([*evaluation_seeds(3, "tuning", 128, 3), 0])

    def made():
        return SeededEpisodes(EpisodeMonitor(gymnasium.make(ON[name])), lambda: next(seeds))

    venv = VecNormalize.load(str(exported.beside[0]), DummyVecEnv([made]))
    arrays = arrays_of(outcome)
    for part, expected in _statistics(venv).items():
        assert np.array_equal(arrays[f"normaliser.{part}"], expected)
    assert (venv.clip_obs, venv.clip_reward, venv.gamma) == (2.0, 10.0, 0.9)
    venv.training = venv.norm_reward = False
    returns = greedy_returns(model, venv, 3)
    expected = outcome.reports[0].metrics["eval_return"]
    assert expected == pytest.approx(np.mean(returns), rel=1e-4)
    # It learns on, by the statistics it was trained with.
    seeds = iter(range(1000))
    training = VecNormalize.load(str(exported.beside[0]), DummyVecEnv([made] * 2))
    model.set_env(training)
    before = training.obs_rms.count
    model.learn(64, reset_num_timesteps=False)
    assert training.obs_rms.count > before
