"""Looks up, removes and sets aside checkpoints wherever they lie.

That is in the study's folder or in its storage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from autorl.store import Store
from autorl.store.checkpoints import folder_size, set_aside
from autorl.store.remote import StorageError, is_url
from autorl.study.attempt_files import remove
from autorl.types import Checkpoint


def is_there(store: Store, path: str) -> bool:
    """Say whether a checkpoint may be continued from.

    The answer is as far as this machine knows. The caller's own are not looked for. Whether one in
    a storage is there shows when a worker fetches it.
    """
    return is_url(path) or Path(path).exists() or not store.owns(path)


def bytes_of(checkpoint: Checkpoint) -> int:
    """Return the size of a checkpoint.

    That of one in a storage is what its manifest said.
    """
    if is_url(checkpoint.path):
        return checkpoint.size
    return folder_size(Path(checkpoint.path))


def remove_own(store: Store, paths: Iterable[str]) -> list[str]:
    """Remove those checkpoints that are the study's own.

    Returns:
        Why some are left in the storage, one line for people; `Offsite.sweep` removes them later.

    Raises:
        StudyError: another driver has taken the storage over: none is removed there.
    """
    owned = [path for path in paths if store.owns(path)]
    for path in owned:
        if not is_url(path):
            remove(Path(path))
    try:
        if store.offsite is not None:
            store.offsite.remove([path for path in owned if is_url(path)])
    except StorageError as error:
        return [f"{error}: checkpoints that nobody needs are left there"]
    return []


def set_aside_own(store: Store, path: str) -> str:
    """Move a damaged checkpoint of the study's own out of the way.

    Returns:
        Where it lies then, for people.

    Raises:
        StudyError: another driver has taken the storage over: it is left there.
    """
    if not store.owns(path):
        return f"left in {path}"
    if not is_url(path) or store.offsite is None:
        return set_aside(Path(path))
    try:
        return store.offsite.set_aside(path)
    except StorageError as error:
        return f"left there ({error})"


def sweep_storage(store: Store, saved: Collection[Checkpoint]) -> list[str]:
    """Remove from the storage what no event names.

    `Offsite.sweep` says how.

    Returns:
        Why some is left there, one line for people.

    Raises:
        StudyError: another driver has taken the storage over: none is removed there.
    """
    if store.offsite is None:
        return []
    try:
        store.offsite.sweep([checkpoint.path for checkpoint in saved])
    except StorageError as error:
        return [f"{error}: what nobody needs is left there"]
    return []
