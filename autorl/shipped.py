"""Where files lie that come with the package. Imports nothing of `autorl`."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped_folder(kind: str) -> Path | None:
    """Find the folder of shipped files, in an installation or a checkout.

    Args:
        kind: `search_spaces`, `landscapes` or `priors`.

    Returns:
        The folder, or None where such files were not installed.
    """
    candidates = (_PACKAGE / "_shipped" / kind, _PACKAGE.parent / kind)
    return next((folder for folder in candidates if folder.is_dir()), None)
