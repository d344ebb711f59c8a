"""Faults of the files of a study: truncated, flipped, exchanged, deleted, edited."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
from pathlib import Path

FAMILIES = (
    "checkpoint",
    "checkpoint",
    "database",
    "study file",
)  # checkpoints twice: there are most of them
_NUMBER = re.compile(rb"(?<=: )[1-9][0-9]*(?=\n)")


def harm(study: Path, stranger: Path, rng: random.Random) -> str:
    """Harm one file of `study`, and say how in words. `stranger` is another study, for what is exchanged."""
    family = rng.choice(FAMILIES)
    files = _files(study, family)
    if not files:
        family, files = "database", _files(study, "database")
    target = rng.choice(files)
    name = f"{family}, {target.relative_to(study).as_posix()}"
    ways = [
        "truncated",
        "flipped",
        "exchanged",
        "deleted",
        *(["edited"] if family == "study file" else []),
    ]
    way = rng.choice(ways)
    if way == "truncated":
        length = rng.choice((0, rng.randrange(target.stat().st_size or 1)))
        with target.open("r+b") as file:
            file.truncate(length)
        return f"truncated to {length} bytes: {name}"
    if way == "flipped":
        return f"{_flip(target, rng)} bits flipped: {name}"
    if way == "exchanged":
        return f"exchanged: {name}" + _exchange(target, study, stranger, family, rng)
    if way == "edited":
        return f"edited: {name}, {_edit(target, rng)}"
    return f"deleted: {_delete(target, study, family, rng)}"


def checkpoint_hashes(study: Path) -> dict[str, str]:
    """SHA-256 of every file of a checkpoint that is whole, by its path in the study."""
    return {
        path.relative_to(study).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in _files(study, "checkpoint")
    }


def _files(study: Path, family: str) -> list[Path]:
    if family == "study file":
        return [study / "study.yaml"]
    if family == "database":
        written = (path for path in study.glob("study.sqlite*") if path.suffix != ".sqlite-shm")
        return sorted(path for path in written if path.stat().st_size)
    folders = [
        folder for folder in (study / "checkpoints").glob("*") if not folder.name.startswith(".")
    ]
    return sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())


def _flip(target: Path, rng: random.Random) -> int:
    content = bytearray(target.read_bytes())
    count = rng.choice((1, 1, 8)) if content else 0
    for position in rng.sample(range(len(content)), min(count, len(content))):
        content[position] ^= 1 << rng.randrange(8)
    target.write_bytes(content)
    return count


def _exchange(target: Path, study: Path, stranger: Path, family: str, rng: random.Random) -> str:
    """Exchange a checkpoint's file with another of its name; a database or study file with that of another study."""
    if family != "checkpoint":
        other = stranger / target.name
        if not other.exists():
            other = stranger / "study.sqlite"
        shutil.copyfile(other, target)
        return ", by that of another study"
    named = [
        path for path in _files(study, "checkpoint") if path.name == target.name and path != target
    ]
    if not named:
        target.write_bytes(target.read_bytes()[::-1])
        return ", by its own bytes backwards"
    other = rng.choice(named)
    content = other.read_bytes()
    other.write_bytes(target.read_bytes())
    target.write_bytes(content)
    return f", with {other.relative_to(study).as_posix()}"


def _edit(target: Path, rng: random.Random) -> str:
    """Change one whole number of a study file, as a user would."""
    content = target.read_bytes()
    numbers = list(_NUMBER.finditer(content))
    match = rng.choice(numbers)
    changed = str(int(match[0]) + rng.randint(1, 3)).encode()
    target.write_bytes(content[: match.start()] + changed + content[match.end() :])
    key = content[: match.start()].rpartition(b"\n")[2].decode().strip()
    return f"{key} {match[0].decode()} to {changed.decode()}"


def _delete(target: Path, study: Path, family: str, rng: random.Random) -> str:
    """Delete a file, the folder of its checkpoint, all checkpoints, or the database with its log."""
    if family == "checkpoint":
        folder = study / "checkpoints" / target.relative_to(study / "checkpoints").parts[0]
        doomed = rng.choice((target, folder, study / "checkpoints"))
        shutil.rmtree(doomed) if doomed.is_dir() else doomed.unlink()
        return f"checkpoint, {doomed.relative_to(study).as_posix()}"
    doomed_files = _files(study, family) if rng.random() < 0.5 else [target]
    for path in doomed_files:
        path.unlink()
    return f"{family}, {', '.join(path.name for path in doomed_files)}"
