"""Writes the state of a training: numbers, text and arrays.

Every trainer of the package writes it so. The first line is JSON: the state, with the place of each
array, and the types and shapes of the arrays, whose bytes follow one after the other. Reading a
file runs nothing.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from autorl.core.plain_text import printable, shortened
from autorl.core.types import Checkpoint, CheckpointError, Config, InputError, Segment
from autorl.store.checkpoints import MODEL_ONLY, reading, writing
from autorl.trainers.contract import Change
from autorl.trainers.shared import check_continuation

_Array: TypeAlias = np.ndarray[Any, Any]
STATE = "state.autorl"
REPLAY = "replay.autorl"
OBJECTS: dict[str, type] = {}
"""Classes whose objects are data and may be in a state, by name; who needs one adds it."""
# Errors of reading a file that is torn, or of a stranger.
_UNREADABLE = (OSError, LookupError, AttributeError, RuntimeError, TypeError, ValueError)


def save(
    segment: Segment,
    trainer: str,
    step: int,
    state: Mapping[str, object],
    *,
    replay: Mapping[str, object] | None = None,
    moved: Path | None = None,
) -> Checkpoint:
    """Write the checkpoint of a segment.

    Args:
        segment: names the folder.
        trainer: the only one that reads the checkpoint again.
        step: reached.
        state: what the trainer continues from.
        replay: a memory of transitions, which an export does not read.
        moved: a folder whose files go into the checkpoint.
    """
    with writing(segment) as folder:
        for path in sorted(moved.iterdir()) if moved is not None else ():
            # A copy would need the disk space of a model twice.
            shutil.move(path, folder / path.name)
        write(folder / STATE, {"trainer": trainer, "step": step, **state})
        if replay is not None:
            write(folder / REPLAY, replay)
    return Checkpoint(segment.id, segment.folder)


def load(checkpoint: Checkpoint, trainer: str) -> dict[str, Any]:
    """Read what `save` was given, and the `folder` it lies in.

    Raises:
        InputError: the checkpoint is of another trainer.
        CheckpointError: a file cannot be read.
    """
    file = Path(checkpoint.path) / STATE
    if not file.is_file():
        raise InputError(f"{checkpoint.path} is not a checkpoint of {trainer}")
    state = read(file)
    if state.get("trainer") != trainer:
        raise InputError(
            f"{checkpoint.path} is a checkpoint of {state.get('trainer')}, not of {trainer}"
        )
    return {**state, "folder": Path(checkpoint.path)}


def load_parent(
    segment: Segment, trainer: str, values: Mapping[str, object], changes: Mapping[str, Change]
) -> dict[str, Any] | None:
    """Read the checkpoint that a segment continues from, None from scratch.

    Args:
        segment: to be trained.
        trainer: as `save` was told.
        values: every hyperparameter of the segment; a state has them as `values`.
        changes: those that a continued run may change.

    Raises:
        InputError: the checkpoint is of another trainer or step, is a model alone, or has another
            value of a hyperparameter that cannot change.
    """
    if segment.parent is None:
        return None
    if (Path(segment.parent.path) / MODEL_ONLY).exists():
        raise InputError(f"{segment.parent.path} is a model alone: training cannot go on from it")
    state = load(segment.parent, trainer)
    check_continuation(state["values"], Config(values), changes)
    if state["step"] != segment.start:
        raise InputError(
            f"checkpoint is at step {state['step']}, segment {segment.id!r} starts at "
            f"{segment.start}"
        )
    return state


def write(file: Path, state: Mapping[str, object]) -> None:
    """Write a state.

    Raises:
        TypeError: it holds more than data.
    """
    arrays: list[_Array] = []
    tree = _encoded(state, arrays)
    # The order of axes in memory comes back: a convolution rounds by it.
    axes = [np.argsort([-step for step in a.strides], kind="stable").tolist() for a in arrays]
    ordered = [a.transpose(order) for a, order in zip(arrays, axes, strict=True)]
    places = [[a.dtype.str, a.shape, order] for a, order in zip(ordered, axes, strict=True)]
    # Sorted, so that the same state has the same hash in the log of the study.
    text = json.dumps({"arrays": places, "state": tree}, sort_keys=True)
    with file.open("wb") as stream:  # Python's own, which tells an errno
        stream.write(text.encode() + b"\n")
        for array in ordered:
            stream.write(array.ravel().view(np.uint8).data)


def read(file: Path) -> dict[str, Any]:
    """Read what `write` wrote.

    Raises:
        CheckpointError: the file is missing or torn, or holds more than data.
    """
    try:
        with reading(file.parent), file.open("rb") as stream:
            head = json.loads(stream.readline())
            size = os.fstat(stream.fileno()).st_size - stream.tell()
            arrays = []
            for kind, shape, order in head["arrays"]:
                size -= math.prod(shape) * np.dtype(kind).itemsize
                if size < 0:
                    raise ValueError("is torn")
                array = np.empty(shape, kind)
                stream.readinto(array.ravel().view(np.uint8).data)
                arrays.append(array.transpose(np.argsort(order)))
        state: dict[str, Any] = _decoded(head["state"], arrays)
    except _UNREADABLE as error:
        raise CheckpointError(f"cannot be read ({reason_of(error)})", file=str(file)) from error
    return state


def reason_of(error: BaseException) -> str:
    """Return what an error says, in a few words on one line."""
    # Leave out the number of the error, and the path, which the message names anyway.
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    first = text.strip().split("\n")[0]
    return shortened(printable(first, keep_lines=False), 120) or type(error).__name__


def _encoded(value: Any, arrays: list[_Array]) -> Any:
    """Write a value as JSON, with a `$key` for what JSON lacks."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        parts = [_encoded(part, arrays) for part in value]
        return {"$tuple": parts} if isinstance(value, tuple) else parts
    if isinstance(value, Mapping):
        if all(isinstance(name, str) and not name.startswith("$") for name in value):
            return {name: _encoded(part, arrays) for name, part in value.items()}
        return {"$items": _encoded([list(pair) for pair in value.items()], arrays)}
    if isinstance(value, np.dtype):
        return {"$dtype": value.str}
    kind = type(value)
    if OBJECTS.get(kind.__name__) is kind:
        return {"$object": [kind.__name__, _encoded(vars(value), arrays)]}
    # Asked for where it is imported: whoever has a tensor has imported it.
    torch: Any = sys.modules.get("torch")
    tag = "$array"
    if isinstance(value, bytes):
        tag = "$bytes"
        value = np.frombuffer(value, np.uint8)
    elif torch is not None and isinstance(value, torch.Tensor):
        tag = "$tensor"
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OV":
        raise TypeError(f"a checkpoint would hold more than data ({kind.__name__})")
    arrays.append(value)
    return {tag: len(arrays) - 1}


def _decoded(node: Any, arrays: list[_Array]) -> Any:
    """Read a value that `_encoded` wrote."""
    if isinstance(node, list):
        return [_decoded(part, arrays) for part in node]
    match node:
        case {"$array": int(index)}:
            return arrays[index]
        case {"$bytes": int(index)}:
            return arrays[index].tobytes()
        case {"$tensor": int(index)}:
            return importlib.import_module("torch").from_numpy(arrays[index])
        case {"$dtype": str(name)}:
            return np.dtype(name)
        case {"$tuple": parts}:
            return tuple(_decoded(parts, arrays))
        case {"$items": pairs}:
            return dict(_decoded(pairs, arrays))
        case {"$object": [name, attributes]}:
            made: Any = object.__new__(OBJECTS[name])
            vars(made).update(_decoded(attributes, arrays))
            return made
        case dict():
            return {name: _decoded(part, arrays) for name, part in node.items()}
    return node
