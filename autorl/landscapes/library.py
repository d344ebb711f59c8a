"""The places of landscapes: a path, a folder, the package, a study.

This room is below studies. It knows by which file a study's folder is recognised and who reads it:
a study says what it has recorded as tables and a manifest (`autorl.study.results.landscape`).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from autorl.core.shipped import shipped_folder
from autorl.landscapes.manifest import MANIFEST, Manifest
from autorl.landscapes.schema import Tables
from autorl.space import Space
from autorl.store.store import STUDY_FILE


@dataclass(frozen=True)
class Recording:
    """A data set that is not stored in the landscape format's files."""

    manifest: Manifest
    space: Space
    tables: Tables


def is_study(folder: Path) -> bool:
    """Say whether `folder` holds a study."""
    return (folder / STUDY_FILE).is_file()


def read_study(folder: Path) -> Recording:
    """Read what the study in `folder` has recorded until now.

    Raises:
        InputError: there is no study, or its files cannot be read.
    """
    # By its name: a study is above this room, and imported when one is first opened.
    reader = importlib.import_module("autorl.study.results.landscape")
    recording: Recording = reader.read_study(folder)
    return recording


def list_landscapes(root: str | Path) -> dict[str, Path]:
    """List the folders under `root` that hold a landscape, by id.

    Hidden folders (unfinished writes) are left out.
    """
    base = Path(root)
    # Sorted: file systems list folders in any order.
    folders = (path.parent for path in sorted(base.rglob(MANIFEST)))
    visible = (
        folder
        for folder in folders
        if not any(part.startswith(".") for part in folder.relative_to(base).parts)
    )
    return {Manifest.read(folder).id: folder for folder in visible}


def shipped_root() -> Path | None:
    """Find the folder of the landscapes that come with the package.

    The result is None where there are none.
    """
    return shipped_folder("landscapes")


def find_landscape(
    source: str | Path, root: str | Path = "landscapes", folder: str | Path | None = None
) -> Path | None:
    """Find the folder of a landscape or study.

    `source` is a path, or an id below `root` or shipped. The result is None if there is none.

    Relative ones are looked for in `folder` (that of a study file, say), then in the working
    folder.
    """
    places = [Path(folder)] if folder is not None else []
    candidates = [
        base / candidate
        for base in (*places, Path())
        for candidate in (Path(source), Path(root) / str(source))
    ]
    if (shipped := shipped_root()) is not None:
        candidates.append(shipped / str(source))
    return next(
        (
            candidate
            for candidate in candidates
            if (candidate / MANIFEST).is_file() or is_study(candidate)
        ),
        None,
    )
