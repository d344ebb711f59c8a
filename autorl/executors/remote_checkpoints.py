"""Gives a segment its checkpoints on the machine it is trained on.

The parent of a segment may lie in a storage, and what it saves may go there. Trainers read and
write folders of their machine: the parent comes from the read cache, and what was saved is uploaded
when the training has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from autorl.core.shipped import cache_folder
from autorl.core.types import FrozenMap, InputError, Outcome, Segment, StorageError
from autorl.store.cache import CheckpointCache
from autorl.store.checkpoints import folder_size, scratch
from autorl.store.remote import RemoteFolder, is_url


@contextmanager
def at_hand(segment: Segment) -> Iterator[Segment]:
    """Give the segment with folders of this machine while the block runs.

    Raises:
        DamagedError: its parent in the storage is not what was saved.
        StorageError: the storage does not answer, or cannot be used here.
    """
    parent = segment.parent
    # A reference of the trainer's own may be a URL too: of that no hashes are known.
    remote = parent is not None and is_url(parent.path) and bool(parent.files)
    if not segment.storage and not remote:
        yield segment
        return
    with ExitStack() as held:
        if parent is not None and remote:
            source = remote_folder(parent.path)
            with _cache_told():
                folder = held.enter_context(CheckpointCache().reading(parent.files, source))
            segment = replace(segment, parent=replace(parent, path=str(folder)))
        if segment.storage:
            if segment.scratch and not Path(segment.scratch).parent.parent.is_dir():
                # The driver's study is on another machine.
                with _cache_told():
                    place = held.enter_context(CheckpointCache().temporary())
                segment = replace(segment, scratch=str(place))
            folder = held.enter_context(scratch(segment))
            name = segment.storage.rpartition("/")[2]
            segment = replace(segment, folder=str(folder / name))
        yield segment


def uploaded(outcome: Outcome, local: Segment) -> Outcome:
    """Upload what a segment saved, and name it by its URL.

    `local` is the segment as `at_hand` gave it. The read cache takes the files over: whoever
    continues on this machine needs no download.

    Raises:
        StorageError: it cannot be uploaded: there is no checkpoint then.
    """
    saved = outcome.checkpoint
    if saved is None or not local.storage:
        return outcome
    # A trainer may name a folder within its own; anything else is a reference of its own.
    if not Path(saved.path).is_relative_to(local.folder):
        return outcome
    files = FrozenMap(remote_folder(local.storage).upload(Path(saved.path)))
    checkpoint = replace(saved, path=local.storage, files=files, size=folder_size(Path(saved.path)))
    # It is safe in the storage: without a copy here it is fetched from there.
    with suppress(OSError):
        CheckpointCache().adopt(Path(saved.path), files)
    return replace(outcome, checkpoint=checkpoint)


@contextmanager
def _cache_told() -> Iterator[None]:
    """Tell an unusable cache from a failure of the training."""
    try:
        yield
    except (OSError, InputError) as error:
        place = cache_folder("checkpoints")
        raise StorageError(f"the read cache {place} cannot be used ({error})") from error


def remote_folder(url: str) -> RemoteFolder:
    """Return a folder of the study's storage for a worker.

    Raises:
        StorageError: what it needs is not installed here, which is no fault of a configuration.
    """
    try:
        return RemoteFolder(url)
    except InputError as error:
        raise StorageError(str(error)) from error
