"""Wrappers of single environments that Stable-Baselines3 has for vectorised ones only."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from autorl.core.numbers import check_number
from autorl.core.types import InputError


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
