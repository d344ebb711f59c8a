"""Environments whose reward is a vector, one number for each objective (MO-Gymnasium).

An agent of Stable-Baselines3 learns from one number: the sum of the components, weighted by the
hyperparameters `reward_weight_0`, `reward_weight_1`, ... (those that nobody gives are 1) and
divided by the sum of the weights. Every component is evaluated by itself, as `eval_return_0`,
`eval_return_1`, ..., which a study takes as its objectives.

Reference: Felten et al. (2023), A Toolkit for Reliable Benchmarking and Research in Multi-Objective
Reinforcement Learning (MO-Gymnasium), NeurIPS Datasets and Benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from autorl.core.numbers import check_number
from autorl.core.plain_text import counted
from autorl.core.types import InputError

PREFIX = "reward_weight_"
PACKAGE = "mo_gymnasium"
_WEIGHT = re.compile(rf"{PREFIX}(\d+)")
Weights = Mapping[str, Any]
"""Values of the hyperparameters that are weights, by name."""


class WeightedReward(gym.Wrapper[Any, Any, Any, Any]):
    """Gives the weighted mean of a reward's components.

    It sums each of them up by episode. It lies inside the monitor, which adds up plain numbers.

    Args:
        weights: by the name of the hyperparameter.

    Attributes:
        reward_weights: one for each component, as they were given.
        component_returns: undiscounted, of the episode so far.
    """

    def __init__(self, env: gym.Env[Any, Any], weights: Weights) -> None:
        super().__init__(env)
        size = components(env)
        check_weights(weights, size)
        self.reward_weights = np.array(
            [float(weights.get(f"{PREFIX}{index}", 1.0)) for index in range(size)]
        )
        if not self.reward_weights.sum() > 0:
            raise InputError("one of the weights must be above 0", key=f"space.{PREFIX}0")
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


def is_weight(name: str) -> bool:
    """Tell whether a hyperparameter is the weight of a component."""
    return _WEIGHT.fullmatch(name) is not None


def weights_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Take the weights out of hyperparameters."""
    return {name: value for name, value in values.items() if is_weight(name)}


def check_weights(weights: Weights, size: int) -> None:
    """Check weights for a reward of `size` components.

    Raises:
        InputError: a weight belongs to no component, or is no number from 0 on.
    """
    check_weight_names(weights, size)
    for name, value in weights.items():
        check_number(value, f"space.{name}", 0)


def check_weight_names(names: Iterable[str], size: int) -> None:
    """Check the names of weights for a reward of `size` components.

    Raises:
        InputError: there is no such component.
    """
    for name in names:
        if not size:
            raise InputError(
                f"{name} needs an environment whose reward is a vector (it has a `reward_space`), "
                "as those of mo_gymnasium",
                key=f"space.{name}",
            )
        if int(name.removeprefix(PREFIX)) >= size:
            raise InputError(
                f"the reward has {counted(size, 'component')}, {PREFIX}0 to {PREFIX}{size - 1}; "
                f"there is no {name}",
                key=f"space.{name}",
            )
