"""Exported models of DQN with double, dueling, prioritised and several steps."""

from __future__ import annotations

import numpy as np
import pytest
from test_export import _environments, _observations, _state, _trained

from autorl.core.types import InputError
from autorl.population.environments import ENVIRONMENTS
from autorl.population.evaluation import ARGMAX
from autorl.population.hyperparameters import record
from autorl.population.networks import forward, with_rows

stable_baselines3 = pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

CONFIG = {
    "learning_starts": 20,
    "batch_size": 10,
    "buffer_size": 90,
    "train_freq": 9,
    "learning_rate": 1e-2,
    "net_width": 12,
}
ALL = {"double": True, "dueling": True, "prioritized": True, "n_steps": 3}


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("environment_id", ["CartPole-v1", "Acrobot-v1"])
def test_a_dueling_model_has_the_members_values_under_one_head(environment_id, depth, tmp_path):
    import torch

    config = {**CONFIG, **ALL, "net_depth": depth}
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


def test_a_dueling_model_says_what_becomes_of_its_streams_and_learns_on(tmp_path):
    trainer, outcome = _trained("dqn", "CartPole-v1", {**CONFIG, **ALL, "n_envs": 2}, tmp_path)
    written = trainer.export_model(outcome.checkpoint, tmp_path / "model")
    notes = " ".join(written.notes)
    for text in (
        "no double=True",
        "no prioritized=True",
        "no dueling=True",
        "folded into one head",
    ):
        assert text in notes
    assert "new optimizer moments" in notes
    assert "the run's optimizer moments" not in notes
    model = stable_baselines3.DQN.load(written.path, device="cpu")
    assert not model.policy.optimizer.state
    model.set_env(_environments("CartPole-v1", 2))
    before = model.q_net.q_net[0].weight.detach().clone()
    model.learn(150)
    assert not bool((model.q_net.q_net[0].weight == before).all())


def test_several_steps_are_an_argument_of_stable_baselines3(tmp_path):
    config = {**CONFIG, "n_steps": 4, "gamma": 0.9}
    trainer, outcome = _trained("dqn", "CartPole-v1", config, tmp_path)
    written = trainer.export_model(outcome.checkpoint, tmp_path / "model")
    assert "the run's optimizer moments" in " ".join(written.notes)
    model = stable_baselines3.DQN.load(written.path, device="cpu")
    assert model.n_steps == 4
    assert len(model.policy.optimizer.state) > 0
    model.set_env(_environments("CartPole-v1", 1))
    model.learn(150)
    assert type(model.replay_buffer).__name__ == "NStepReplayBuffer"
    assert (model.replay_buffer.n_steps, model.replay_buffer.gamma) == (4, 0.9)


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

    trainer, outcome = _trained("dqn", "CartPole-v1", {**CONFIG, "n_steps": 4}, tmp_path / "4")
    plain_trainer, plain = _trained("dqn", "CartPole-v1", CONFIG, tmp_path / "1")
    monkeypatch.setattr(stable_baselines3, "DQN", Earlier)
    with pytest.raises(
        InputError, match=r"n_steps of Earlier needs Stable-Baselines3 2\.7 or later"
    ):
        trainer.export_model(outcome.checkpoint, tmp_path / "model")
    assert plain_trainer.export_model(plain.checkpoint, tmp_path / "plain").path.is_file()
