"""Which code made the data: the version of a package and a hash of what is installed under its name."""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

from autorl.types import FrozenMap

_OWN = "autorl"


def package(name: str, version: str) -> FrozenMap:
    """`version`, and `sha256` if that version of the package is the one installed here.

    Two builds of one version string may differ, so a version alone identifies nothing. Of this package the source files
    are hashed (it may be an editable checkout); of others the hashes in `RECORD`, metadata and byte code left out.
    """
    found = _own_hash() if name == _OWN else _recorded_hash(name, version)
    return FrozenMap(version=version, sha256=found) if found else FrozenMap(version=version)


def _own_hash() -> str:
    import autorl

    root = Path(autorl.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def _recorded_hash(name: str, version: str) -> str | None:
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if distribution.version != version:
        return None
    kept = [
        f"{file.as_posix()} {file.hash.value}"
        for file in distribution.files or ()
        if file.hash is not None and ".dist-info" not in file.parts[0] and file.suffix != ".pyc"
    ]
    return hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest() if kept else None
