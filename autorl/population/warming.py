"""Compiles the engine before anybody trains.

Every program and every native environment is run for no step or a few, as a training runs it: what
that compiles goes into the cache, which all processes of this installation share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from autorl.population import engine, outside, vector_worlds
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
        variants = environment.parametrised
        if variants is not None:
            varied = replace(
                environment, reset=variants.reset, step=variants.step, observe=variants.observe
            )
            yield f"variants of {environment.id}", _functions(varied)
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
    native = ENVIRONMENTS["CartPole-v1" if discrete else "Pendulum-v1"]
    state = algorithm.create(native, hp, 0, np.float32)
    bound = algorithm.bind(state, native, hp)
    bound.advance(0)
    engine.evaluation(bound, state, native, [0])
    environment = _outside(discrete)
    state = algorithm.create(environment, hp, 0, np.float32)
    with vector_worlds.worlds_of(environment, state) as worlds:
        assert worlds is not None
        bound = algorithm.bind_outside(state, environment, hp, worlds)
        bound.advance(2)
        engine.evaluation(bound, state, environment, [0])


class _Still(gym.Env[Any, Any]):
    """Environment in which nothing happens, for two steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step. The second truncates the episode."""
        self._steps += 1
        return np.zeros(1, np.float32), 0.0, False, self._steps == 2, {}


def _outside(discrete: bool) -> outside.OutsideEnvironment:
    actions = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    make = partial(_monitored, actions)
    return outside.of_spaces("still", make, _Still.observation_space, actions)


def _monitored(actions: Any) -> gym.Env[Any, Any]:
    return outside.EpisodeMonitor(_Still(actions))
