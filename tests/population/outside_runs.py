"""Short runs of `population/ppo` on environments outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segments import segment, train

from autorl.core.types import EnvironmentSpec, Outcome, Segment
from autorl.population import engine, ppo
from autorl.population.export import to_sb3
from autorl.trainers.saved_state import STATE, read

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "net_width": 4}
CARTPOLE = "Outside/CartPole-v1"
PENDULUM = "Outside/Pendulum-v1"
trained = train
# Arguments of `VecNormalize`.
NORMALISE_OPTIONS = {
    "defaults": {},
    "others": {"clip_obs": 0.8, "clip_reward": 0.3, "gamma": 0.7, "epsilon": 0.1},
    "observations": {"norm_reward": False},
    "rewards": {"norm_obs": False},
}


def segment_in(
    folder: Path, environment: EnvironmentSpec, name: str = "ppo", **changes: Any
) -> Segment:
    """A segment of 128 steps that saves."""
    config, of_run = {"learning_rate": 1e-2}, {"seed": 3, "episodes": 3}
    first = segment(f"population/{name}", environment, config, 128, folder, SMALL, **of_run)
    return replace(first, **changes)


def state_of(outcome: Outcome) -> dict[str, Any]:
    """Read the arrays of a checkpoint."""
    assert outcome.checkpoint is not None
    return read(Path(outcome.checkpoint.path) / STATE)


def arrays_of(outcome: Outcome) -> dict[str, Any]:
    """The arrays of a checkpoint."""
    return dict(state_of(outcome)["arrays"])


def collect_given(model: Any, actions: Any, monkeypatch: Any) -> Any:
    """Have Stable-Baselines3's `collect_rollouts` take given actions, and return its memory.

    `actions`, (steps, environments, action size), are scaled as a memory has them.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    drawn = iter(actions)

    def sample(learning_starts, action_noise=None, n_envs=1):
        scaled = next(drawn)
        if hasattr(model.action_space, "n"):
            return (scaled[:, 0].astype(int),) * 2
        scaled = scaled.reshape(n_envs, *model.action_space.shape)
        return model.policy.unscale_action(scaled).astype(np.float32), scaled

    monkeypatch.setattr(model, "_sample_action", sample)
    callback = type("Quiet", (BaseCallback,), {"_on_step": lambda self: True})()
    _, callback = model._setup_learn(10**6, callback)
    model.collect_rollouts(model.env, callback, model.train_freq, model.replay_buffer)
    return model.replay_buffer


def greedy_returns(model: Any, venv: Any, episodes: int) -> list[float]:
    """Returns of greedy episodes, one after another, in a vector of one environment."""
    returns = [0.0] * episodes
    observations = venv.reset()
    for episode in range(episodes):
        over = [False]
        while not over[0]:
            action, _ = model.predict(observations, deterministic=True)
            observations, reward, over, _ = venv.step(action)
            returns[episode] += float(reward[0])
    return returns


def compare_rollout(
    environment: Any, hp: Any, state: Any, agent: Any, venv: Any, monkeypatch: Any
) -> None:
    """Compare a rollout of PPO with what Stable-Baselines3 collects with the same actions.

    Its model has the member's networks; `venv` begins the same episodes.
    """
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecNormalize

    rollout, member, n_envs = agent.rollout, state["member"], venv.num_envs
    model = to_sb3(engine.find_algorithm("ppo"), state, environment, hp)
    normalize = environment.normalize
    model.set_env(venv if normalize is None else VecNormalize(venv, **dict(normalize)))
    # It is given the actions that were drawn.
    values_of = model.policy.predict_values
    actions = iter(rollout.actions.reshape(-1, n_envs, environment.action_size))

    def forward(observations):
        drawn = torch.tensor(environment.applied(next(actions)))
        return drawn, values_of(observations), torch.zeros(n_envs)

    monkeypatch.setattr(model.policy, "forward", forward)
    callback = type("Quiet", (BaseCallback,), {"_on_step": lambda self: True})()
    _, callback = model._setup_learn(10**6, callback)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, int(hp.n_steps))
    # Rewards with the values of final observations, ends, observations, advantages.
    buffer = model.rollout_buffer
    shape = (int(hp.n_steps), n_envs)
    np.testing.assert_allclose(rollout.rewards.reshape(shape), buffer.rewards, rtol=1e-5, atol=1e-5)
    assert np.array_equal(rollout.dones.reshape(shape)[:-1], buffer.episode_starts[1:])
    assert rollout.dones.sum() >= 6
    observations = buffer.observations.reshape(*shape, -1)
    np.testing.assert_allclose(
        rollout.observations.reshape(observations.shape), observations, rtol=1e-6
    )
    np.testing.assert_allclose(rollout.values.reshape(shape), buffer.values, rtol=1e-4, atol=1e-5)
    ppo.learn.py_func(member, agent, hp)
    np.testing.assert_allclose(
        rollout.advantages.reshape(shape), buffer.advantages, rtol=1e-4, atol=1e-3
    )
    returned = [info["r"] for info in model.ep_info_buffer]
    assert member.recent[: member.counts[2]] == pytest.approx(returned, abs=1e-5)
