from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from segments import segment

from autorl.core.types import InputError
from autorl.population import engine
from autorl.population.environments import ENVIRONMENTS
from autorl.population.evaluation import ARGMAX, SQUASHED
from autorl.population.hyperparameters import record
from autorl.population.members import UPDATES
from autorl.population.networks import forward, with_rows
from autorl.space import schedule_function
from autorl.trainers import load
from autorl.trainers.saved_state import STATE, read

stable_baselines3 = pytest.importorskip("stable_baselines3")

_OFF_POLICY = {"learning_starts": 20, "batch_size": 10, "buffer_size": 90, "train_freq": 9}
CASES = {
    "ppo": ("CartPole-v1", {"n_steps": 64, "net_width": 10, "net_depth": 1, "activation": "relu"}),
    "ppo-continuous": ("Pendulum-v1", {"n_steps": 64, "learning_rate": 1e-2}),
    "dqn": ("Acrobot-v1", {**_OFF_POLICY, "net_depth": 3, "net_width": 12, "learning_rate": 1e-2}),
    "sac": ("Pendulum-v1", {**_OFF_POLICY, "net_width": 20, "learning_rate": 1e-2}),
    "td3": ("Pendulum-v1", {**_OFF_POLICY, "noise_std": 0.1, "net_depth": 3}),
    "ddpg": ("MountainCarContinuous-v0", {**_OFF_POLICY, "net_width": 20, "tau": 0.3}),
    "a2c": ("CartPole-v1", {"n_steps": 8, "net_width": 20, "learning_rate": 1e-2}),
}


def _observations(name, n):
    environment = gymnasium.make(name)
    generator, rows = np.random.default_rng(0), []
    for i in range(n):
        rows.append(environment.reset(seed=i)[0])
        for _ in range(int(generator.integers(20))):
            environment.action_space.seed(i)
            rows[-1] = environment.step(environment.action_space.sample())[0]
    return np.array(rows, np.float32)


def _trained(name, environment_id, config, folder, horizon=128, until=128):
    """(trainer, outcome) of a member trained from step 0."""
    of_run = {"horizon": horizon, "evaluate_at": (), "seed": 3}
    place = folder / "a"
    one = segment(f"population/{name}", environment_id, config, until, place, **of_run)
    trainer = load(one.trainer)
    return trainer, trainer.train(one, lambda report: None)


def _state(trainer, outcome):
    arrays = read(Path(outcome.checkpoint.path) / STATE)["arrays"]
    return engine.from_arrays(trainer.algorithm, arrays)


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_sb3_model_takes_the_same_greedy_actions(case, tmp_path):
    name, (environment_id, config) = case.partition("-")[0], CASES[case]
    environment = ENVIRONMENTS[environment_id]
    trainer, outcome = _trained(name, environment_id, config, tmp_path)
    file = trainer.export_model(outcome.checkpoint, tmp_path / "models" / "model").path
    assert file == tmp_path / "models" / "model.zip"
    model = getattr(stable_baselines3, name.upper()).load(file, device="cpu")
    assert model.num_timesteps == outcome.reached

    state = _state(trainer, outcome)
    bound = trainer.algorithm.bind(
        state, environment, record(trainer.algorithm.settings, config, 128)
    )
    observations = _observations(environment_id, 1000)
    policy = with_rows(bound.policy, len(observations))
    forward(policy, observations, len(observations))
    theirs, _ = model.predict(observations, deterministic=True)
    outputs = policy.outputs[:, : max(environment.n_actions, environment.action_size)]
    if bound.head == ARGMAX:
        margin = np.diff(np.sort(outputs, axis=1)[:, -2:], axis=1)[:, 0]
        clear = margin > 1e-5  # a tie may fall either way
        assert clear.mean() > 0.99
        assert np.array_equal(outputs.argmax(axis=1)[clear], theirs[clear])
    else:
        low, high = environment.bounds
        squashed = low + 0.5 * (high - low) * (1 + np.tanh(outputs))
        ours = squashed if bound.head == SQUASHED else np.clip(outputs, low, high)
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


