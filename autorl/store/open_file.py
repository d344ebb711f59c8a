"""Notices when a file that is open has lost its name."""

from __future__ import annotations

import os
from pathlib import Path

from autorl.core.types import StudyError


class OpenFile:
    """The database file a driver has open.

    It notices when its path leads to another file or nowhere.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = self._now()

    def check(self) -> None:
        """Raise `StudyError` when the file was removed, moved or replaced."""
        if self._now() != self._identity:
            raise StudyError(
                f"{self._path}: was removed, moved or replaced while the study ran: this driver "
                "stops, what it writes "
                "from now on would be lost"
            )

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino
