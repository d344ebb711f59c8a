"""The state of an environment, where all of it is plain data.

An environment is its layers: the wrappers and, innermost, the task. What `vars` has of each layer
must be plain data, a space, another layer, or what every new environment of the kind has too. Text
is never restored: a file that comes from others could name a path in it. Tasks of MuJoCo have a
simulation besides (`simulations`). Environments with state elsewhere (other simulators, slots, a
pickling of their own) are not restorable as data.
"""

from __future__ import annotations

import copyreg
import enum
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from autorl.trainers._space_streams import set_space_state, simple_spaces, space_state
from autorl.trainers.sb3 import simulations
from autorl.trainers.sb3.plain_data import NotPlainError, Reader, Writer, holds_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIMPLE = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
_SHARED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum)
_SIMULATION = "simulation"  # names of arrays, before the number of the layer
Document = dict[str, Any]


@dataclass
class _Layer:
    """The parts of one layer that are to be saved.

    Attributes:
        references: numbers of the layers that attributes of this one are.
        streams: states of the generators of the spaces that attributes are.
        simulation: state of a task of MuJoCo, empty for others.
        views: the arrays of the running simulation.
    """

    name: str
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    references: dict[str, int] = field(default_factory=dict)
    streams: dict[str, list[Any]] = field(default_factory=dict)
    simulation: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    views: list[NDArray[np.float64]] = field(default_factory=list)


def capture(
    env: gym.Env[object, object], make: Callable[[], gym.Env[object, object]]
) -> tuple[Document, dict[str, Any]] | None:
    """Return the state of `env` as a JSON document and arrays.

    None where it is not plain data. `make` builds a new environment of the same kind. The state is
    put into it and compared, so what this returns has been restored once. Environments that hold
    anything else than plain data, another simulator perhaps, are not built twice.
    """
    try:
        # Beside itself first: a simulator (it may hold a window or a port) is not built a second
        # time.
        _write(_read_layers(env, env))
        fresh = make()
    except (NotPlainError, RecursionError):
        return None
    try:
        document, arrays = _write(_read_layers(env, fresh))
        restore(fresh, document, arrays)
        # What was restored is captured again: the proof that nothing of the state lies elsewhere.
        document_again, arrays_again = _write(_read_layers(fresh, env))
        names = [
            [vars(layer).keys() for layer in layers_of(environment)] for environment in (env, fresh)
        ]
    except (NotPlainError, ValueError, RecursionError):
        return None
    finally:
        fresh.close()
    same_document = document_again == document and names[0] == names[1]
    if same_document and _identical(arrays, arrays_again):
        return document, arrays
    return None


def restore(
    env: gym.Env[object, object], document: Document, arrays: Mapping[str, NDArray[np.generic]]
) -> None:
    """Put a captured state into a new environment of the same kind.

    Raises:
        ValueError: it is of another kind of environment, or no state at all. The environment is not
            changed then.
    """
    layers = list(layers_of(env))
    saved = document["layers"]
    # All is compared before anything is changed.
    if [layer["class"] for layer in saved] != [_name(layer) for layer in layers]:
        raise ValueError("the environment is made of other layers")
    # No text: it could name a file, and checkpoints may come from others.
    attributes = Reader(arrays, text=False).read(document["attributes"])
    streams = Reader(arrays).read(document["streams"])
    for layer, names in zip(layers, streams, strict=True):
        if any(not isinstance(vars(layer).get(name), gym.Space) for name in names):
            raise ValueError("the environment has other spaces")
    simulated = {
        number: arrays[_SIMULATION + str(number)]
        for number, layer in enumerate(layers)
        if simulations.is_simulated(layer)
    }
    for number, state in simulated.items():
        simulations.check_simulation(layers[number], document["mujoco"], state)
    for layer, content, values, states in zip(layers, saved, attributes, streams, strict=True):
        references = content["references"].items()
        vars(layer).update(values)
        # But `env`, the chain of wrappers, which the new environment has already.
        vars(layer).update({name: layers[number] for name, number in references if name != "env"})
        for name, state in states.items():
            set_space_state(vars(layer)[name], state)
    for number, state in simulated.items():
        simulations.put_simulation(layers[number], state)


def _write(layers: list[_Layer]) -> tuple[Document, dict[str, Any]]:
    """Return the document and arrays of an environment.

    Raises:
        NotPlainError: two attributes share memory in a way that would be lost.
    """
    state = Writer("a")
    streams = Writer("s")
    constants = Writer("c")
    document = {
        "layers": [{"class": layer.name, "references": layer.references} for layer in layers],
        "attributes": state.write([layer.attributes for layer in layers]),
        "streams": streams.write([layer.streams for layer in layers]),
    }
    constants.write([layer.constants for layer in layers])
    # Two views of one array would be two arrays when they are read.
    if state.has_views() or state.seen.keys() & constants.seen.keys():
        raise NotPlainError("attributes share memory")
    views = [view for layer in layers for view in layer.views]
    if any(np.may_share_memory(array, view) for array in state.arrays.values() for view in views):
        raise NotPlainError("an attribute is part of the simulation")
    of_simulations = {
        _SIMULATION + str(number): layer.simulation
        for number, layer in enumerate(layers)
        if len(layer.simulation)
    }
    if of_simulations:
        document["mujoco"] = simulations.version()
    return document, state.arrays | streams.arrays | of_simulations


def _read_layers(env: gym.Env[object, object], other: gym.Env[object, object]) -> list[_Layer]:
    """Collect what is to be saved of an environment.

    `other` is of the same kind.
    """
    layers = list(layers_of(env))
    counterparts = list(layers_of(other))
    if [type(layer) for layer in layers] != [type(counterpart) for counterpart in counterparts]:
        raise NotPlainError("a new environment is made of other layers")
    numbers = {id(layer): number for number, layer in enumerate(layers)}
    return [
        _read_layer(layer, counterpart, numbers)
        for layer, counterpart in zip(layers, counterparts, strict=True)
    ]


def _read_layer(layer: object, counterpart: object, numbers: Mapping[int, int]) -> _Layer:
    """Collect one layer, beside the attributes of its counterpart.

    Raises:
        NotPlainError: the layer has state that is not plain data.
    """
    saved = _Layer(_name(layer))
    attributes = vars(counterpart)
    simulated = simulations.is_simulated(layer)
    if simulated:
        saved.simulation = simulations.simulation_state(layer, counterpart)
        saved.views = simulations.views(layer)
    else:
        _check_whole(layer)
    # Sorted: another environment may have set its attributes in another order.
    for name, value in sorted(vars(layer).items()):
        if simulated and name in simulations.NOT_ATTRIBUTES:
            continue
        if id(value) in numbers:
            saved.references[name] = numbers[id(value)]
        elif isinstance(value, gym.Space):
            # Bounds of a space are not saved, only the streams of its generator.
            if value != attributes.get(name):
                raise NotPlainError(f"the space {name} is another one in a new environment")
            saved.streams[name] = _streams(value)
        elif _is_shared(value, attributes.get(name)):
            continue
        # Text is compared, never restored, so it must be the same in every new environment.
        elif holds_text(value):
            if not _equal(value, attributes.get(name)):
                raise NotPlainError(f"{name} holds text that changes")
            saved.constants[name] = value
        else:
            saved.attributes[name] = value
    return saved


def _check_whole(layer: object) -> None:
    """Check that `vars` is all the state there is.

    The default way of pickling tells.

    Raises:
        NotPlainError: there is more.
    """
    try:
        # Of protocol 2 and later: `copyreg.__newobj__`, the class, and `vars` where nothing else
        # was defined.
        reduced: Any = layer.__reduce_ex__(4)
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise NotPlainError(str(error)) from error
    default = (
        len(reduced) >= 3
        and reduced[0] is vars(copyreg)["__newobj__"]
        and reduced[1] == (type(layer),)
    )
    # What follows are items of subclasses of list and dict.
    if not default or any(part is not None for part in reduced[3:]):
        raise NotPlainError(f"{_name(layer)} has a state of its own")
    state = reduced[2]
    same_names = isinstance(state, dict) and state.keys() == vars(layer).keys()
    if not same_names or any(state[name] is not value for name, value in vars(layer).items()):
        raise NotPlainError(f"{_name(layer)} pickles something else than its attributes")


def _is_shared(value: object, other: object) -> bool:
    """Tell whether a new environment has the same thing by construction.

    It is a class, a function, or a record of how to make it.
    """
    if isinstance(value, EnvSpec):
        return bool(value == other)
    return value is other and isinstance(value, _SHARED)


def _equal(value: object, other: object) -> bool:
    """Tell whether two plain values are the same to the bit."""
    written = Writer()
    other_written = Writer()
    if written.write(value) != other_written.write(other):
        return False
    return _identical(written.arrays, other_written.arrays)


def _identical(
    arrays: Mapping[str, NDArray[np.generic]], others: Mapping[str, NDArray[np.generic]]
) -> bool:
    """Tell whether two sets of arrays are the same to the bit."""
    return arrays.keys() == others.keys() and all(
        array.shape == others[name].shape
        and array.dtype == others[name].dtype
        and array.tobytes() == others[name].tobytes()
        for name, array in arrays.items()
    )


def layers_of(env: object) -> Iterator[Any]:
    """Yield an environment's wrappers from the outermost to the task."""
    yield env
    while isinstance(env, gym.Wrapper):
        env = env.env
        yield env


def _name(layer: object) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _streams(space: gym.Space[object]) -> list[Any]:
    """Return the states of the generators of a space.

    Raises:
        NotPlainError: it is of a kind whose generators are not known.
    """
    for part in simple_spaces(space):
        if not isinstance(part, _SIMPLE):
            raise NotPlainError(f"random streams of a {type(part).__name__} space are not known")
    return space_state(space)