_RATE = {"learning_rate": 3e-3, "gamma": 0.9}
_LINEAR = {"learning_rate.shape": "linear", "learning_rate.end": 1e-5}
_COSINE = {"clip_range": 0.3, "clip_range.shape": "cosine", "clip_range.end": 0.1}
_ON_POLICY = {
    **_RATE,
    "n_envs": 3,
    "n_steps": 16,
    "batch_size": 24,
    "n_epochs": 3,
    "gae_lambda": 0.8,
    "vf_coef": 0.3,
}
_ON_POLICY |= {
    "clip_range": 0.31,
    "normalize_advantage": False,
    "ent_coef": 0.02,
    "max_grad_norm": 0.7,
}
_REPLAY = {
    **_RATE,
    "n_envs": 2,
    "learning_starts": 20,
    "batch_size": 10,
    "buffer_size": 90,
    "train_freq": 9,
    "tau": 0.4,
}
_REPLAY |= {"gradient_steps": 2, "target_update_interval": 6}
_OF_TD3 = {name: value for name, value in _REPLAY.items() if name != "target_update_interval"}
_OF_TD3 |= {"noise_std": 0.2}
TUNED = {
    "ppo": (
        "CartPole-v1",
        {**_ON_POLICY, "clip_range_vf": 0.4, "target_kl": 0.5, "optimizer_eps": 3e-6},
    ),
    "ppo-scheduled": ("Pendulum-v1", {**_ON_POLICY, **_LINEAR, **_COSINE}),
    "ppo-rmsprop": ("CartPole-v1", {**_ON_POLICY, "optimizer": "rmsprop", "n_epochs": 1}),
    "dqn": (
        "CartPole-v1",
        {
            **_REPLAY,
            "exploration_fraction": 0.3,
            "exploration_initial_eps": 0.8,
            "exploration_final_eps": 0.02,
        }
        | {"max_grad_norm": 4.0, "optimizer_eps": 1e-7},
    ),
    "dqn-scheduled": ("CartPole-v1", {**_REPLAY, **_LINEAR, "n_envs": 1}),
    "sac": ("Pendulum-v1", {**_REPLAY, "target_entropy": -3.0, "optimizer_eps": 1e-7}),
    "sac-fixed": ("Pendulum-v1", {**_REPLAY, "ent_coef": 0.2}),
    "td3": (
        "Pendulum-v1",
        {
            **_OF_TD3,
            "policy_delay": 3,
            "target_policy_noise": 0.3,
            "target_noise_clip": 0.4,
            "optimizer_eps": 1e-7,
            "n_critics": 1,
        },
    ),
    "td3-scheduled": ("Pendulum-v1", {**_OF_TD3, **_LINEAR}),
    "ddpg": ("Pendulum-v1", {**_OF_TD3, "noise_type": "ornstein-uhlenbeck", "noise_std": 0.3}),
    "a2c": (
        "CartPole-v1",
        {
            **_RATE,
            **_LINEAR,
            "n_envs": 3,
            "n_steps": 16,
            "gae_lambda": 0.8,
            "ent_coef": 0.02,
            "vf_coef": 0.3,
        }
        | {"max_grad_norm": 0.7, "normalize_advantage": True, "rms_prop_eps": 3e-6},
    ),
    "a2c-adam": (
        "CartPole-v1",
        {**_RATE, "n_envs": 3, "n_steps": 16, "use_rms_prop": False, "vf_coef": 0.3},
    ),
}
_NETWORKS = {"net_width": 11, "net_depth": 3, "activation": "relu"}
_OF_POLICY = {*_NETWORKS, "optimizer", "optimizer_eps", "n_critics", "noise_type", "noise_std"}
_NO_ARGUMENT = {"use_rms_prop", "rms_prop_eps"}  # they make the optimizer


def _environments(environment_id, n):
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([lambda: gymnasium.make(environment_id)] * n)


def _at(value, remaining):
    return value(remaining) if callable(value) else value


def _expected(config, name, remaining):
    """The value of the configuration where `remaining` of the horizon is left."""
    if f"{name}.shape" not in config:
        return config[name]
    return schedule_function(config, name)(1.0 - remaining)


