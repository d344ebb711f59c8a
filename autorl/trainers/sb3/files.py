"""The files of an SB3 checkpoint: a JSON document, and its arrays.

Reading them runs nothing.

`state.json` says what there is; `state.npz`, `networks.npz` (weights and optimizers) and
`replay.npz` hold the arrays. Environments whose state is no plain data are pickles among the arrays
of the state; nothing here opens them.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autorl.plain_text import printable, shortened, shown
from autorl.trainers.sb3.environments import Frozen
from autorl.trainers.sb3.plain_data import Reader, Writer
from autorl.types import CheckpointError

if TYPE_CHECKING:
    from numpy.typing import NDArray

DOCUMENT = "state.json"
STATE = "state"
NETWORKS = "networks"
REPLAY = "replay"
_VERSION = 2  # 1 were the pickles of autorl before
_UNREADABLE = (
    OSError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read.

    Networks and replay buffer are read when asked for.

    Attributes:
        folder: where it lies.
        state: everything else, by name.
        environments: the state of every environment, or None if it could not be saved.
        networks: reads the state of networks and optimizers, and variables beside them.
        replay: reads the replay buffer; None if there is none.
        earlier: whether an earlier version wrote it.
    """

    folder: Path
    state: Mapping[str, Any]
    environments: tuple[Frozen, ...] | None
    networks: Callable[[], dict[str, Any]]
    replay: Callable[[], dict[str, Any]] | None
    earlier: bool = False

    def file(self, part: str) -> str:
        """Return the name of a part's file, for messages."""
        names = {STATE: "training.pkl", NETWORKS: "model.zip", REPLAY: "replay_buffer.pkl"}
        name = names[part] if self.earlier else f"{part}.npz"
        return str(self.folder / name)


def write(
    folder: Path, parts: Mapping[str, Mapping[str, object]], environments: list[Frozen] | None
) -> None:
    """Write a checkpoint's parts (`state`, `networks`, `replay`) into an empty folder.

    Raises:
        NotPlainError: something in it is not plain data.
    """
    document: dict[str, Any] = {"version": _VERSION}
    for name, values in parts.items():
        writer = Writer()
        document[name] = writer.write(dict(values))
        arrays = dict(writer.arrays)
        if name == STATE:
            document["environments"] = _write_environments(environments, arrays)
        np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    (folder / DOCUMENT).write_text(json.dumps(document) + "\n", encoding="utf-8")


def read(folder: Path) -> Saved:
    """Read a checkpoint of this version.

    Raises:
        CheckpointError: a file of it is missing or torn, or holds something else. Names the file.
    """
    path = folder / DOCUMENT
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise torn(path, error) from error
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise CheckpointError(
            f"expected a checkpoint of version {_VERSION} of its format", file=str(path)
        )
    # The replay buffer may be missing: not every algorithm has one.
    missing = [name for name in (STATE, NETWORKS, "environments") if name not in document]
    if missing:
        raise CheckpointError(f"holds no {missing[0]}", file=str(path))
    arrays = _read_arrays(folder, STATE)

    # An export reads no replay buffer, perhaps the largest part.
    def replay() -> dict[str, Any]:
        return _read_part(folder, REPLAY, document, _read_arrays(folder, REPLAY))

    return Saved(
        folder=folder,
        state=_read_part(folder, STATE, document, arrays),
        environments=_read_environments(path, document["environments"], arrays),
        networks=lambda: _read_part(folder, NETWORKS, document, _read_arrays(folder, NETWORKS)),
        replay=replay if REPLAY in document else None,
    )


def check_same_names(given: Collection[str], expected: Collection[str], file: str) -> None:
    """Check that a file has the names expected of it, no more.

    Raises:
        CheckpointError: a name is missing, or one too many.
    """
    missing = sorted(set(expected) - set(given))
    more = sorted(set(given) - set(expected))
    if missing:
        raise CheckpointError(f"{missing[0]} is missing", file=file)
    if more:
        raise CheckpointError(f"{shown(more[0])} is nothing this model has", file=file)


def torn(path: Path, error: BaseException) -> CheckpointError:
    """Make the error that a file cannot be read."""
    return CheckpointError(f"cannot be read ({reason_of(error)})", file=str(path))


def reason_of(error: BaseException) -> str:
    """Return what an error says, in a few words on one line.

    It may quote what a stranger wrote.
    """
    # Without the number of the error, and the path that the message names anyway.
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return shortened(printable(text.split("\n")[0], keep_lines=False), 120) or type(error).__name__


def _read_part(
    folder: Path,
    name: str,
    document: Mapping[str, object],
    arrays: Mapping[str, NDArray[np.generic]],
) -> dict[str, Any]:
    try:
        values = Reader(arrays).read(document[name])
    except (*_UNREADABLE, RecursionError, RuntimeError) as error:
        raise torn(folder / f"{name}.npz", error) from error
    if not isinstance(values, dict):
        raise CheckpointError(f"holds no {name}", file=str(folder / DOCUMENT))
    return values


def _read_arrays(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.npz"
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (*_UNREADABLE, AttributeError) as error:  # a lone array has no files
        raise torn(path, error) from error


def _write_environments(
    environments: list[Frozen] | None, arrays: dict[str, NDArray[np.generic]]
) -> Any:
    """Return the document of frozen environments.

    Their arrays are added to `arrays`.
    """
    if environments is None:
        return None
    entries: list[Any] = []
    for number, frozen in enumerate(environments):
        prefix = f"environment{number}."
        if frozen.document is None:
            arrays[f"{prefix}pickle"] = np.frombuffer(frozen.pickled, np.uint8)
            entries.append({"signature": frozen.signature})
        else:
            arrays |= {prefix + name: array for name, array in frozen.arrays.items()}
            entries.append({"document": frozen.document})
    return entries


def _read_environments(
    path: Path, entries: Any, arrays: Mapping[str, NDArray[np.generic]]
) -> tuple[Frozen, ...] | None:
    if entries is None:
        return None
    environments: list[Frozen] = []
    try:
        for number, entry in enumerate(entries):
            prefix = f"environment{number}."
            of_environment = {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            }
            if "document" in entry:
                environments.append(Frozen(entry["document"], of_environment))
            else:
                signature = entry["signature"]
                pickled = of_environment["pickle"].tobytes()
                # Then it is opened on trust alone.
                if not isinstance(signature, str):
                    signature = None
                environments.append(Frozen(pickled=pickled, signature=signature))
    except _UNREADABLE as error:
        raise torn(path, error) from error
    return tuple(environments)
