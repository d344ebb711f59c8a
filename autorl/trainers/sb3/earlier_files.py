"""Reads checkpoints of earlier versions, which are pickles, as data.

A pickle names classes and functions to call. Those that make plain data are called; the classes
that such a checkpoint has by right (spaces, generators, the normaliser) become records of what they
were given, and never run; any other name ends the reading with an error. The environments in it
stay unread, bytes that only `trust` opens.
"""

from __future__ import annotations

import base64
import collections
import io
import json
import pickle
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from autorl.plain_text import printable, shortened
from autorl.trainers.sb3.environments import Frozen
from autorl.trainers.sb3.files import Saved, torn
from autorl.trainers.sb3.normaliser import normaliser_state
from autorl.trainers.sb3.spaces import attributes_as_data
from autorl.types import CheckpointError, Config, FrozenMap

_TRAINING = "training.pkl"
_MODEL = "model.zip"
_REPLAY = "replay_buffer.pkl"
_NORMALISER = "vecnormalize.pkl"
_RECORDED = re.compile(
    r"gymnasium\.spaces\.\w+|numpy\.random\.\w+"
    r"|stable_baselines3\.common\.(vec_env\.vec_normalize|running_mean_std)"
)
# What a torn or changed file may raise in unpickling, unzipping and building arrays.
_TORN = (
    *(
        OSError,
        EOFError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        zlib.error,
        UnicodeDecodeError,
        ImportError,
    ),
    *(
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RuntimeError,
        MemoryError,
        OverflowError,
    ),
)


class _Record:
    """The arguments that an object of another class was given.

    Nothing of that class runs.
    """

    origin = ""
    state: Any = None

    def __new__(cls, *arguments: object, **options: object) -> _Record:
        record = object.__new__(cls)
        record.arguments = arguments
        return record

    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    arguments: tuple[Any, ...] = ()

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__.get("state")
        if isinstance(state, dict) and name in state:
            return state[name]
        raise AttributeError(name)


def _storage(data: bytes) -> Any:
    """Return a tensor's memory, as a pickled tensor names it.

    torch's own function would unpickle anything.
    """
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _called() -> dict[tuple[str, str], Callable[..., Any]]:
    """Return functions and classes that make plain data.

    They go by the names pickles have for them.
    """
    functions: dict[tuple[str, str], Callable[..., Any]] = {
        ("collections", "deque"): collections.deque,
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("autorl.types", "FrozenMap"): FrozenMap,
        ("autorl.types", "Config"): Config,
        ("torch.storage", "_load_from_bytes"): _storage,
        ("torch._utils", "_rebuild_tensor_v2"): vars(torch._utils)["_rebuild_tensor_v2"],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }
    # Each is pickled by another function.
    for array in (
        np.zeros(1),
        np.zeros((2, 2))[:, :1],
        np.float64(0.0),
    ):
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            function = array.__reduce_ex__(protocol)[0]
            assert callable(function)
            for module in (
                function.__module__,
                # NumPy 2 renamed the module; earlier pickles name the old one.
                function.__module__.replace("numpy._core", "numpy.core"),
            ):
                functions[module, function.__name__] = function
    return functions


class _Unpickler(pickle.Unpickler):
    """Reads plain data and records of known classes.

    With `trust`, everything else is what the pickle says.
    """

    def __init__(self, file: BinaryIO, name: str, *, trust: bool) -> None:
        super().__init__(file)
        self._name = name
        self._trust = trust
        self._functions = _called()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._functions:
            return self._functions[module, name]
        if _RECORDED.fullmatch(module):
            return type("Recorded", (_Record,), {"origin": name})
        if (
            module == "numpy"
            and isinstance(vars(np).get(name), type)
            and issubclass(vars(np)[name], np.generic)
        ):
            return vars(np)[name]
        # Only now: what is known as data stays data also for those who are trusted.
        if self._trust:
            return super().find_class(module, name)
        # A stranger may have chosen the name: it may hold control characters, or be long.
        asked = shortened(printable(f"{module}.{name}", keep_lines=False))
        raise CheckpointError(
            f"is a pickle that asks for {asked}: not opened (--trust opens it)", file=self._name
        )


