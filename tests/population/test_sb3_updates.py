"""Update by update, the engine does what Stable-Baselines3's own `train` does: same weights, same data.

The engine collects the experience; Stable-Baselines3 gets it through a stand-in for its buffer, minibatch by minibatch
in the engine's order, and its own code trains on it; neither is ever put back to the other's state.
The losses, the clipping, the optimizers and their moments are therefore compared too. Last, the
compiled float32 program over many updates.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from outside_runs import NORMALISE_OPTIONS as OPTIONS
from population_helpers import TWO, make

from autorl.core.types import FrozenMap
from autorl.population import a2c, actor_critic, ddpg, dqn, engine, export, ppo, rng, sac, td3
from autorl.population.environments import ENVIRONMENTS as NATIVE
from autorl.population.members import UPDATES, World
from autorl.population.normalisation import begin_observed
from autorl.population.replay import begin_targets, sample_uniform, take_rows
from autorl.population.sb3_arguments import sb3_arguments

stable_baselines3 = pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")
buffers = pytest.importorskip("stable_baselines3.common.buffers")
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered"),  # 64-bit hashing in plain Python
    pytest.mark.filterwarnings("ignore:You have specified a mini-batch size"),
]

ITERATIONS = 6
ENVIRONMENTS = {**NATIVE, "Two": replace(TWO, id="Two")}
NET = {"net_width": 9, "net_depth": 2}
_A2C = {
    "n_epochs": 1,
    "batch_size": 15,
    "clip_range": math.inf,
    "normalize_advantage": False,
    "optimizer": "rmsprop",
}
_A2C |= {"n_envs": 3, "n_steps": 5, "learning_rate": 7e-4, "gae_lambda": 1.0}
ROLLOUT = {"n_envs": 3, "n_steps": 12, "batch_size": 10, "n_epochs": 2, "learning_rate": 1e-2}
REPLAY = {
    "learning_starts": 20,
    "buffer_size": 60,
    "train_freq": 5,
    "gradient_steps": 3,
    "batch_size": 16,
}
REPLAY |= {"learning_rate": 1e-2, "gamma": 0.9}
# name: (SB3's class, environment, setting)
ON_POLICY = {
    "ppo": ("PPO", "CartPole-v1", ROLLOUT),
    "ppo-others": (
        "PPO",
        "CartPole-v1",
        {
            **ROLLOUT,
            "ent_coef": 0.05,
            "vf_coef": 0.3,
            "max_grad_norm": 0.1,
            "clip_range": 0.02,
            "clip_range_vf": 0.1,
        }
        | {"gamma": 0.9, "gae_lambda": 0.7, "normalize_advantage": False, "activation": "relu"},
    ),
    "ppo-two-actions": ("PPO", "Two", {**ROLLOUT, "net_depth": 1, "batch_size": 36}),
    "ppo-continuous": ("PPO", "Pendulum-v1", {**ROLLOUT, "ent_coef": 0.01}),
    "a2c": ("A2C", "CartPole-v1", _A2C),
    "a2c-continuous": ("A2C", "Pendulum-v1", {**_A2C, "ent_coef": 0.01, "vf_coef": 0.25}),
}
_STOPS = {**ROLLOUT, "n_epochs": 4, "batch_size": 6, "learning_rate": 5e-3}
ON_POLICY |= {
    f"{task}-stops-at-{limit}": ("PPO", task, {**_STOPS, "target_kl": limit})
    for task in ("CartPole-v1", "Pendulum-v1")
    for limit in (0.0005, 0.002, 0.01)
}
OFF_POLICY = {
    "dqn": ("DQN", "CartPole-v1", REPLAY),
    "dqn-others": (
        "DQN",
        "Acrobot-v1",
        {**REPLAY, "max_grad_norm": 0.05, "activation": "tanh", "gradient_steps": -1},
    ),
    "sac": ("SAC", "Pendulum-v1", {**REPLAY, "tau": 0.1}),
    "sac-others": (
        "SAC",
        "Pendulum-v1",
        {**REPLAY, "ent_coef": 0.2, "tau": 0.3, "target_update_interval": 2, "activation": "tanh"},
    ),
    "td3": ("TD3", "Pendulum-v1", {**REPLAY, "tau": 0.1}),
    "td3-others": (
        "TD3",
        "Pendulum-v1",
        {
            **REPLAY,
            "policy_delay": 3,
            "gradient_steps": -1,
            "target_policy_noise": 0.6,
            "target_noise_clip": 0.3,
        }
        | {"activation": "tanh", "tau": 0.3, "noise_std": 0.2, "optimizer_eps": 1e-6},
    ),
    "td3-one-critic": ("TD3", "MountainCarContinuous-v0", {**REPLAY, "n_critics": 1}),
    "td3-default-network": (
        "TD3",
        "Pendulum-v1",
        {**REPLAY, "net_width": "400-300", "learning_rate": 1e-3},
    ),
    "ddpg": ("DDPG", "Pendulum-v1", {**REPLAY, "tau": 0.1}),
    "ddpg-others": (
        "DDPG",
        "MountainCarContinuous-v0",
        {**REPLAY, "activation": "tanh", "noise_type": "ornstein-uhlenbeck", "noise_std": 0.5},
    ),
    "sac-two-actions": ("SAC", "Two", {**REPLAY, "net_depth": 3, "net_width": 5, "batch_size": 1}),
    "td3-two-actions": ("TD3", "Two", {**REPLAY, "net_depth": 1, "batch_size": 1}),
    "sac-entropy": ("SAC", "Pendulum-v1", {**REPLAY, "target_entropy": -3.0, "tau": 0.1}),
}
PAGES = {"DQN": dqn, "SAC": sac, "TD3": td3, "DDPG": td3}
TASKS = {"DQN": "CartPole-v1", "SAC": "Pendulum-v1", "TD3": "Pendulum-v1", "DDPG": "Pendulum-v1"}
NOT_OF_A2C = ("n_epochs", "batch_size", "clip_range", "clip_range_vf", "target_kl")


def _pair(kind, environment, config, monkeypatch, dtype=np.float64):
    """A new member of the engine and a model of Stable-Baselines3 with its parameters, both in this precision."""
    monkeypatch.setattr(
        "stable_baselines3.common.policies.preprocess_obs", lambda obs, *rest, **more: obs
    )
    name = "ppo" if kind == "A2C" else kind.lower()
    algorithm, hp, state = make(name, 5, environment, dtype, **{**NET, **config})
    arguments = export.constructor_arguments(sb3_arguments(algorithm, hp))
    if kind == "A2C":
        arguments = {key: value for key, value in arguments.items() if key not in NOT_OF_A2C}
    model = getattr(stable_baselines3, kind)(
        "MlpPolicy", export.environments(environment, int(hp.n_envs)), device="cpu", **arguments
    )
    if dtype == np.float64:
        model.policy.double()
    if kind == "SAC" and model.ent_coef_optimizer is not None:
        model.log_ent_coef.data = model.log_ent_coef.data.double()
    elif kind == "SAC":
        model.ent_coef_tensor = torch.tensor(float(hp.ent_coef), dtype=torch.float64)
    model.set_logger(stable_baselines3.common.logger.Logger(None, []))
    if kind == "DDPG":
        hp = ddpg.as_td3(hp)
    _fill(model, name, state, environment, hp)
    return hp, state, model


def _fill(model, name, state, environment, hp):
    fill = export._FILL[engine.find_algorithm(name).general or name]
    fill(model, state, environment, hp, export._set)


def _copy(state):
    return {
        part: type(values)(*(array.copy() for array in values)) for part, values in state.items()
    }


def _parameters(model):
    return {name: value.detach().clone() for name, value in model.policy.state_dict().items()}


def _assert_same(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-11, err_msg=name)


def _as_engine_has_it(model, name, state, environment, hp):
    """The engine's parameters under Stable-Baselines3's names: written into the model and read from it."""
    kept = _parameters(model)
    _fill(model, name, state, environment, hp)
    found = _parameters(model)
    model.policy.load_state_dict(kept)
    return found


def _world(environment):
    limits = engine.limits(environment)
    return World(environment.reset, environment.step, environment.observe, *limits)


@pytest.mark.parametrize("case", sorted(ON_POLICY))
def test_rollouts_are_learned_from_as_in_stable_baselines3(case, monkeypatch):
    """Also where `target_kl` ends an update: there no step is made, and no later epoch is begun."""
    kind, environment_id, config = ON_POLICY[case]
    environment = ENVIRONMENTS[environment_id]
    hp, state, model = _pair(kind, environment, config, monkeypatch)
    theirs = []
    step = model.policy.optimizer.step
    monkeypatch.setattr(model.policy.optimizer, "step", lambda: (theirs.append(1), step()))
    n_epochs, batch_size = int(hp.n_epochs), int(hp.batch_size)
    parts = math.ceil(int(hp.n_envs) * int(hp.n_steps) / batch_size)  # minibatches of an epoch
    ends = []
    for _ in range(ITERATIONS):
        before = _copy(state)
        collected = ppo.make_agent(before, environment, hp)
        begin_observed(None, before["member"], _world(environment), collected.inputs)
        ppo.collect_rollout(before["member"], collected, hp, _world(environment))
        _assert_advantages(model, collected, hp)
        model.rollout_buffer = _rollout(collected.rollout, before["member"])
        theirs.clear()
        model.train()
        agent = ppo.make_agent(state, environment, hp)
        _train(ppo, state, environment, hp, agent)
        _assert_same(_as_engine_has_it(model, "ppo", state, environment, hp), _parameters(model))
        _assert_measured(state, ppo.MEASURES, model.logger.name_to_value)
        after, past = state["member"], before["member"]
        ends.append(int(after.counts[UPDATES] - past.counts[UPDATES]))
        assert ends[-1] == len(theirs)
        epochs = int(after.counters[rng.SHUFFLE] - past.counters[rng.SHUFFLE])
        assert epochs == min(ends[-1] // parts + 1, n_epochs)
    assert (min(ends) < n_epochs * parts) == ("stops" in case)
    if case.endswith("0.002"):
        assert any(steps % parts for steps in ends), "an update ended in the middle of an epoch"


def _assert_measured(state, names, logged, without=("loss", "approx_kl")):
    """Updates measure what SB3 logs: of PPO two of the last minibatch and the last epoch."""
    measured = dict(zip(names, state["member"].measures, strict=False))
    shared = [name for name in names if f"train/{name}" in logged and name not in without]
    assert len(shared) >= 1
    for name in shared:  # SB3 averages the share of clipped rows in single precision
        assert measured[name] == pytest.approx(logged[f"train/{name}"], rel=1e-6, abs=1e-9), name


def _assert_advantages(model, agent, hp):
    """The advantages and returns of a rollout are those that SB3's own buffer computes from its rewards and values."""
    from stable_baselines3.common.buffers import RolloutBuffer

    n_steps, n_envs, rollout = int(hp.n_steps), int(hp.n_envs), agent.rollout
    buffer = RolloutBuffer(
        n_steps,
        model.observation_space,
        model.action_space,
        "cpu",
        float(hp.gae_lambda),
        float(hp.gamma),
        n_envs,
    )
    buffer.values, buffer.rewards = (
        rollout.values.reshape(n_steps, -1),
        rollout.rewards.reshape(n_steps, -1),
    )
    dones = rollout.dones.reshape(n_steps, -1)
    buffer.episode_starts[1:] = dones[:-1]
    buffer.compute_returns_and_advantage(
        torch.tensor(agent.critic.outputs[:n_envs, 0].copy()), dones[-1]
    )
    for found, expected in (
        (rollout.advantages, buffer.advantages),
        (rollout.returns, buffer.returns),
    ):
        np.testing.assert_allclose(found.reshape(n_steps, -1), expected, rtol=1e-5, atol=1e-5)