@pytest.mark.parametrize("case", sorted(TUNED))
def test_the_loaded_model_has_every_hyperparameter_and_trains_on_with_them(case, tmp_path):
    name, (environment_id, tuned) = case.partition("-")[0], TUNED[case]
    config = {**tuned, **_NETWORKS}
    trainer, outcome = _trained(name, environment_id, config, tmp_path, horizon=400, until=200)
    written = trainer.export_model(outcome.checkpoint, tmp_path / "model")
    model = getattr(stable_baselines3, name.upper()).load(written.path, device="cpu")
    names = sorted({key.partition(".")[0] for key in config} - _OF_POLICY - _NO_ARGUMENT)
    assert len(names) >= (5 if case == "a2c-adam" else 8)
    for key in names:
        if key == "train_freq":
            assert model.train_freq.frequency == config[key]
        else:
            for remaining in (1.0, 0.6, 0.0):
                assert _at(getattr(model, key), remaining) == pytest.approx(
                    _expected(config, key, remaining)
                ), key
    assert model.policy_kwargs["net_arch"] == [11, 11, 11]
    assert model.policy_kwargs["activation_fn"].__name__ == "ReLU"
    optimizer = (model.policy if name in ("ppo", "a2c", "dqn") else model.actor).optimizer
    assert type(optimizer).__name__ == (
        "RMSprop" if config.get("optimizer") == "rmsprop" or case == "a2c" else "Adam"
    )
    eps = config.get("rms_prop_eps", 1e-5 if name in ("ppo", "a2c") else 1e-8)
    assert optimizer.param_groups[0]["eps"] == config.get("optimizer_eps", eps)
    if "noise_std" in config:
        kind = "Ornstein" if "noise_type" in config else "Normal"
        assert type(model.action_noise).__name__.startswith(kind)
        assert model.action_noise._sigma.tolist() == [config["noise_std"]]
        assert len(model.critic.q_networks) == (2 if case == "td3-scheduled" else 1)
    delay = config.get("policy_delay", 2 if name == "td3" else 1)
    _check_moments(model, name, _state(trainer, outcome)["member"], delay)
    model.set_env(_environments(environment_id, config["n_envs"]))
    model.learn(100)
    rate = _expected(config, "learning_rate", model._current_progress_remaining)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-6)


