"""Observations of whole numbers under `VecNormalize`: SB3's rollout memory would cut them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
import torch
from segments import segment, train

from autorl.core.types import EnvironmentSpec, FrozenMap, Outcome
from autorl.trainers.sb3.environments import make_environment

torch.set_num_threads(1)  # as the executors do
BYTES = "trainer_environments:BytesTest-v0"
KWARGS = FrozenMap(n_steps=32, batch_size=32, n_epochs=1, net_arch=(8,))


def trained(folder: Path, until: int) -> Outcome:
    """Train PPO on normalised bytes."""
    environment = EnvironmentSpec(BYTES, n_envs=2, normalize=True)
    return train(segment("sb3/ppo", environment, {}, until, folder, KWARGS, horizon=256))


def test_the_policy_learns_from_what_the_normaliser_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[Any] = []
    original = sb3.PPO.train

    def spy(model: Any) -> None:
        learned.append(model.rollout_buffer.observations.copy())
        original(model)

    monkeypatch.setattr(sb3.PPO, "train", spy)
    trained(tmp_path / "whole", 64)
    (rows,) = learned
    assert rows.dtype == np.float32
    assert rows.min() < 0 < rows.max()
    assert np.mean(rows == np.round(rows)) < 0.1


@pytest.mark.parametrize("normalize", [False, {"norm_obs": False}])
def test_bytes_that_are_not_normalised_stay_bytes(normalize: Any) -> None:
    env = make_environment(EnvironmentSpec(BYTES, normalize=normalize))
    assert env.observation_space.dtype == np.uint8
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.uint8
