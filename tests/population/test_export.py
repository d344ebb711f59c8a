from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from autorl.population import engine
from autorl.population.environments import ENVIRONMENTS
from autorl.population.evaluation import ARGMAX, SQUASHED
from autorl.population.hyperparameters import record
from autorl.population.networks import forward, with_rows
from autorl.trainers import load
from autorl.types import Config, EnvironmentSpec, Segment, TrainerSpec

stable_baselines3 = pytest.importorskip("stable_baselines3")

_OFF_POLICY = {"learning_starts": 20, "batch_size": 10, "buffer_size": 90, "train_freq": 9}
CASES = {
    "ppo": ("CartPole-v1", {"n_steps": 64, "net_width": 10, "net_depth": 1, "activation": "relu"}),
    "ppo-continuous": ("Pendulum-v1", {"n_steps": 64, "learning_rate": 1e-2}),
    "dqn": ("Acrobot-v1", {**_OFF_POLICY, "net_depth": 3, "net_width": 12, "learning_rate": 1e-2}),
    "sac": ("Pendulum-v1", {**_OFF_POLICY, "net_width": 20, "learning_rate": 1e-2}),
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


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_sb3_model_takes_the_same_greedy_actions(case, tmp_path):
    name, (environment_id, config) = case.partition("-")[0], CASES[case]
    environment, trainer = ENVIRONMENTS[environment_id], load(TrainerSpec(f"population/{name}"))
    segment = Segment(
        id="a",
        trainer=TrainerSpec(f"population/{name}"),
        environment=EnvironmentSpec(environment_id),
        config=Config(config),
        seed=3,
        role="tuning",
        until=128,
        horizon=128,
        save=True,
        folder=str(tmp_path / "a"),
    )
    outcome = trainer.train(segment, lambda report: None)
    file = trainer.export_model(outcome.checkpoint, tmp_path / "models" / "model")
    assert file == tmp_path / "models" / "model.zip"
    model = getattr(stable_baselines3, name.upper()).load(file, device="cpu")
    assert model.num_timesteps == outcome.reached

    with np.load(tmp_path / "a" / "state.npz") as archive:
        arrays = {key: archive[key] for key in archive.files if key != "meta"}
    state = engine.from_arrays(trainer.algorithm, arrays)
    bound = trainer.algorithm.bind(state, environment, record(trainer.algorithm.settings, config, 128))
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