def _check_moments(model, kind, member, delay):
    """Each parameter of the model finds its own moments: sums of squares and their number agree."""
    soft = kind in ("sac", "td3", "ddpg")
    owners = [model.actor, model.critic] if soft else [model.policy]
    states = [state for owner in owners for state in owner.optimizer.state.values()]
    if kind == "sac" and model.ent_coef_optimizer is not None:
        states += model.ent_coef_optimizer.state.values()
    steps = {float(member.counts[UPDATES]), float(member.counts[UPDATES] // delay)}
    assert {float(state["step"]) for state in states} == steps
    keys = {"exp_avg": 0, "exp_avg_sq": 1} if "exp_avg" in states[0] else {"square_avg": 1}
    for key, row in keys.items():
        theirs = np.concatenate([state[key].numpy().ravel() for state in states])
        ours = member.moments[row]
        assert np.count_nonzero(ours) == np.count_nonzero(theirs) > 0
        np.testing.assert_allclose(np.sort(theirs[theirs != 0]), np.sort(ours[ours != 0]))


NOT_THERE = {
    "the run's": {"prioritized": True, "use_target_network": False, "priority_beta": 0.5},
    "new": {"double": True, "prioritized": True, "dueling": True},  # its two streams have none
}


@pytest.mark.parametrize(("moments", "given"), NOT_THERE.items())
def test_what_stable_baselines3_has_no_place_for_is_said(moments, given, tmp_path):
    config = {**_REPLAY, **given}
    trainer, outcome = _trained("dqn", "CartPole-v1", config, tmp_path)
    written = trainer.export_model(outcome.checkpoint, tmp_path / "model")
    notes = " ".join(written.notes)
    assert [key for key, value in given.items() if f"no {key}={value}" not in notes] == []
    assert f"with {moments} optimizer moments" in notes
    assert ("folded into one head" in notes) == ("dueling" in given)
    model = stable_baselines3.DQN.load(written.path, device="cpu")
    assert bool(model.policy.optimizer.state) == (moments != "new")
    if "use_target_network" in given:
        assert (model.target_update_interval, model.tau) == (1, 1.0)
    model.set_env(_environments("CartPole-v1", 2))
    before = model.q_net.q_net[0].weight.detach().clone()
    model.learn(150)
    assert not bool((model.q_net.q_net[0].weight == before).all())


def test_a_file_that_is_there_is_replaced_only_when_told(tmp_path):
    trainer, outcome = _trained("ppo", "CartPole-v1", {"n_steps": 64}, tmp_path)
    (tmp_path / "model.zip").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        trainer.export_model(outcome.checkpoint, tmp_path / "model")
    assert (tmp_path / "model.zip").read_text() == "mine"
    path = trainer.export_model(outcome.checkpoint, tmp_path / "model", replace=True).path
    assert stable_baselines3.PPO.load(path, device="cpu").n_steps == 64


_DQN = {**_OFF_POLICY, "learning_rate": 1e-2, "net_width": 12}
_RAINBOW = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("environment_id", ["CartPole-v1", "Acrobot-v1"])
def test_a_dueling_model_has_the_members_values_under_one_head(environment_id, depth, tmp_path):
    import torch

    config = {**_DQN, **_RAINBOW, "net_depth": depth}
    trainer, outcome = _trained("dqn", environment_id, config, tmp_path)
    written = trainer.export_model(outcome.checkpoint, tmp_path / "model")
    model = stable_baselines3.DQN.load(written.path, device="cpu")
    environment, state = ENVIRONMENTS[environment_id], _state(trainer, outcome)
    hp = record(trainer.algorithm.settings, config, 128)
    bound = trainer.algorithm.bind(state, environment, hp)
    assert bound.head == ARGMAX
    observations = _observations(environment_id, 300)
    policy = with_rows(bound.policy, len(observations))
    forward(policy, observations, len(observations))
    n = environment.n_actions
    advantages, value = policy.outputs[:, :n].astype(np.float64), policy.outputs[:, n : n + 1]
    q = value + advantages - advantages.mean(axis=1, keepdims=True)
    with torch.no_grad():
        theirs = model.q_net(torch.tensor(observations)).numpy()
    np.testing.assert_allclose(theirs, q, rtol=1e-4, atol=1e-5)
    margin = np.diff(np.sort(q, axis=1)[:, -2:], axis=1)[:, 0]
    actions, _ = model.predict(observations, deterministic=True)
    # The engine acts by its advantages alone.
    ours = advantages.argmax(axis=1)
    assert np.array_equal(ours[margin > 1e-5], actions[margin > 1e-5])
    assert (margin > 1e-5).mean() > 0.9


def test_an_earlier_stable_baselines3_has_no_several_steps(tmp_path, monkeypatch):
    class Earlier(stable_baselines3.DQN):
        """Takes what 2.6 takes."""

        def __init__(self, policy, env, *, learning_rate, buffer_size, learning_starts, batch_size,
                     tau, gamma, train_freq, gradient_steps, target_update_interval,
                     exploration_fraction, exploration_initial_eps, exploration_final_eps,
                     max_grad_norm, policy_kwargs, device):  # fmt: skip
            values = {
                key: value for key, value in locals().items() if key not in ("self", "__class__")
            }
            super().__init__(**values)

    trainer, outcome = _trained("dqn", "CartPole-v1", {**_DQN, "n_steps": 4}, tmp_path / "4")
    plain_trainer, plain = _trained("dqn", "CartPole-v1", _DQN, tmp_path / "1")
    monkeypatch.setattr(stable_baselines3, "DQN", Earlier)
    with pytest.raises(
        InputError, match=r"n_steps of Earlier needs Stable-Baselines3 2\.7 or later"
    ):
        trainer.export_model(outcome.checkpoint, tmp_path / "model")
    assert plain_trainer.export_model(plain.checkpoint, tmp_path / "plain").path.is_file()
