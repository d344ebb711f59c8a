"""Observations of whole numbers under `VecNormalize`: SB3's rollout memory would cut them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
import torch

from autorl.trainers import load
from autorl.trainers.sb3.environments import make_environment
from autorl.types import Config, EnvironmentSpec, FrozenMap, Outcome, Segment, TrainerSpec

torch.set_num_threads(1)  # as the executors do
BYTES = "trainer_environments:BytesTest-v0"
KWARGS = FrozenMap(n_steps=32, batch_size=32, n_epochs=1, net_arch=(8,))


def train(folder: Path, until: int, after: Outcome | None = None) -> Outcome:
    """Train PPO on normalised bytes, from the start or `after` another segment."""
    values: dict[str, Any] = {}
    if after is not None:
        values = {"parent": after.checkpoint, "start": after.reached}
    segment = Segment(
        id=folder.name,
        trainer=TrainerSpec("sb3/ppo", KWARGS),
        environment=EnvironmentSpec(BYTES, n_envs=2, normalize=True),
        config=Config(),
        seed=1,
        role="tuning",
        until=until,
        horizon=256,
        evaluate_at=(until,),
        episodes=2,
        save=True,
        folder=str(folder),
        **values,
    )
    return load(segment.trainer).train(segment, lambda report: None)


def test_the_policy_learns_from_what_the_normaliser_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[Any] = []
    original = sb3.PPO.train

    def spy(model: Any) -> None:
        learned.append(model.rollout_buffer.observations.copy())
        original(model)

    monkeypatch.setattr(sb3.PPO, "train", spy)
    train(tmp_path / "whole", 64)
    (rows,) = learned
    assert rows.dtype == np.float32
    assert rows.min() < 0 < rows.max()
    assert np.mean(rows == np.round(rows)) < 0.1


def test_segments_of_bytes_continue_to_the_bit(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 256)
    half = train(tmp_path / "half", 128)
    rest = train(tmp_path / "rest", 256, after=half)
    assert rest.reports[-1].metrics == whole.reports[-1].metrics
    assert not rest.notes


@pytest.mark.parametrize("normalize", [False, {"norm_obs": False}])
def test_bytes_that_are_not_normalised_stay_bytes(normalize: Any) -> None:
    env = make_environment(EnvironmentSpec(BYTES, normalize=normalize))
    assert env.observation_space.dtype == np.uint8
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.uint8