def _train(page, state, environment, hp, agent):
    """One iteration of the page in plain Python."""
    functions = (environment.reset, environment.step, environment.observe)
    train = getattr(page, "LOOP", page).train.py_func
    train(state["member"], agent, hp, engine.limits(environment), *functions, 1)


def _rollout(rollout, member):
    """A stand-in for SB3's rollout buffer: the engine's minibatches, from the member's next shuffle on."""
    from stable_baselines3.common.type_aliases import RolloutBufferSamples

    tables = (rollout.observations, rollout.actions, rollout.values, rollout.log_probs)
    tables = (*tables, rollout.advantages, rollout.returns)
    tensors = [torch.tensor(table.astype(rollout.observations.dtype)) for table in tables]
    counters = itertools.count(int(member.counters[rng.SHUFFLE]))
    seed = rng.stream(member.key[0], rng.SHUFFLE)

    def get(batch_size):
        order = np.zeros(len(rollout.rewards), np.int64)
        rng.permute(order, rng.bits(seed, next(counters)))
        size = batch_size or len(order)
        for rows in np.split(order, range(size, len(order), size)):
            yield RolloutBufferSamples(*(tensor[torch.tensor(rows)] for tensor in tensors))

    return SimpleNamespace(get=get, values=rollout.values, returns=rollout.returns)


