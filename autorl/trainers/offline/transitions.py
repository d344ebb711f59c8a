"""Recorded episodes of a Minari data set as arrays of transitions.

Only what is on this machine is read; `minari download NAME` brings a data set here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from autorl.core.types import InputError

Floats = NDArray[np.float32]
_KEY = "trainer.kwargs.dataset"


@dataclass(frozen=True)
class Transitions:
    """Steps of all episodes, one after the other: n rows.

    Attributes:
        observations: (n, d), dictionaries of arrays flattened as `FlattenObservation` does.
        actions: (n, k) in [-1, 1], or (n,) numbers of actions from 0 on.
        rewards: (n,)
        following: (n, d), the observations after.
        ended: (n,), 1 where nothing came after by the rules of the task, not by a time limit.
        action_space: of the data set.
    """

    observations: Floats
    actions: NDArray[Any]
    rewards: Floats
    following: Floats
    ended: Floats
    action_space: gym.Space[Any]


# One for a study; a second where a process serves two.
@lru_cache(maxsize=2)
def read_transitions(name: str) -> Transitions:
    """Read a data set by its name.

    Raises:
        InputError: it is not on this machine, is empty, or is of spaces that are not learnt from.
    """
    import minari

    try:
        dataset = minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"no data set {name!r} on this machine; a published one comes by "
            f"`minari download {name}`",
            key=_KEY,
        ) from error
    parts = [
        _of_episode(episode, dataset.observation_space, dataset.action_space)
        for episode in dataset.iterate_episodes()
    ]
    if not parts:
        raise InputError(f"the data set {name!r} has no episodes", key=_KEY)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    observations, actions, rewards, following, ended = columns
    return Transitions(observations, actions, rewards, following, ended, dataset.action_space)


def _of_episode(
    episode: Any, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> tuple[NDArray[Any], ...]:
    observations = flat(episode.observations, observation_space)
    actions = np.asarray(episode.actions)
    if isinstance(action_space, gym.spaces.Discrete):
        actions = (actions - action_space.start).astype(np.int64)
    else:
        actions = to_unit(actions, action_space)
    return (
        observations[:-1],
        actions,
        np.asarray(episode.rewards, np.float32),
        observations[1:],
        np.asarray(episode.terminations, np.float32),
    )


def flat(observations: Any, space: gym.Space[Any]) -> Floats:
    """Flatten observations to rows of numbers.

    Raises:
        InputError: they are neither arrays nor dictionaries of arrays.
    """
    if isinstance(space, gym.spaces.Dict):
        columns = [flat(observations[name], part) for name, part in space.spaces.items()]
        return np.concatenate(columns, axis=1)
    if not isinstance(space, gym.spaces.Box):
        raise InputError(
            f"learns from arrays and dictionaries of arrays, not from {type(space).__name__}",
            key=_KEY,
        )
    rows = np.asarray(observations, np.float32)
    return rows.reshape(len(rows), -1)


def to_unit(actions: NDArray[Any], space: Any) -> Floats:
    """Scale actions from their bounds to [-1, 1].

    Raises:
        InputError: they have no bounds.
    """
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        raise InputError(f"learns bounded or numbered actions, not {space}", key=_KEY)
    low = space.low.reshape(-1)
    high = space.high.reshape(-1)
    rows = np.asarray(actions, np.float32).reshape(len(actions), -1)
    return np.asarray(2 * (rows - low) / (high - low) - 1, np.float32)


def from_unit(actions: Floats, space: Any) -> NDArray[Any]:
    """Scale actions from [-1, 1] to the bounds of a space."""
    low = space.low.reshape(-1)
    high = space.high.reshape(-1)
    rows = low + (np.clip(actions, -1, 1) + 1) / 2 * (high - low)
    return np.asarray(rows.reshape(len(rows), *space.shape), space.dtype)
