"""Short runs of `population/ppo` on environments outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autorl.trainers import load
from autorl.types import Config, EnvironmentSpec, FrozenMap, Outcome, Segment, TrainerSpec

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "net_width": 4}
CARTPOLE = "Outside/CartPole-v1"
PENDULUM = "Outside/Pendulum-v1"


def segment_in(
    folder: Path, environment: EnvironmentSpec, name: str = "ppo", **changes: Any
) -> Segment:
    """A segment of 128 steps that saves."""
    segment = Segment(
        id="a",
        trainer=TrainerSpec(f"population/{name}", FrozenMap(SMALL)),
        environment=environment,
        config=Config(learning_rate=1e-2),
        seed=3,
        role="tuning",
        until=128,
        horizon=128,
        evaluate_at=(128,),
        episodes=3,
        save=True,
        folder=str(folder),
    )
    return replace(segment, **changes)


def trained(segment: Segment) -> Outcome:
    outcome: Outcome = load(segment.trainer).train(segment, lambda report: None)
    return outcome


def arrays_of(outcome: Outcome) -> dict[str, Any]:
    """The arrays of a checkpoint."""
    assert outcome.checkpoint is not None
    with np.load(f"{outcome.checkpoint.path}/state.npz") as archive:
        return {name: archive[name] for name in archive.files}
