"""Wrappers of single environments that Stable-Baselines3 has for vectorised ones only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from autorl.core.numbers import check_number
from autorl.core.plain_text import counted, shown
from autorl.core.types import InputError

REWARD_WEIGHTS = "reward_weights"
"""The argument of an environment that weights the components of its reward."""
PACKAGE = "mo_gymnasium"


class WeightedReward(gym.Wrapper[Any, Any, Any, Any]):
    """Gives the weighted mean of a reward's components.

    It sums each of them up by episode. It lies inside the monitor, which adds up plain numbers.

    Args:
        weights: one for each component; None: all the same.

    Attributes:
        component_returns: undiscounted, of the episode so far.

    Raises:
        InputError: there are not as many weights, one is no number from 0 on, or none is above 0.
    """

    def __init__(self, env: gym.Env[Any, Any], weights: Sequence[Any] | None) -> None:
        super().__init__(env)
        key = f"environment.kwargs.{REWARD_WEIGHTS}"
        size = components(env)
        weights = [1.0] * size if weights is None else weights
        if not isinstance(weights, list | tuple) or len(weights) != size:
            raise InputError(f"expected {counted(size, 'weight')}, got {shown(weights)}", key=key)
        for weight in weights:
            check_number(weight, key, 0)
        if not sum(weights) > 0:
            raise InputError("one of the weights must be above 0", key=key)
        self.reward_weights = np.array(weights, dtype=float)
        self.component_returns = np.zeros(size)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self.component_returns = np.zeros_like(self.component_returns)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step.

        The components stand in its info as `reward_vector`.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        vector = np.asarray(reward, dtype=float)
        self.component_returns = self.component_returns + vector
        mean = float(vector @ self.reward_weights / self.reward_weights.sum())
        return observation, mean, terminated, truncated, {**info, "reward_vector": vector}


def components(env: gym.Env[Any, Any]) -> int:
    """Count the components of an environment's reward.

    There are 0 where it is a plain number.
    """
    space = getattr(env.unwrapped, "reward_space", None)
    shape = space.shape if isinstance(space, gym.spaces.Box) else None
    return int(shape[0]) if shape else 0


class FrameStack(gym.Wrapper[Any, Any, Any, Any]):
    """Gives the latest observations of an episode as one.

    Images are stacked by their channels, other arrays along their last axis, the latest last.
    Before an episode there are zeros. `VecFrameStack` of Stable-Baselines3 does the same for
    environments that are stepped together; this one goes among `environment.wrappers`.

    Args:
        n_stack: how many.

    Raises:
        InputError: observations are no arrays, or `n_stack` is no number of them.
    """

    def __init__(self, env: gym.Env[Any, Any], n_stack: int = 4) -> None:
        from stable_baselines3.common.preprocessing import (
            is_image_space,
            is_image_space_channels_first,
        )

        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or not space.shape:
            raise InputError(
                f"FrameStack stacks arrays, the observations are {type(space).__name__}",
                key="environment.wrappers",
            )
        check_number(n_stack, "environment.wrappers.FrameStack.n_stack", 1, whole=True)
        channels_first = is_image_space(space) and is_image_space_channels_first(space)
        self.axis = 0 if channels_first else -1
        low, high = (
            np.concatenate([bound] * n_stack, axis=self.axis) for bound in (space.low, space.high)
        )
        self.observation_space = gym.spaces.Box(low, high, dtype=space.dtype.type)
        self.stacked = np.zeros_like(low)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.stacked = np.zeros_like(self.stacked)
        return self._observed(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._observed(observation), reward, terminated, truncated, info

    def _observed(self, observation: Any) -> Any:
        oldest = [observation.shape[self.axis]]
        later = np.split(self.stacked, oldest, axis=self.axis)[1]
        # A new array: who holds the one before keeps it as it was.
        self.stacked = np.concatenate([later, observation], axis=self.axis)
        return self.stacked
