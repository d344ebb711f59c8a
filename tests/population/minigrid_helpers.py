"""Shared parts of MiniGrid's tests: states of the engine put into the package's tasks, and read
from them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from autorl.population.environments import Environment
from autorl.population.environments.minigrid import CELLS, DIRECTION
from autorl.population.kernels import Array

# The tasks that ARLBench has; 6x6 and 8x8 beside them.
TASKS = (
    "MiniGrid-Empty-Random-5x5-v0",
    "MiniGrid-Empty-Random-6x6-v0",
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-DoorKey-6x6-v0",
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-Unlock-v0",
)


def original(environment_id: str) -> Any:
    """The package's task, without Gymnasium's wrappers that check it."""
    importlib.import_module("minigrid")  # registers its ids
    env = gymnasium.make(environment_id, disable_env_checker=True)
    env.reset(seed=0)
    return env


def wrapped(env: Any, wrappers: Sequence[str]) -> list[Any]:
    """The wrappers around `env`, the innermost first."""
    layers = []
    for name in wrappers:
        module, _, attribute = name.partition(":")
        env = getattr(importlib.import_module(module), attribute)(env)
        layers.append(env)
    return layers


def observation(seen: Any, layers: Sequence[Any]) -> Any:
    """Return the outermost wrapper's view of the task's own observation."""
    for layer in layers:
        seen = layer.observation(seen)
    return seen


def begin_as(env: Any, state: Array) -> Any:
    """Put a first state of the engine into the package's task, which shows it."""
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import Door, WorldObj

    inner = env.unwrapped
    inner.grid = Grid(inner.width, inner.height)
    for row in range(inner.height):
        for column in range(inner.width):
            code = int(state[CELLS + row * inner.width + column])
            content = WorldObj.decode(code & 15, code >> 4 & 15, code >> 8)
            inner.grid.set(column, row, content)
            if isinstance(content, Door):
                inner.door = content
    inner.agent_pos = (int(state[0]), int(state[1]))
    inner.agent_dir = int(state[DIRECTION])
    inner.carrying = None
    inner.step_count = 0
    return inner.gen_obs()


def state_of(env: Any, environment: Environment) -> Array:
    """The state of the package's task as the engine has it, without its constants."""
    inner = env.unwrapped
    encoded = inner.grid.encode().astype(int)
    cells = (encoded * [1, 16, 256]).sum(axis=2).T.ravel()
    held = inner.carrying.encode() if inner.carrying else (0, 0, 0)
    carried = held[0] + 16 * held[1] + 256 * held[2]
    agent = (*inner.agent_pos, inner.agent_dir, carried, inner.step_count)
    assert len(agent) + len(cells) + len(environment.constants) == environment.state_size
    return np.array([*agent, *cells], np.float64)
