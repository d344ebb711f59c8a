"""Identifies the code that made the data.

It is the version of a package and a hash of what is installed under its name.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import subprocess
from pathlib import Path

import autorl
from autorl.core.types import FrozenMap


def package(name: str, version: str) -> FrozenMap:
    """Describe a package by `version`, and `sha256` if it is installed here.

    The hash is given only of that version. Two builds of one version string may differ, so a
    version alone identifies nothing. It is the hash of the hashes in `RECORD`, metadata and byte
    code left out. For this package, which may be an editable checkout, see `own_source`.
    """
    digest = _recorded_hash(name, version)
    return FrozenMap(version=version, sha256=digest) if digest else FrozenMap(version=version)


@functools.cache
def own_source() -> FrozenMap:
    """Hash this package's source files as `sha256`.

    `commit` is the git commit it runs from, if any.
    """
    source = {"sha256": source_sha256()}
    if commit := checkout_commit():
        source["commit"] = commit
    return FrozenMap(source)


@functools.cache
def source_sha256() -> str:
    """Hash this package's source files, by path and text."""
    root = Path(autorl.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):  # disks list files in any order
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def checkout_commit() -> str:
    """Return the git commit of the checkout this package runs from.

    It ends in `-dirty` if files differ, and is empty elsewhere.
    """
    root = Path(autorl.__file__).parents[1]
    if not (root / ".git").exists():  # an installation, perhaps inside somebody else's repository
        return ""
    command = [
        "git",
        "-C",
        str(root),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",  # no tags: the commit itself
    ]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git here, or a repository it will not read
        return ""


@functools.cache  # `RECORD` of torch alone has 12,000 lines
def _recorded_hash(name: str, version: str) -> str | None:
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if distribution.version != version:
        return None
    hashes = [
        f"{file.as_posix()} {file.hash.value}"
        for file in distribution.files or ()
        if file.hash is not None and ".dist-info" not in file.parts[0] and file.suffix != ".pyc"
    ]
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest() if hashes else None
