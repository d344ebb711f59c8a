"""Environments of Gymnasium that the engine does not know, for tests; importing this registers them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from gymnasium.utils import EzPickle

from autorl.population.environments import ENVIRONMENTS


class Simulator(CartPoleEnv, EzPickle):
    """CartPole, whose state counts as one that cannot be saved."""

    def __init__(self, render_mode: str | None = None) -> None:
        EzPickle.__init__(self, render_mode)
        super().__init__(render_mode=render_mode)


class Costly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the reward of each step as a cost."""

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        return *result, {**info, "cost": result[1]}


class Native(gymnasium.Env[Any, Any]):
    """An environment of the engine, stepped by Python in double precision.

    A seed is the key of an episode.
    """

    def __init__(self, name: str) -> None:
        self.native = ENVIRONMENTS[name]
        size = self.native.observation_size
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space: Any = gymnasium.spaces.Box(*self.native.bounds, dtype=np.float64)
        if self.native.n_actions:
            self.action_space = gymnasium.spaces.Discrete(self.native.n_actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.state = self.native.states(1)[0]
        self.native.reset(self.state, np.uint64(seed))
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        applied = np.atleast_1d(np.asarray(action, np.float64))
        reward, terminated = self.native.step(self.state, applied, np.uint64(0))
        return self._observed(), reward, bool(terminated), False, {}

    def _observed(self) -> Any:
        observation = np.zeros(self.native.observation_size)
        self.native.observe(self.state, observation)
        return observation


BOX = gymnasium.spaces.Box
SPACES: dict[str, gymnasium.Space[Any]] = {
    "dict": gymnasium.spaces.Dict(a=BOX(0, 1)),
    "states": gymnasium.spaces.Discrete(5),
    "image": BOX(0, 255, (84, 84, 3), np.uint8),
    "several": gymnasium.spaces.MultiDiscrete([2, 3]),
    "from-one": gymnasium.spaces.Discrete(3, start=1),
    "unbounded": BOX(-np.inf, 1.0, (2,)),
    "whole": BOX(0, 5, (2,), np.int64),
    "vector": BOX(-1, 1, (2,)),
    "pair": gymnasium.spaces.Discrete(2),
    "bounded": BOX(-1, 1, (2,)),
}


class Spaces(gymnasium.Env[Any, Any]):
    """An environment of spaces only."""

    def __init__(self, observations: str = "vector", actions: str = "pair") -> None:
        self.observation_space = SPACES[observations]
        self.action_space = SPACES[actions]


class Broken(gymnasium.Env[Any, Any]):
    """Gives NaN from its fifth step, and refuses actions that are none."""

    def __init__(self, broken: str, actions: str) -> None:
        self.broken = broken
        self.observation_space = SPACES["vector"]
        self.action_space = SPACES[actions]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.count += 1
        wrong = np.nan if self.count >= 5 else 1.0
        of_reward = wrong if self.broken == "reward" else 1.0
        of_observation = wrong if self.broken == "observation" else 1.0
        return np.full(2, of_observation, np.float32), of_reward, False, False, {}


class Tall(PendulumEnv):
    """Pendulum with observations (3, 1) of whole numbers and actions (1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-1000, 1000, (3, 1), np.int32)
        self.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1, 1), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return self._shaped(observation), info

    def step(self, action: Any) -> Any:
        assert action.shape == (1, 1)
        assert action.dtype == np.float32
        observation, *rest = super().step(action[0])
        return self._shaped(observation), *rest

    def _shaped(self, observation: Any) -> Any:
        return (100.0 * observation).astype(np.int32)[:, None]


SHORT = 20  # steps of an episode: many are truncated
for _name, _entry in (
    ("CartPole-v1", CartPoleEnv),
    ("Pendulum-v1", PendulumEnv),
    ("Simulator-v0", Simulator),
    ("Tall-v0", Tall),
):
    gymnasium.register(f"Outside/{_name}", _entry, max_episode_steps=SHORT)
gymnasium.register("Outside/Native-v0", Native, max_episode_steps=SHORT)
gymnasium.register("Outside/Broken-v0", Broken, max_episode_steps=SHORT)
gymnasium.register("Outside/Spaces-v0", Spaces)
