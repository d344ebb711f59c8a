"""Training and evaluation environments, wrapped, vectorised, freezable.

They have any Gymnasium id or `module:Env-v0`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding

from autorl.core.os_processes import ProcessLostError, ended_from_outside, exit_text
from autorl.core.plain_values import plain
from autorl.core.plugins import module_path
from autorl.core.types import EnvironmentSpec, InputError
from autorl.trainers.environment_state import (
    NOT_RESTORABLE,
    NotRestoredError,
    pickle_environment,
    unpickle_environment,
)
from autorl.trainers.gymnasium_tasks import make_task, wrapped
from autorl.trainers.sb3.shared_policy import make_game, make_games
from autorl.trainers.shared import check_names
from autorl.trainers.trained_task import made_of

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

_LAST_WAIT = 1.0  # seconds for the end of a process to be known after the end of its pipe


class Freezable(gym.Wrapper[Any, Any, Any, Any]):
    """Saves and restores the state of a training environment.

    It is the outermost wrapper and works in any process the environment lives in.
    """

    def freeze(self) -> bytes:
        """Return the environment as a signed pickle, or nothing."""
        return pickle_environment(self.env)

    def thaw(self, state: bytes, trust: bool) -> str:
        """Go on where an environment was saved.

        Returns why that is not possible, empty if it is.
        """
        try:
            self.env = unpickle_environment(state, self.env, trust=trust)
        except NotRestoredError as error:
            return str(error)
        return ""

    def reseed(self, seed: int) -> None:
        """Start new random streams without starting a new episode."""
        # `reset(seed=)` would do it too, and end the episode.
        self.unwrapped.np_random = seeding.np_random(seed)[0]
        self.action_space.seed(seed)


def make_environment(spec: EnvironmentSpec, folders: tuple[str, ...] = ()) -> gym.Env[Any, Any]:
    """Make one environment, monitored and wrapped.

    `gym.make`, an episode monitor (it sees the task's own rewards), then the wrappers in order.

    Raises:
        InputError: the id, its module, a library it needs or a wrapper is missing, or its arguments
            are wrong.
    """
    from stable_baselines3.common.monitor import Monitor

    if spec.id is None:
        raise InputError(
            "the trainer needs an environment, e.g. {id: CartPole-v1}", key="environment.id"
        )
    if is_game(spec):
        return _agent_of_game(spec, folders)
    with module_path(*folders):
        monitor: Any = Monitor(make_task(spec))
        monitor.made_of = made_of(spec)
        env = wrapped(monitor, spec.wrappers, folders)
        return FloatObservations(env) if _needs_floats(spec, env.observation_space) else env


def _needs_floats(spec: EnvironmentSpec, space: gym.Space[Any]) -> bool:
    """Tell whether `VecNormalize` is to normalise whole numbers.

    SB3's rollout memory has the type of the space, and would cut what comes out of it to whole
    numbers: a policy on MiniGrid learned from 0, 1 and 255 (SB3 2.9). Images stay bytes, which its
    policies for images ask for.
    """
    from stable_baselines3.common.preprocessing import is_image_space

    options = spec.normalize
    norm_obs = options.get("norm_obs", True) if isinstance(options, Mapping) else options
    is_discrete = isinstance(space, gym.spaces.Box) and not np.issubdtype(space.dtype, np.floating)
    return bool(norm_obs) and is_discrete and not is_image_space(space)


class FloatObservations(gym.ObservationWrapper[Any, Any, Any]):
    """Observations of whole numbers in single precision."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Box)
        low = space.low.astype(np.float32)
        high = space.high.astype(np.float32)
        self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return np.asarray(observation, np.float32)


def is_game(spec: EnvironmentSpec) -> bool:
    """Tell whether an id names a game of several agents.

    It is one of PettingZoo, or has its interface (`shared_policy`).
    """
    return (spec.id or "").endswith(":parallel_env")


def _agent_of_game(spec: EnvironmentSpec, folders: tuple[str, ...]) -> gym.Env[Any, Any]:
    """Return what one agent sees and does, as what cannot be stepped."""
    game = make_game(spec, folders)
    agent = game.possible_agents[0]
    view = SpacesOnly(game.observation_space(agent), game.action_space(agent))
    view.agents = len(game.possible_agents)
    game.close()
    return view


class SpacesOnly(gym.Env[Any, Any]):
    """An environment of spaces only: it cannot be stepped.

    Attributes:
        agents: number of agents of this kind in a game.
    """

    agents: int = 1

    def __init__(
        self, observation_space: gym.Space[object], action_space: gym.Space[object]
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def make_training_environment(spec: EnvironmentSpec, folders: tuple[str, ...] = ()) -> Freezable:
    return Freezable(make_environment(spec, folders))


def vectorise(spec: EnvironmentSpec, n_envs: int, folders: tuple[str, ...]) -> Any:
    """Make `n_envs` training environments in one of SB3's classes.

    They are `DummyVecEnv` and `SubprocVecEnv`.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    if is_game(spec):
        return make_games(spec, n_envs, folders)
    makers: list[Callable[[], gym.Env[Any, Any]]] = [
        partial(make_training_environment, spec, folders)
    ] * n_envs
    check_vec_env(spec)
    return DummyVecEnv(makers) if spec.vec_env == "dummy" else SubprocVecEnv(makers)


def check_vec_env(spec: EnvironmentSpec) -> None:
    """Raise `InputError` for a vector that is not one of Stable-Baselines3's."""
    if spec.vec_env not in ("dummy", "subproc"):
        raise InputError(
            f"Stable-Baselines3 has dummy and subproc, got {spec.vec_env}; population/* has "
            "envpool and gymnasium",
            key="environment.vec_env",
        )


def raise_if_ended(venv: VecEnv) -> None:
    """Raise `ProcessLostError` if a process of a `SubprocVecEnv` was ended from outside."""
    processes = getattr(venv, "processes", ())
    if not wait([process.sentinel for process in processes], timeout=_LAST_WAIT):
        return
    # Processes that ended by their own fault are no loss but a crash: the caller raises on.
    for code in (process.exitcode for process in processes):
        if code is not None and ended_from_outside(code):
            raise ProcessLostError(f"the process of an environment ended with {exit_text(code)}")


def close_all(venv: VecEnv) -> None:
    """Close environments.

    SB3 cannot where an environment's process is gone; then the others are killed.
    """
    try:
        venv.close()
    except (EOFError, OSError):
        for process in getattr(venv, "processes", ()):
            process.kill()
            process.join()


def freeze_all(venv: VecEnv) -> list[bytes]:
    """Return all environments as signed pickles, none if one cannot be saved."""
    frozen = venv.env_method("freeze")
    return frozen if all(frozen) else []


def thaw_all(venv: VecEnv, frozen: Sequence[bytes], *, trust: bool) -> str:
    """Continue the saved environments.

    Returns why this is impossible: they have to be reset then. It is empty otherwise.

    The spaces of a `DummyVecEnv` are its first environment's, random state included.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv

    if len(frozen) != venv.num_envs:
        return NOT_RESTORABLE
    reasons = [
        venv.env_method("thaw", state, trust, indices=index)[0]
        for index, state in enumerate(frozen)
    ]
    # The environments may be new objects since, with spaces of their own.
    if isinstance(venv, DummyVecEnv):
        venv.action_space = venv.envs[0].action_space
        venv.observation_space = venv.envs[0].observation_space
    return next(filter(None, reasons), "")


def normaliser(spec: EnvironmentSpec, gamma: float) -> dict[str, Any] | None:
    """Return the arguments of SB3's `VecNormalize`, or None.

    Rewards are discounted by the agent's gamma unless the file says.
    """
    if spec.normalize is False:
        return None
    from stable_baselines3.common.vec_env import VecNormalize

    options = plain(spec.normalize) if isinstance(spec.normalize, Mapping) else {}
    allowed = set(inspect.signature(VecNormalize).parameters) - {"venv", "training"}
    check_names(options, allowed, "argument of VecNormalize", "environment.normalize")
    return {"gamma": gamma, **options}
