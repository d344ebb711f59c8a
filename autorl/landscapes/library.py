"""The places of landscapes.

They lie at a path, below a folder, or in the package.
"""

from __future__ import annotations

from pathlib import Path

from autorl.core.shipped import shipped_folder
from autorl.landscapes.manifest import MANIFEST, Manifest
from autorl.landscapes.recorded import is_study


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
