"""Checks the name of a study, which names its folder."""

from __future__ import annotations

import os

from autorl.core.plain_text import printable, shown
from autorl.core.types import InputError

LONGEST_NAME = 255  # bytes of one folder's name on Linux and macOS


def check_folder_name(name: str, key: str = "name") -> None:
    """Check that `name` is the name of one folder, on every system.

    It becomes the study's folder below studies/, so it must neither leave that folder nor name it.

    Raises:
        InputError: it is empty, too long, a path, or has control characters.
    """
    if not name.strip():
        raise InputError("expected a name: it is the study's folder below studies/", key=key)
    if printable(name, keep_lines=False) != name:
        raise InputError(
            f"expected one folder name without control characters, got {shown(name)}", key=key
        )
    # The backslash parts folders on Windows.
    if "/" in name or "\\" in name or name in (".", ".."):
        raise InputError(f"expected one folder name, no path, got {shown(name)}", key=key)
    length = len(os.fsencode(name))
    if length > LONGEST_NAME:
        message = f"expected a folder name of at most {LONGEST_NAME} bytes, got {length}"
        raise InputError(message, key=key)