def are_in(folder: Path) -> bool:
    """Tell whether a checkpoint of an earlier version lies in a folder."""
    return (folder / _TRAINING).is_file()


def read(folder: Path, *, trust: bool) -> Saved:
    """Read a checkpoint of an earlier version.

    Raises:
        CheckpointError: a file of it is missing, torn, or asks for something that is no data. Names
            the file.
    """
    training = _load(folder / _TRAINING, trust=trust)
    if not isinstance(training, dict):
        raise CheckpointError("is not the state of a run", file=str(folder / _TRAINING))
    document = _model_document(folder / _MODEL)
    state = {"normaliser": None, "class": "", "n_envs": document.get("n_envs", 1), **training}
    state["horizon"] = document.get("_total_timesteps", 0)
    state["definition"] = [
        _space(folder / _MODEL, document, name) for name in ("observation_space", "action_space")
    ]
    if (folder / _NORMALISER).is_file():
        normaliser = _load(folder / _NORMALISER, trust=trust)
        try:
            state["normaliser"] = normaliser_state(normaliser, training.get("normaliser_returns"))
        except AttributeError as error:
            raise torn(folder / _NORMALISER, error) from error
    frozen = training.get("environments")
    environments = None
    if frozen is not None:
        # Without a signature, which earlier versions did not write: opened on trust alone.
        environments = tuple(Frozen(pickled=bytes(pickled)) for pickled in frozen)

    def replay() -> dict[str, Any]:
        buffer = _load(folder / _REPLAY, trust=trust)
        if not isinstance(buffer, dict):
            raise CheckpointError("is not a replay buffer", file=str(folder / _REPLAY))
        return buffer

    return Saved(
        folder=folder,
        state=state,
        environments=environments,
        networks=lambda: _networks(folder / _MODEL),
        replay=replay if (folder / _REPLAY).is_file() else None,
        earlier=True,
    )


def _load(path: Path, *, trust: bool) -> Any:
    try:
        with path.open("rb") as file:
            return _Unpickler(file, str(path), trust=trust).load()
    except CheckpointError:
        raise
    except _TORN as error:
        raise torn(path, error) from error


def _networks(path: Path) -> dict[str, Any]:
    """State dicts of a zip that SB3 wrote, without its pickled part."""
    parameters: dict[str, Any] = {}
    variables: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if not name.endswith(".pth"):
                    continue
                content = torch.load(
                    io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True
                )
                # SAC's entropy coefficient; the other files are state dicts of networks and
                # optimizers.
                if name == "pytorch_variables.pth":
                    variables = content or {}
                else:
                    parameters[name.removesuffix(".pth")] = content
    except (*_TORN, NotImplementedError) as error:  # a zip of another kind of compression
        raise torn(path, error) from error
    return {"parameters": parameters, "variables": variables}


def _model_document(path: Path) -> dict[str, Any]:
    """Return the JSON part of a zip that SB3 wrote.

    Pickles in it are left as text.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            document = json.loads(archive.read("data"))
    except (*_TORN, NotImplementedError) as error:
        raise torn(path, error) from error
    if not isinstance(document, dict):
        raise CheckpointError("is not a model of Stable-Baselines3", file=str(path))
    return document


def _space(path: Path, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a space as plain data, from the pickle of it.

    The pickle stands in a model's document.
    """
    try:
        pickled = base64.b64decode(document[name][":serialized:"])
        return _space_as_data(_Unpickler(io.BytesIO(pickled), str(path), trust=False).load())
    except CheckpointError:
        raise
    except _TORN as error:
        raise torn(path, error) from error


def _space_as_data(record: _Record) -> dict[str, Any]:
    """Do what `spaces.space_as_data` does, from the record of a space."""
    return attributes_as_data(record.origin, record, _space_as_data)
