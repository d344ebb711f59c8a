"""What the tests of the engine share: members made by hand, and their training as programs or as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from autorl.population import engine, ppo
from autorl.population.environments import ENVIRONMENTS, Environment
from autorl.population.hyperparameters import record

CARTPOLE = ENVIRONMENTS["CartPole-v1"]
SMALL = {"n_envs": 3, "n_steps": 12, "batch_size": 10, "n_epochs": 2, "net_width": 9}


def make(name: str, key: int, environment: Environment = CARTPOLE, dtype: Any = np.float32, **config: Any) -> Any:
    """(algorithm, record, state) of a new member."""
    algorithm = engine.find_algorithm(name)
    hp = record(algorithm.settings, config, 1000)
    return algorithm, hp, algorithm.create(environment, hp, key, dtype)


def advanced(name: str, key: int, pieces: tuple[int, ...], environment: Environment = CARTPOLE, **config: Any) -> Any:
    """The state of a new member after `sum(pieces)` iterations, bound anew for each piece."""
    algorithm, hp, state = make(name, key, environment, **config)
    for iterations in pieces:
        algorithm.bind(state, environment, hp).advance(iterations)
    return state


def same(left: Any, right: Any) -> bool:
    """Whether two states are equal to the last bit."""
    a, b = engine.to_arrays(left), engine.to_arrays(right)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def ppo_parts(hp: Any, state: Any, environment: Environment) -> tuple[ppo.Agent, ppo.Rollout]:
    """Agent and rollout memory of a PPO member."""
    parameters = state["member"].parameters
    return ppo.make_agent(parameters, environment, hp), ppo.make_rollout(environment, hp, parameters.dtype)
