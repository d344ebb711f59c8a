"""Shared parts of the engine's tests: members made by hand, and their training as programs or as
plain Python."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np

from autorl.population import engine
from autorl.population.environments import ENVIRONMENTS, Environment
from autorl.population.hyperparameters import record
from autorl.population.normalisation import normaliser_of

CARTPOLE = ENVIRONMENTS["CartPole-v1"]
PENDULUM = ENVIRONMENTS["Pendulum-v1"]
# Two action dimensions, for the losses alone.
TWO = replace(PENDULUM, low=(-2.0, -1.0), high=(2.0, 3.0))
SMALL = {"n_envs": 3, "n_steps": 12, "batch_size": 10, "n_epochs": 2, "net_width": 9}
OFF_POLICY = {"learning_starts": 10, "batch_size": 9, "buffer_size": 60, "train_freq": 4}
OFF_POLICY |= {"n_envs": 2, "net_width": 9}
DQN = {"learning_starts": 20, "batch_size": 10, "buffer_size": 60, "train_freq": 8}
DQN |= {"n_envs": 2, "net_width": 9}


def make(
    name: str, key: int, environment: Environment = CARTPOLE, dtype: Any = np.float32, **config: Any
) -> Any:
    """(algorithm, record, state) of a new member."""
    algorithm = engine.find_algorithm(name)
    hp = record(algorithm.settings, config, 1000)
    return algorithm, hp, algorithm.create(environment, hp, key, dtype)


def advanced(
    name: str, key: int, pieces: tuple[int, ...], environment: Environment = CARTPOLE, **config: Any
) -> Any:
    """The state of a new member after `sum(pieces)` iterations, bound anew for each piece."""
    algorithm, hp, state = make(name, key, environment, **config)
    for iterations in pieces:
        algorithm.bind(state, environment, hp).advance(iterations)
    return state


def same(left: Any, right: Any) -> bool:
    """Whether two states are equal to the last bit."""
    a, b = engine.to_arrays(left), engine.to_arrays(right)
    return a.keys() == b.keys() and all(
        np.array_equal(a[name], b[name], equal_nan=True) for name in a
    )


def close(gradient: Any, expected: Any) -> bool:
    """Whether a gradient is another to a relative error below 1e-10 of the largest entry."""
    return bool(np.abs(gradient - expected).max() <= 1e-10 * np.abs(expected).max())


def trained_in_python(
    name: str, key: int, iterations: int, environment: Environment, **config: Any
) -> Any:
    """The state of a new float64 member after some iterations of the page run as plain Python."""
    _, hp, state = make(name, key, environment, np.float64, **config)
    page = importlib.import_module(f"autorl.population.{name}")
    normaliser_of(state, environment, float(hp.gamma))
    agent = page.make_agent(state, environment, hp)
    functions = (environment.reset, environment.step, environment.observe)
    arguments = (state["member"], agent, hp, engine.limits(environment), *functions, iterations)
    with np.errstate(over="ignore"):
        getattr(page, "LOOP", page).train.py_func(*arguments)
    return state
