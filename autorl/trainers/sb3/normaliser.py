"""The statistics of SB3's `VecNormalize` as plain data, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict, cast

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


class _Running(Protocol):
    """Running statistics: those of SB3, or a record of them."""

    mean: Any
    var: Any
    count: Any


class Moments(TypedDict):
    """Running statistics as plain data: arrays of one shape, and a number."""

    mean: Any
    var: Any
    count: Any


class NormaliserState(TypedDict):
    """A `VecNormalize` as plain data.

    Attributes:
        obs_rms: by name where observations have several parts; None where they are not normalised.
        returns: discounted, of each environment so far.
        old_obs: before normalising; missing until there was one.
    """

    settings: dict[str, Any]
    ret_rms: Moments
    obs_rms: Moments | dict[str, Moments] | None
    returns: Any
    old_reward: Any
    old_obs: NotRequired[Any]


def normaliser_state(normaliser: VecNormalize, returns: object) -> NormaliserState:
    """Return settings and statistics.

    `normaliser` may be a record of one that an earlier version pickled. Such a pickle has no
    `returns`, which `VecNormalize` leaves out of it.
    """
    running = getattr(normaliser, "obs_rms", None)
    observations: Moments | dict[str, Moments] | None = None
    if isinstance(running, dict):
        observations = {name: _statistics(part) for name, part in running.items()}
    elif running is not None:
        observations = _statistics(running)
    state: NormaliserState = {
        "settings": {name: getattr(normaliser, name) for name in _SETTINGS},
        "ret_rms": _statistics(normaliser.ret_rms),
        "obs_rms": observations,
        "returns": returns,
        "old_reward": normaliser.old_reward,
    }
    # It is set by the first `reset`, not by the constructor.
    if hasattr(normaliser, "old_obs"):
        state["old_obs"] = normaliser.old_obs
    return state


def restore_normaliser(normaliser: VecNormalize, state: NormaliserState | None, file: str) -> None:
    """Put statistics back.

    The settings stay as the constructor set them.

    Raises:
        CheckpointError: they are missing or not whole. Names the `file` they are of.
    """
    if state is None:
        raise CheckpointError("the statistics of the normaliser are missing", file=file)
    try:
        _restore_statistics(normaliser.ret_rms, state["ret_rms"])
        # Only then it has `obs_rms`.
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


def settings_of(state: NormaliserState) -> dict[str, Any]:
    """Return the arguments of `VecNormalize` for the same settings."""
    return {name: state["settings"][name] for name in _SETTINGS}


def _statistics(running: _Running) -> Moments:
    return {"mean": running.mean, "var": running.var, "count": running.count}


def _restore_observations(
    own: RunningMeanStd | dict[str, RunningMeanStd],
    saved: Moments | dict[str, Moments] | None,
    file: str,
) -> None:
    if not isinstance(own, dict):
        _restore_statistics(own, cast("Moments", saved))
        return
    parts = cast("dict[str, Moments]", saved)
    check_same_names(parts, own, file)
    for name, statistics in own.items():
        _restore_statistics(statistics, parts[name])


def _restore_statistics(running: RunningMeanStd, saved: Moments) -> None:
    # NumPy would broadcast another shape without a word.
    if np.shape(saved["mean"]) != np.shape(running.mean) or np.shape(saved["var"]) != np.shape(
        running.var
    ):
        raise ValueError("another shape")
    running.mean = saved["mean"]
    running.var = saved["var"]
    running.count = saved["count"]
