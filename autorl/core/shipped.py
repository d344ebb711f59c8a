"""Paths of the package's files and of caches. Imports nothing of `autorl`."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(kind: str) -> Path | None:
    """Find the folder of shipped files, in an installation or a checkout.

    Args:
        kind: `search_spaces`, `landscapes` or `priors`.

    Returns:
        The folder, or None where such files were not installed.
    """
    candidates = (_PACKAGE / "_shipped" / kind, _PACKAGE.parent / kind)
    return next((folder for folder in candidates if folder.is_dir()), None)


def cache_folder(kind: str) -> Path:
    """Return the folder of files that are kept between processes.

    It lies in `$AUTORL_CACHE`, else in the user's cache folder; `kind` names the files' room.
    """
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(os.environ.get("AUTORL_CACHE") or user / "autorl") / kind