@pytest.mark.parametrize(
    ("case", "iterations"), [("a2c", 200), ("a2c-continuous", 200), ("ppo", 30)]
)
def test_the_compiled_program_stays_with_stable_baselines3(case, iterations, monkeypatch):
    kind, environment_id, config = ON_POLICY[case]
    environment = ENVIRONMENTS[environment_id]
    hp, state, model = _pair(kind, environment, config, monkeypatch, np.float32)
    member, first = state["member"], state["member"].parameters.copy()
    agent, functions = (ppo.make_agent(state, environment, hp), environment.functions(np.float32))
    for _ in range(iterations):
        before = _copy(state)["member"]
        ppo.train(member, agent, hp, engine.limits(environment), *functions, 1)
        model.rollout_buffer = _rollout(agent.rollout, before)
        model.train()
    theirs, moved = _parameters(model), np.linalg.norm(member.parameters - first)
    ours = _as_engine_has_it(model, "ppo", state, environment, hp)
    drift = math.sqrt(sum(float(((ours[name] - theirs[name]) ** 2).sum()) for name in theirs))
    assert moved > 0.5
    assert drift < 1e-4 * moved  # rounding in float32


def _memory_of_sb3(model, agent, hp):
    """Stable-Baselines3's memory with the transitions of the engine's."""
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
    sample_uniform(agent.replay, rng.bits(rng.stream(key, rng.REPLAY), update), agent.batch)
    seed = rng.bits(rng.stream(key, rng.UPDATE), update)
    streams = [seed] if page is td3 else [rng.stream(seed, 0), rng.stream(seed, 1)]
    for stream in streams:
        draws = [rng.normal(stream, i) for i in range(n * agent.actions.shape[1])]
        noise.append(torch.tensor(draws, dtype=torch.float64).reshape(n, -1))


