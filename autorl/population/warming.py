"""Compiles the engine before anybody trains.

Every program and every native environment is run for no step or a few, as a training runs it: what
that compiles goes into the cache, which all processes of this installation share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from autorl.population import engine, outside
from autorl.population.environments import ENVIRONMENTS, GRID_TASKS, Environment
from autorl.population.environments.minigrid import OBSERVATIONS, observed
from autorl.population.hyperparameters import record
from autorl.population.kernels import Function, Prepared, prepare, tell_preparations

_HORIZON = 100
# An algorithm takes the ones that it has.
_FEW_STEPS = {
    "n_steps": 2,
    "n_epochs": 1,
    "batch_size": 2,
    "buffer_size": 100,
    "learning_starts": 0,
    "net_width": 4,
}


def warm(algorithms: Sequence[str], listener: Callable[[Prepared], None]) -> None:
    """Compile all that these algorithms run, or find it in the cache.

    Args:
        algorithms: of `engine.ALGORITHMS`.
        listener: is called after each program, and after the functions of each environment.

    Raises:
        OSError: the cache cannot be written.
    """
    chosen = [engine.find_algorithm(name) for name in algorithms]
    kinds = {
        discrete
        for discrete in (True, False)
        if any(algorithm.discrete if discrete else algorithm.continuous for algorithm in chosen)
    }
    with tell_preparations(listener):
        for name, functions in _environments(kinds):
            prepare(name, functions)
        for algorithm in chosen:
            for discrete in kinds:
                if algorithm.discrete if discrete else algorithm.continuous:
                    _run(algorithm, discrete)


def _environments(kinds: set[bool]) -> Iterator[tuple[str, list[Function]]]:
    """List the functions of the native environments.

    `kinds` says whether those with discrete actions are among them, and those with continuous ones.
    """
    for environment in ENVIRONMENTS.values():
        if bool(environment.n_actions) not in kinds:
            continue
        yield environment.id, _functions(environment)
        assert environment.parametrised is not None
        yield f"variants of {environment.id}", _functions(environment.parametrised)
    if True in kinds:
        # Tasks share most of theirs.
        shared = {
            function.dispatcher: function
            for task in GRID_TASKS.values()
            for wrappers in OBSERVATIONS
            for function in _functions(observed(task, wrappers))
        }
        yield "MiniGrid tasks", list(shared.values())


def _functions(environment: Environment) -> list[Function]:
    return list(environment.functions(np.float32))


def _run(algorithm: engine.Algorithm, discrete: bool) -> None:
    """Train and evaluate a member, with native environments and others."""
    small = {name: value for name, value in _FEW_STEPS.items() if name in algorithm.settings}
    hp = record(algorithm.settings, small, _HORIZON)
    name = "CartPole-v1" if discrete else "Pendulum-v1"
    native = ENVIRONMENTS[name]
    state = algorithm.create(native, hp, 0, np.float32)
    bound = algorithm.bind(state, native, hp)
    bound.advance(0)
    engine.evaluation(bound, state, native, [0])
    environment = _outside(name)
    state = algorithm.create(environment, hp, 0, np.float32)
    with outside.worlds_of(environment, state) as worlds:
        assert worlds is not None
        bound = algorithm.bind(state, environment, hp, worlds)
        bound.advance(2)
        engine.evaluation(bound, state, environment, [0])


def _outside(name: str) -> outside.OutsideEnvironment:
    """Describe an environment whose episodes are cut after two steps."""

    def make() -> gym.Env[Any, Any]:
        return outside.EpisodeMonitor(gym.make(name, max_episode_steps=2))

    env = make()
    return outside.of_spaces(name, make, env.observation_space, env.action_space)
