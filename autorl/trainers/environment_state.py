"""Environments in checkpoints: spaces, and episodes in progress as signed pickles.

Opening a pickle runs code that it names. An environment is opened where this installation signed
it, or where the user trusts its writer.
"""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle

from autorl.core.plain_text import printable, shortened
from autorl.store.signing import is_signed, sign
from autorl.trainers.saved_state import OBJECTS

NOT_RESTORABLE = "environment state not restorable"
_PURPOSE = "environment of a checkpoint"
_DIGITS = 64  # of a signature, which stands before the pickle
_TASKS = "gymnasium.envs.mujoco.mujoco_env"
# Errors of pickling an environment that holds a window, a simulator handle, a socket or a
# local function.
_UNPICKLABLE = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
    NotImplementedError,
    ValueError,
    OSError,
    RuntimeError,
)


SPACES: tuple[Any, ...] = (
    gym.spaces.Box,
    gym.spaces.Discrete,
    gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
    gym.spaces.Dict,
)
"""The spaces that Stable-Baselines3 takes."""
OBJECTS.update({kind.__name__: kind for kind in SPACES})


def bare_space(space: Any) -> Any:
    """Copy a space without its random streams."""
    bare = copy.copy(space)
    bare.__class__ = next(kind for kind in SPACES if isinstance(space, kind))
    bare._np_random = None
    if isinstance(bare, gym.spaces.Dict):
        bare.spaces = {name: bare_space(part) for name, part in bare.spaces.items()}
    return bare


class NotRestoredError(Exception):
    """Says why the episodes of a checkpoint do not go on."""


def pickle_environment(env: gym.Env[Any, Any]) -> bytes:
    """Return an environment with its episode and random streams, signed.

    The result is empty where its state cannot be saved. Environments built on `EzPickle` (Box2D,
    Atari) pickle only their constructor's arguments: the copy has lost the episode.
    """
    layers = list(_layers_of(env))
    if any(isinstance(layer, EzPickle) and not _is_simulated(layer) for layer in layers):
        return b""
    if _share_memory(layers):
        return b""
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(env)
        pickle.loads(stream.getvalue())  # our own of a moment ago: whether it can be read at all
    except _UNPICKLABLE:
        return b""
    # Models of MuJoCo shrink from 1.2 MB to 60 kB in 3 ms.
    packed = zlib.compress(stream.getvalue(), 1)
    return (sign(_PURPOSE, packed) or "-" * _DIGITS).encode() + packed


def unpickle_environment(state: bytes, env: gym.Env[Any, Any], *, trust: bool) -> gym.Env[Any, Any]:
    """Open what `pickle_environment` returned, in place of a new environment.

    Args:
        state: the signed pickle.
        env: the new environment of the same kind, which is closed.
        trust: whether a pickle is opened that this installation did not sign.

    Raises:
        NotRestoredError: the state is empty, strange, or of another environment.
    """
    if not state:
        raise NotRestoredError(NOT_RESTORABLE)
    signature = state[:_DIGITS].decode("ascii", "ignore")
    packed = state[_DIGITS:]
    if not (trust or is_signed(_PURPOSE, packed, signature)):
        raise NotRestoredError(
            "environment state not opened, a pickle this installation did not write "
            "(--trust opens it)"
        )
    try:
        opened: gym.Env[Any, Any] = pickle.loads(zlib.decompress(packed))
    except Exception as error:
        reason = shortened(printable(str(error), keep_lines=False), 120)
        raise NotRestoredError(f"environment state cannot be read ({reason})") from error
    if [type(layer) for layer in _layers_of(opened)] != [type(layer) for layer in _layers_of(env)]:
        raise NotRestoredError("environment state is of another environment")
    env.close()
    return opened


def _layers_of(env: Any) -> Iterator[Any]:
    """Yield an environment's wrappers from the outermost to the task."""
    yield env
    while isinstance(env, gym.Wrapper):
        env = env.env
        yield env


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles tasks of MuJoCo by their attributes, simulation included."""

    def reducer_override(self, value: Any) -> Any:
        if _is_simulated(value):
            return _new, (type(value),), vars(value), None, None, _set_attributes
        return super().reducer_override(value)


def _new(kind: Any) -> Any:
    return kind.__new__(kind)


def _set_attributes(task: Any, attributes: dict[str, Any]) -> None:
    vars(task).update(attributes)


def _is_simulated(value: object) -> bool:
    # A program with such a task has imported its module.
    module = sys.modules.get(_TASKS)
    return module is not None and isinstance(value, module.MujocoEnv)


def _share_memory(layers: list[Any]) -> bool:
    """Tell whether attributes share memory, which those of a copy would not."""
    attributes = _arrays(value for layer in layers for value in vars(layer).values())
    simulations = [layer.data for layer in layers if _is_simulated(layer)]
    simulated = _arrays(getattr(data, name, None) for data in simulations for name in dir(data))
    pairs = itertools.chain(
        itertools.combinations(attributes, 2), itertools.product(attributes, simulated)
    )
    return any(np.may_share_memory(first, second) for first, second in pairs)


def _arrays(values: Iterator[Any]) -> list[np.ndarray[Any, Any]]:
    # By identity: what two layers have in common is one object in the copy too.
    return list({id(value): value for value in values if isinstance(value, np.ndarray)}.values())