# Loops over a quarter of a million parameters in plain Python are slow.
MEMORIES = [
    pytest.param(kind, task, None, config, id=name, marks=[pytest.mark.slow] * ("default-" in name))
    for name, (kind, task, config) in OFF_POLICY.items()
] + [
    pytest.param(
        kind,
        task,
        normalize,
        {**REPLAY, "tau": 0.1, "n_envs": 2, "n_steps": n_steps, "max_episode_steps": 13},
        id=f"{kind}-{options}-{n_steps}",
    )
    for kind, task in TASKS.items()
    for options, normalize in {**OPTIONS, "nothing": None}.items()
    for n_steps in (1, 4)
    if normalize is not None or n_steps > 1
]


@pytest.mark.parametrize(("kind", "task", "normalize", "config"), MEMORIES)
def test_memories_are_learned_from_as_in_stable_baselines3(
    kind, task, normalize, config, monkeypatch
):
    """Its own memory normalises and sums the engine's transitions, its own `train` learns from them."""
    config = dict(config)
    n_steps = config.get("n_steps", 1)
    if n_steps > 1 and not hasattr(buffers, "NStepReplayBuffer"):
        pytest.skip("Stable-Baselines3 before 2.7 has no n-step memory")
    environment, page = ENVIRONMENTS[task], PAGES[kind]
    limit = config.pop("max_episode_steps", environment.time_limit)
    given = None if normalize is None else FrozenMap(normalize)
    environment = replace(environment, time_limit=limit, normalize=given)
    hp, state, model = _pair(kind, environment, config, monkeypatch)
    noise: list[object] = []
    monkeypatch.setattr(
        "torch.distributions.normal._standard_normal", lambda *shape, **kwargs: noise.pop(0)
    )
    if page is td3:
        monkeypatch.setattr(
            "torch.Tensor.normal_", lambda self, mean, std: self.copy_(mean + std * noise.pop(0))
        )
    updates = int(hp.gradient_steps) if hp.gradient_steps > 0 else int(hp.train_freq)
    short = 0
    logged = []
    for _ in range(2 * ITERATIONS):
        before = _copy(state)
        agent = page.make_agent(before, environment, hp)
        begin_observed(agent.normaliser, before["member"], _world(environment), agent.observations)
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
        venv = None if given is None else export.vec_normalize(before["normaliser"], model)
        memory = _memory_of_sb3(model, agent, hp)
        batches = []
        for _ in range(updates):
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
        model.train(updates, int(hp.batch_size))
        logged.append(dict(model.logger.name_to_value))
        means = {name: np.mean([log[name] for log in logged]) for name in logged[0]}
        # As many updates in every call, but for the actor's of TD3.
        without = ["actor_loss"] if page is td3 and hp.policy_delay > 1 else []
        names = dqn.MEASURES if page is dqn else actor_critic.MEASURES
        _assert_measured(state, names, means, without)
        ours = _as_engine_has_it(model, kind.lower(), state, environment, hp)
        theirs = _parameters(model)
        _assert_same(ours, theirs)
        if page is td3:
            assert max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) < 1e-10
        assert not noise
    assert int(state["member"].counts[1]) >= 3 * updates
    assert n_steps == 1 or short > 20  # sums that ended before the fourth reward


