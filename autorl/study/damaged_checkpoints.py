"""Checkpoints that workers have found damaged."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autorl.store import Store
from autorl.study.checkpoint_places import set_aside_own
from autorl.types import Checkpoint, SegmentId

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
        """Move those that nobody reads out of the way.

        Args:
            saved: where checkpoints lie.
            read: what running segments continue: one that began before the damage may be reading.

        Returns:
            What was moved where, a line each for people.
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
