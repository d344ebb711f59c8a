"""The statistics of SB3's `VecNormalize` as plain data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from autorl.trainers.sb3.files import check_same_names, reason_of
from autorl.types import CheckpointError

if TYPE_CHECKING:
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecNormalize

_SETTINGS = (
    "norm_obs",
    "norm_reward",
    "clip_obs",
    "clip_reward",
    "gamma",
    "epsilon",
    "norm_obs_keys",
)


class _Moments(Protocol):
    """Running statistics: those of SB3, or a record of them."""

    mean: Any
    var: Any
    count: Any


def normaliser_state(normaliser: Any, returns: object) -> dict[str, Any]:
    """Return settings and statistics.

    `normaliser` may be a record of one that an earlier version pickled.
    """
    observations = getattr(normaliser, "obs_rms", None)
    state = {
        "settings": {name: getattr(normaliser, name) for name in _SETTINGS},
        "ret_rms": _statistics(normaliser.ret_rms),
        "obs_rms": _all_statistics(observations),
        "returns": returns,
        "old_reward": normaliser.old_reward,
    }
    return state | ({"old_obs": normaliser.old_obs} if hasattr(normaliser, "old_obs") else {})


def restore_normaliser(
    normaliser: VecNormalize, state: Mapping[str, Any] | None, file: str
) -> None:
    """Put statistics back.

    The settings stay as the constructor set them.

    Raises:
        CheckpointError: they are missing or not whole. Names the `file` they are of.
    """
    if state is None:
        raise CheckpointError("the statistics of the normaliser are missing", file=file)
    try:
        _restore_statistics(normaliser.ret_rms, state["ret_rms"])
        if normaliser.norm_obs:
            _restore_observations(normaliser.obs_rms, state["obs_rms"], file)
        normaliser.returns = state["returns"]
        normaliser.old_reward = state["old_reward"]
        if "old_obs" in state:
            normaliser.old_obs = state["old_obs"]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the statistics of the normaliser are not whole ({reason_of(error)})", file=file
        ) from error


def settings_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `VecNormalize` for the same settings."""
    return {name: state["settings"][name] for name in _SETTINGS}


def _all_statistics(observations: _Moments | dict[str, _Moments] | None) -> Any:
    """Return statistics of the observations.

    They go by name where observations have several parts; None where they are not normalised.
    """
    if isinstance(observations, dict):
        return {name: _statistics(part) for name, part in observations.items()}
    return None if observations is None else _statistics(observations)


def _statistics(running: _Moments) -> dict[str, Any]:
    return {"mean": running.mean, "var": running.var, "count": running.count}


def _restore_observations(
    own: RunningMeanStd | dict[str, RunningMeanStd], saved: Mapping[str, Any], file: str
) -> None:
    if not isinstance(own, dict):
        _restore_statistics(own, saved)
        return
    check_same_names(saved, own, file)
    for name, statistics in own.items():
        _restore_statistics(statistics, saved[name])


def _restore_statistics(running: RunningMeanStd, saved: Mapping[str, Any]) -> None:
    if np.shape(saved["mean"]) != np.shape(running.mean) or np.shape(saved["var"]) != np.shape(
        running.var
    ):
        raise ValueError("another shape")
    running.mean = saved["mean"]
    running.var = saved["var"]
    running.count = saved["count"]