def _assert_sampled(agent, hp, sample):
    """Check that networks get the minibatch that Stable-Baselines3's memory hands out."""
    inputs = agent.observations
    n = len(agent.batch)
    begin_targets(agent, hp)
    assert np.array_equal(inputs[:n], sample.next_observations)
    np.testing.assert_allclose(agent.targets, sample.rewards[:, 0], rtol=1e-12)
    discounts = hp.gamma if sample.discounts is None else sample.discounts[:, 0].numpy()
    expected = discounts * (1.0 - sample.dones[:, 0].numpy())
    np.testing.assert_allclose(agent.discounts, expected, rtol=1e-12)
    take_rows(agent, agent.batch, 0)
    assert np.array_equal(inputs[:n], sample.observations)


@pytest.mark.parametrize("case", ["ppo", "a2c-as-ppo", "a2c"])
def test_an_exported_model_learns_on_as_the_engine_does(case, monkeypatch):
    """Weights and the optimizer's moments continue where the member was, not from zero."""
    monkeypatch.setattr(
        "stable_baselines3.common.policies.preprocess_obs", lambda obs, *rest, **more: obs
    )
    environment, config = ENVIRONMENTS["CartPole-v1"], ROLLOUT
    if case == "a2c-as-ppo":
        config = {**_A2C, "batch_size": 15}
    name = "ppo"
    if case == "a2c":
        name, config = "a2c", {"n_envs": 3, "n_steps": 5}
    algorithm, of_member, state = make(name, 5, environment, np.float64, **NET, **config)
    hp = a2c.as_ppo(of_member) if name == "a2c" else of_member
    for _ in range(ITERATIONS):
        _train(ppo, state, environment, hp, ppo.make_agent(state, environment, hp))
    model = export.to_sb3(algorithm, state, environment, of_member)
    model.policy.double()
    export.fill(model, algorithm, state, environment, of_member)  # again, in this precision
    model.set_logger(stable_baselines3.common.logger.Logger(None, []))
    for _ in range(3):
        before = _copy(state)
        collected = ppo.make_agent(before, environment, hp)
        begin_observed(None, before["member"], _world(environment), collected.inputs)
        ppo.collect_rollout(before["member"], collected, hp, _world(environment))
        model.rollout_buffer = _rollout(collected.rollout, before["member"])
        _train(ppo, state, environment, hp, ppo.make_agent(state, environment, hp))
        model.train()
        _assert_same(_as_engine_has_it(model, "ppo", state, environment, hp), _parameters(model))
