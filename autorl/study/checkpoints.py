"""Checkpoints of a study: their places, sizes and damages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from autorl.core.types import Checkpoint, SegmentId, StorageError
from autorl.store import Store
from autorl.store.checkpoints import folder_size, remove, set_aside
from autorl.store.remote import is_url


def is_there(store: Store, path: str) -> bool:
    """Say whether a checkpoint may be continued from.

    The answer is as far as this machine knows. The caller's own are not looked for. Whether one in
    a storage is there shows when a worker fetches it.
    """
    return is_url(path) or Path(path).exists() or not store.owns(path)


def bytes_of(checkpoint: Checkpoint) -> int:
    """Return the size of a checkpoint.

    A checkpoint in a storage has the size that its manifest said.
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
        Its new place, for people.

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


class CheckpointSizes:
    """Adds up the bytes of the checkpoints that lie on disk.

    A checkpoint is measured when the sum is first asked for: nobody asks where nothing limits the
    disk, and a long log names thousands that are gone.
    """

    def __init__(self) -> None:
        self._sum = 0
        self._sizes: dict[SegmentId, int] = {}
        self._unmeasured: dict[SegmentId, Checkpoint] = {}

    def add(self, segment: SegmentId, checkpoint: Checkpoint) -> None:
        """Take note of a checkpoint.

        It takes the place of an earlier one of the same segment.
        """
        self.remove(segment)
        self._unmeasured[segment] = checkpoint

    def remove(self, segment: SegmentId) -> None:
        """Take note that the checkpoint of a segment is gone.

        Nothing happens where it had none.
        """
        self._unmeasured.pop(segment, None)
        self._sum -= self._sizes.pop(segment, 0)

    def total(self) -> int:
        """Return the bytes of all of them."""
        for segment, checkpoint in self._unmeasured.items():
            self._sizes[segment] = bytes_of(checkpoint)
            self._sum += self._sizes[segment]
        self._unmeasured.clear()
        return self._sum


FROM_START = "no checkpoint to continue: trained from step 0"  # a note of outcomes


class DamagedCheckpoints:
    """The damaged checkpoints of a session, by the segment that wrote them.

    They count as gone. Nothing is recorded: the next session finds the folder gone, or back again
    if somebody has mended it.

    Args:
        store: of the study.

    Attributes:
        unmoved: those that still lie where they were saved.
    """

    def __init__(self, store: Store) -> None:
        self.unmoved: set[SegmentId] = set()
        self._store = store
        self._damage: dict[SegmentId, str] = {}  # in words, as the workers saw it

    def __len__(self) -> int:
        return len(self._damage)

    def __contains__(self, segment: object) -> bool:
        return segment in self._damage

    def add(self, segment: SegmentId, damage: str) -> None:
        """Count the checkpoint of a segment as gone from now on."""
        if segment not in self._damage:
            self._damage[segment] = damage
            self.unmoved.add(segment)

    def remove(self, segment: SegmentId) -> None:
        """Take note that a segment has a whole checkpoint again."""
        self._damage.pop(segment, None)

    def set_aside(
        self, saved: Mapping[SegmentId, Checkpoint], read: Collection[SegmentId]
    ) -> list[str]:
        """Move damaged checkpoints that nobody reads out of the way.

        Args:
            saved: where checkpoints lie.
            read: what running segments continue: one that began before the damage may be reading.

        Returns:
            A line for people for each moved folder.
        """
        lines = []
        for segment in sorted(self.unmoved.difference(read)):
            self.unmoved.discard(segment)
            where = set_aside_own(self._store, saved[segment].path)
            damage = self._damage[segment]
            lines.append(f"checkpoint {segment} is damaged ({damage}): not continued from; {where}")
        return lines

    def why_from_start(self, parent: SegmentId | None) -> str:
        """Return the note of a segment that was trained from step 0.

        It was to continue `parent`.
        """
        if parent is None or parent not in self._damage:
            return FROM_START
        return f"checkpoint {parent} is damaged ({self._damage[parent]}): trained from step 0"
