"""Checkpoints of a study: their places, sizes and damages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autorl.core.types import Checkpoint, SegmentId, StorageError
from autorl.store import Store
from autorl.store.checkpoints import folder_size, remove, set_aside
from autorl.store.remote import is_url
from autorl.study.journal import say


@contextmanager
def _unless_it_fails(left: str) -> Iterator[None]:
    """Say what is left in a storage that does not answer."""
    try:
        yield
    except StorageError as error:
        say(f"{error}: {left}")


def remove_own(store: Store, paths: Iterable[str]) -> None:
    """Remove those checkpoints that are the study's own.

    `Offsite.sweep` removes later what a storage does not remove now.

    Raises:
        StudyError: another driver has taken the storage over: none is removed there.
    """
    owned = [path for path in paths if store.owns(path)]
    for path in owned:
        if not is_url(path):
            remove(Path(path))
    with _unless_it_fails("checkpoints that nobody needs are left there"):
        if store.offsite is not None:
            store.offsite.remove([path for path in owned if is_url(path)])


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


def sweep_storage(store: Store, saved: Iterable[Checkpoint]) -> None:
    """Remove from the storage what no event names.

    Nothing is in flight then.

    Raises:
        StudyError: another driver has taken the storage over: none is removed there.
    """
    with _unless_it_fails("what nobody needs is left there"):
        if store.offsite is not None:
            store.offsite.sweep([checkpoint.path for checkpoint in saved])


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
            # One in a storage has the size that its manifest said.
            in_storage = is_url(checkpoint.path)
            size = checkpoint.size if in_storage else folder_size(Path(checkpoint.path))
            self._sizes[segment] = size
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

    def set_aside(self, saved: Mapping[SegmentId, Checkpoint], read: Collection[SegmentId]) -> None:
        """Move damaged checkpoints that nobody reads out of the way.

        Args:
            saved: where checkpoints lie.
            read: what running segments continue: one that began before the damage may be reading.
        """
        for segment in sorted(self.unmoved.difference(read)):
            self.unmoved.discard(segment)
            where = set_aside_own(self._store, saved[segment].path)
            damage = self._damage[segment]
            say(f"checkpoint {segment} is damaged ({damage}): not continued from; {where}")

    def why_from_start(self, parent: SegmentId | None) -> str:
        """Return the note of a segment that was trained from step 0.

        It was to continue `parent`.
        """
        if parent is None or parent not in self._damage:
            return FROM_START
        return f"checkpoint {parent} is damaged ({self._damage[parent]}): trained from step 0"
