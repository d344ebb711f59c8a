"""Writes checkpoints of SB3 runs as autorl did before they were data: pickles, and the zip of `model.save`."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from autorl.store.checkpoints import writing
from autorl.trainers import _streams as streams
from autorl.types import Checkpoint, Segment

_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "exploration_rate")
_LATEST = (
    "_last_obs",
    "_last_episode_starts",
    "_last_original_obs",
    "ep_info_buffer",
    "ep_success_buffer",
)


def save(
    model: Any,
    venv: Any,
    segment: Segment,
    values: Mapping[str, Any],
    *,
    losses: Mapping[str, float],  # earlier versions had none
) -> Checkpoint:
    """In place of `autorl.trainers.sb3.checkpoint.save`."""
    frozen = [cloudpickle.dumps(environment.env) for environment in venv.envs]
    with writing(segment) as folder:
        model.save(folder / "model.zip")
        state = {
            "class": type(model).__name__,
            "n_envs": model.n_envs,
            "values": values,
            "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
            "latest": {name: getattr(model, name) for name in _LATEST},
            "noise": [],
            "environments": frozen,
            "streams": streams.global_state(),
            "spaces": [
                space.np_random.bit_generator.state
                for space in (model.action_space, model.observation_space)
            ],
        }
        normaliser = model.get_vec_normalize_env()
        if normaliser is not None:
            normaliser.save(str(folder / "vecnormalize.pkl"))
            state["normaliser_returns"] = normaliser.returns
        _dump(state, folder / "training.pkl")
        if getattr(model, "replay_buffer", None) is not None:
            _dump(_buffer_state(model.replay_buffer), folder / "replay_buffer.pkl")
    return Checkpoint(segment.id, segment.folder)


def _buffer_state(buffer: Any) -> dict[str, Any]:
    rows = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)
    names = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
    arrays = {name: getattr(buffer, name)[:rows] for name in names}
    return {"rows": rows, "pos": buffer.pos, "full": buffer.full, "arrays": arrays}


def _dump(value: Any, path: Path) -> None:
    with path.open("wb") as file:
        pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
