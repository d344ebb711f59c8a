"""Checkpoints: folders of saved training state that never change.

They are written aside and renamed in one step. What was saved is known by the SHA-256 of every
file, which the study's log records. What differs from it later is not continued from.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from autorl.os_processes import ProcessLostError
from autorl.plain_text import printable, shortened
from autorl.types import Fence, Segment

DAMAGED = "damaged"  # folder among the checkpoints that holds those that were set aside


_saved = threading.local()  # the folder that a thread has saved a checkpoint in last


def attempt_name(segment: str, fence: Fence) -> str:
    """Name what belongs to one attempt at a segment: `12.3-1-0`.

    Checkpoints of studies of earlier versions are named after the segment alone: whoever looks for
    one reads its path in the log.
    """
    return f"{segment}-{fence.epoch}-{fence.attempt}"


@contextmanager
def writing(segment: Segment) -> Iterator[Path]:
    """Give a fresh folder to write the checkpoint of `segment` into.

    It becomes `segment.folder` on clean exit. Files and folders are fsync'ed before the rename, so
    a checkpoint exists whole or not at all, power loss included. On an exception nothing is left.

    In a session the folder's name is that of one attempt, so what lies there was written by the
    attempt itself: by this thread, whose trainer saves more than once and replaces it, or by
    another worker that was given the same attempt, and may be recorded: it stays. Without a session
    (epoch 0) names are given again, and what lies there is replaced.

    Raises:
        ValueError: the segment names no folder.
        OSError: the disk is full or the folder cannot be written.
        ProcessLostError: another worker has written the checkpoint of this attempt.
    """
    if not segment.folder:
        raise ValueError(f"segment {segment.id!r} names no folder to save its checkpoint in")
    final = Path(segment.folder)
    replaceable = not segment.fence.epoch or getattr(_saved, "folder", None) == segment.folder
    final.parent.mkdir(parents=True, exist_ok=True)
    attempts = unfinished(final.parent, final.name)
    # Each process writes in a folder of its own: what a killed worker started may live on for a
    # while and still write.
    half = attempts / f"checkpoint-{os.getpid()}"
    before = attempts / f"before-{os.getpid()}"
    _remove(half)
    half.mkdir(parents=True)
    try:
        yield half
        sync_tree(half)
        if final.exists():
            if not replaceable:
                raise ProcessLostError(f"another worker has written {final.name} meanwhile")
            # Renamed before it is deleted: a folder half deleted would pass for a checkpoint.
            _remove(before)
            final.rename(before)
            _remove(before)
        half.rename(final)
        _saved.folder = segment.folder
    except BaseException:  # Ctrl-C too
        _remove(half)
        _remove_if_empty(attempts)
        raise
    _sync(final.parent)  # its entry in the folder above has to last as well
    _remove_if_empty(attempts)


def unfinished(checkpoints: Path, attempt: str) -> Path:
    """Return the folder of all that a running attempt writes.

    Its path follows from the name of the attempt alone, so that the driver removes what a killed
    worker left without looking through every checkpoint (`remove_unfinished`).
    """
    return checkpoints / f".tmp-{attempt}"


@contextmanager
def scratch(segment: Segment) -> Iterator[Path]:
    """Make a folder for what nobody needs once the segment has ended.

    It lies in `segment.scratch`, inside the study, so that it is counted, and found if the worker
    is killed. Where the segment names none it lies in the system's temporary folder. Removed on
    exit.
    """
    if not segment.scratch:
        with tempfile.TemporaryDirectory(prefix="autorl-") as name:
            yield Path(name)
        return
    attempts = Path(segment.scratch)
    attempts.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=attempts))
    try:
        yield folder
    finally:
        # What the training started may still write here; the driver removes the rest when
        # it has the outcome.
        shutil.rmtree(folder, ignore_errors=True)
        _remove_if_empty(attempts)


def remove_unfinished(segment: Segment) -> None:
    """Remove what a segment left behind.

    It has ended, or its worker is gone.
    """
    if segment.scratch:
        # A process that outlived its worker can make this fail; what is left then goes when
        # the study is opened again.
        shutil.rmtree(segment.scratch, ignore_errors=True)


def folder_size(folder: Path) -> int:
    """Add up the bytes of files below a folder, links not followed.

    Files may vanish meanwhile; 0 where there is no such folder.
    """
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += (Path(parent) / name).lstat().st_size
    return total


def file_hashes(folder: Path) -> dict[str, str]:
    """Hash every file below a folder with SHA-256, by its relative path.

    A symbolic link counts as the text it holds, whatever it leads to. Empty where there is no such
    folder.
    """
    names = []
    for parent, folders, files in os.walk(folder):
        # Folders too: `os.walk` lists a link to a folder among them.
        for name in (*folders, *files):
            path = Path(parent) / name
            mode = path.lstat().st_mode
            # Sockets and pipes hold no state, and reading a pipe would wait for a writer.
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                names.append(path.relative_to(folder).as_posix())
    return {name: _file_hash(folder / name) for name in sorted(names)}


def damage(folder: Path, checkpoint_files: Mapping[str, str]) -> str | None:
    """Name what of a checkpoint differs from what was saved, or None.

    Files that were not saved do not count: a script may leave a file in the folder it continues
    from. With no hashes (a study of an earlier version) nothing is checked.

    Returns:
        One phrase that names the first such file.
    """
    if not checkpoint_files:
        return None
    if not folder.is_dir():
        return "the folder is missing"
    for name, saved in sorted(checkpoint_files.items()):
        path = folder / name
        text = printable(shortened(name), keep_lines=False)
        # `is_file` follows links: one that leads nowhere is whole if its text is.
        if not (path.is_symlink() or path.is_file()):
            return f"{text} is missing"
        try:
            current = _file_hash(path)
        except OSError as error:
            return f"{text} cannot be read ({error.strerror})"
        if current != saved:
            return f"{text} differs from what was saved"
    return None


def _file_hash(path: Path) -> str:
    """Hash a file with SHA-256.

    It is read block by block: one of several GB takes no memory.
    """
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def set_aside(folder: Path) -> str:
    """Move a damaged checkpoint to `damaged/` beside it.

    It is never deleted: somebody may want to see what happened to it, or mend it and put it back.

    Returns:
        Where it lies then, for people.
    """
    if not folder.exists():
        return "there is no such folder"
    place = folder.parent / DAMAGED
    numbered = (place / f"{folder.name}-{number}" for number in itertools.count(2))
    target = next(
        path for path in itertools.chain([place / folder.name], numbered) if not path.exists()
    )
    try:
        place.mkdir(exist_ok=True)
        folder.rename(target)
    except OSError as error:
        return f"left in {folder} ({error.strerror})"
    return f"moved to {target}"


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def sync_tree(folder: Path) -> None:
    """Force a folder and everything in it to the disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            _sync(Path(parent) / name)
        _sync(Path(parent))


def _sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
