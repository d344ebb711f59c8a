"""Look-ups that commands of `autorl landscape` share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autorl.core.types import InputError
from autorl.landscapes import (
    Landscape,
    find_landscape,
    list_landscapes,
    load_landscape,
    shipped_root,
)

ROOT = Path("landscapes")


def landscapes_of(sources: list[str]) -> list[Landscape]:
    """Open the landscapes that words stand for, each once.

    A word is an id, a folder, or a folder of many.

    A folder of many may be a path, or the beginning of an id below ./landscapes or among the
    shipped ones.
    """
    landscapes: dict[Path, Landscape] = {}
    for source in sources:
        for landscape in _below(source) or [load_landscape(source)]:
            landscapes.setdefault(landscape.path.resolve(), landscape)
    return list(landscapes.values())


def _below(source: str) -> list[Landscape]:
    """List the landscapes of a folder of many, by its word.

    The word may stand for several places; the first that has landscapes counts.
    """
    if find_landscape(source):
        return []
    # In the order in which `find_landscape` looks for a single one.
    folders = [Path(source), ROOT / source]
    shipped = shipped_root()
    if shipped is not None:
        folders.append(shipped / source)
    for folder in folders:
        paths = list(list_landscapes(folder).values()) if folder.is_dir() else []
        if paths:
            return [Landscape(path) for path in paths]
    return []


def role(text: str | None) -> Any:
    """Check a seed role.

    None is left to the analysis.
    """
    if text is not None and text not in ("tuning", "test", "all"):
        raise InputError(f"expected tuning, test or all, got {text!r}", key="--seeds")
    return text
