"""The bytes that a study's recorded checkpoints take."""

from __future__ import annotations

from autorl.study.checkpoint_places import bytes_of
from autorl.types import Checkpoint, SegmentId


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
