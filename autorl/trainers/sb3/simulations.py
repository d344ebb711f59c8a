"""The state of a MuJoCo simulation as one array.

`mj_getState` gives what determines the next step to the bit. Some tasks read more before it: the
positions of bodies, which MuJoCo computes at the beginning of a step. They lag behind the state, so
every array of the simulation's data whose size the model gives is saved as well.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.utils import EzPickle

from autorl.trainers.sb3.plain_data import NotPlainError

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOT_ATTRIBUTES = ("model", "data", "mujoco_renderer")
"""Attributes of a task that are the simulation, or draw it."""
_TASKS = "gymnasium.envs.mujoco.mujoco_env"


def is_simulated(layer: object) -> bool:
    """Tell whether a layer of an environment is a task of MuJoCo.

    It has no state but its attributes and the simulation.
    """
    # Who has such a task has imported it.
    module = sys.modules.get(_TASKS)
    if module is None or not isinstance(layer, module.MujocoEnv):
        return False
    kind: Any = type(layer)
    if any(vars(base).get("__slots__") for base in kind.__mro__):
        return False
    # `EzPickle` leaves all state out: another pickling would know of more.
    return not isinstance(layer, EzPickle) or (
        kind.__getstate__ is EzPickle.__getstate__ and kind.__setstate__ is EzPickle.__setstate__
    )


def version() -> str:
    """Return the version of MuJoCo, whose arrays differ from version to version."""
    import mujoco

    return str(mujoco.__version__)


def views(task: Any) -> list[NDArray[np.float64]]:
    """Return the arrays of a simulation's data whose size the model gives."""
    import mujoco

    fresh = mujoco.MjData(task.model)
    arrays = {name: getattr(fresh, name, None) for name in dir(fresh) if not name.startswith("_")}
    # Those of contacts and constraints are empty before the first step.
    names = [
        name
        for name, array in sorted(arrays.items())
        if isinstance(array, np.ndarray) and array.dtype == np.float64 and array.size
    ]
    return [getattr(task.data, name) for name in names]


def simulation_state(task: Any, other: Any) -> NDArray[np.float64]:
    """Return the state of a simulation.

    `other` is a new task of the same kind.

    Raises:
        NotPlainError: the model is not what a new task has, or has a state that is in no array.
    """
    import mujoco

    if not hasattr(mujoco, "mj_getState"):
        raise NotPlainError(f"MuJoCo {mujoco.__version__} does not tell its state")
    if task.model is not other.model and _saved(task.model) != _saved(other.model):
        raise NotPlainError("the model of the simulation has been changed")
    if task.model.nplugin:
        raise NotPlainError("the simulation has plugins")
    sleeping = getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)
    if task.model.opt.enableflags & int(sleeping):
        raise NotPlainError("bodies of the simulation may sleep")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.zeros(mujoco.mj_stateSize(task.model, kind))
    mujoco.mj_getState(task.model, task.data, state, kind)
    return np.concatenate([state, *(array.ravel() for array in views(task))])


def check_simulation(task: Any, saved_version: object, state: NDArray[Any]) -> None:
    """Check that a saved state is one of this simulation.

    Raises:
        ValueError: it is not.
    """
    import mujoco

    if saved_version != version():
        raise ValueError(f"the simulation was saved by MuJoCo {saved_version}")
    size = mujoco.mj_stateSize(task.model, mujoco.mjtState.mjSTATE_INTEGRATION)
    expected = size + sum(array.size for array in views(task))
    if state.shape != (expected,) or state.dtype != np.float64:
        raise ValueError("the simulation is of another model")


def put_simulation(task: Any, state: NDArray[Any]) -> None:
    """Put a checked state into a simulation."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    position = mujoco.mj_stateSize(task.model, kind)
    mujoco.mj_setState(task.model, task.data, state[:position].copy(), kind)
    for array in views(task):
        array[...] = state[position : position + array.size].reshape(array.shape)
        position += array.size


def _saved(model: Any) -> bytes:
    import mujoco

    content = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    return content.tobytes()
