"""Checkpoints: folders of saved training state that never change.

They are written aside and renamed in one step. A checkpoint is known by the SHA-256 of every file,
which the study's log records. A checkpoint that differs from it later is not continued from.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import stat
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from autorl.core.os_processes import ProcessLostError
from autorl.core.plain_text import one_line
from autorl.core.types import Fence, Segment, StorageError

_PROBE = 2**14  # bytes that are written to see whether a disk takes any
MODEL_ONLY = "model-only"  # a file in a checkpoint that training cannot go on from
DAMAGED = "damaged"  # folder among the checkpoints that holds those that were set aside
STAGES = ".stages"  # folder among the checkpoints of policies that first stages have trained


# Errors that a program causes itself: no sign of a failing disk.
NOT_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

_saved = threading.local()  # the folder that a thread has saved a checkpoint in last


def attempt_name(segment: str, fence: Fence) -> str:
    """Name what belongs to one attempt at a segment: `12.3-1-0`."""
    return f"{segment}-{fence.epoch}-{fence.attempt}"


def disk_errors(error: BaseException | None) -> Iterator[OSError]:
    """Iterate over what the system answered before an error was raised."""
    while error is not None:
        if isinstance(error, OSError):
            yield error
        error = error.__cause__ or error.__context__


def _is_native(error: BaseException) -> bool:
    """Tell whether native code failed at a file, which tells no errno."""
    if type(error).__name__ == "SafetensorError":
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals.get("__name__")
    return isinstance(error, RuntimeError) and module == "torch.serialization"


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn what a disk answers to a reader into a `StorageError`.

    A file that is not there passes as it is: that is damage.
    """
    try:
        yield
    except Exception as error:
        for cause in disk_errors(error):
            if not isinstance(cause, NOT_THERE):
                raise _storage_error(folder, "read", cause) from error
        if _is_native(error):
            raise _storage_error(folder, "read", error) from error
        raise


@contextmanager
def driving(folder: Path | None) -> Iterator[None]:
    """Turn the driver's disk errors into a `StorageError`.

    Its message says how to go on. Errors about files elsewhere, such as a callback's, pass
    unchanged.

    Args:
        folder: of the study.

    Raises:
        StorageError: the disk fails.
    """
    try:
        yield
    except (StorageError, OSError) as error:
        if folder is None:
            raise
        reason = str(error)
        if isinstance(error, OSError):
            if not is_below(error.filename, folder):
                raise
            reason = f"the disk answered {error.strerror!r} for {error.filename}"
        raise StorageError(
            f"{folder}: {reason}; what was recorded is kept: go on with `autorl resume {folder}`"
        ) from error


def is_below(file: object, folder: Path) -> bool:
    """Tell whether the file that an error names lies in a folder."""
    place = os.path.realpath(folder)
    return isinstance(file, str) and Path(os.path.realpath(file)).is_relative_to(place)


@contextmanager
def written(folder: Path, *, theirs: bool = False) -> Iterator[None]:
    """Turn what a disk answers to a writer into a `StorageError`.

    Native writers tell no errno, and code of the user (`theirs`) has files elsewhere: their errors
    are the disk's where the folder cannot be written by us either.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        cause = None if theirs else next(disk_errors(error), error if _is_native(error) else None)
        try:
            # Nobody sees it, and a kill leaves nothing.
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(_PROBE))
                file.flush()
                os.fsync(file.fileno())
        except OSError as failed:
            cause = cause or failed
        if cause is None:
            raise
        raise _storage_error(folder, "written", cause) from error


def _storage_error(folder: Path, what: str, cause: BaseException) -> StorageError:
    answer = getattr(cause, "strerror", None) or cause
    return StorageError(f"{folder} cannot be {what} ({one_line(answer)})")


@contextmanager
def writing(segment: Segment, *, theirs: bool = False) -> Iterator[Path]:
    """Give a fresh folder to write the checkpoint of `segment` into.

    It becomes `segment.folder` on clean exit. Files and folders are fsync'ed before the rename, so
    a checkpoint exists whole or not at all, power loss included. On an exception nothing is left.
    If code of the user runs meanwhile (`theirs`), errors that tell of its own files pass.

    In a session the folder's name is that of one attempt, so what lies there was written by the
    attempt itself: by this thread, whose trainer saves more than once and replaces it, or by
    another worker that was given the same attempt, and may be recorded: it stays. Outside a session
    (epoch 0) names are given again, and older files there are replaced.

    Raises:
        ValueError: the segment names no folder.
        StorageError: the disk is full or the folder cannot be written.
        ProcessLostError: another worker has written the checkpoint of this attempt.
    """
    if not segment.folder:
        raise ValueError(f"segment {segment.id!r} names no folder to save its checkpoint in")
    final = Path(segment.folder)
    replaceable = not segment.fence.epoch or getattr(_saved, "folder", None) == segment.folder
    attempts = unfinished(final.parent, final.name)
    # Each process writes in a folder of its own: what a killed worker started may live on for a
    # while and still write.
    half = attempts / f"checkpoint-{os.getpid()}"
    before = attempts / f"before-{os.getpid()}"
    try:
        with written(final.parent):
            remove(half)
            half.mkdir(parents=True)
        with written(half, theirs=theirs):
            yield half
        with written(final.parent):
            sync_tree(half)
            if final.exists():
                if not replaceable:
                    raise ProcessLostError(f"another worker has written {final.name} meanwhile")
                # Renamed before it is deleted: a folder half deleted would pass for a checkpoint.
                remove(before)
                final.rename(before)
                remove(before)
            half.rename(final)
            _saved.folder = segment.folder
            sync(final.parent)  # its entry in the folder above has to last as well
    finally:  # Ctrl-C too
        shutil.rmtree(half, ignore_errors=True)
        _remove_if_empty(attempts)


def unfinished(checkpoints: Path, attempt: str) -> Path:
    """Return the folder of all that a running attempt writes.

    Its path follows from the name of the attempt alone, so that the driver removes what a killed
    worker left without looking through every checkpoint (`remove_unfinished`).
    """
    return checkpoints / f".tmp-{attempt}"


@contextmanager
def scratch(segment: Segment, *, theirs: bool = True) -> Iterator[Path]:
    """Make a folder for what nobody needs once the segment has ended.

    It lies in `segment.scratch`, inside the study, so that it is counted, and found if the worker
    is killed. If the segment names none it lies in the system's temporary folder. Removed on exit.
    """
    if not segment.scratch:
        with tempfile.TemporaryDirectory(prefix="autorl-") as name:
            yield Path(name)
        return
    attempts = Path(segment.scratch)
    with written(attempts.parent):
        attempts.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=attempts))
    try:
        with written(folder, theirs=theirs):
            yield folder
    finally:
        # Processes of the training may still write here; the driver removes the rest when
        # it has the outcome.
        shutil.rmtree(folder, ignore_errors=True)
        _remove_if_empty(attempts)


def remove_unfinished(segment: Segment) -> None:
    """Remove what a segment left behind.

    It has ended, or its worker is gone.
    """
    if segment.scratch:
        remove(Path(segment.scratch))


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder, and raise where the disk does not list it.

    `os.walk` alone takes such a folder for an empty one. A folder that is not there is empty.
    """

    def failed(error: OSError) -> None:
        if not isinstance(error, NOT_THERE):
            raise error

    return os.walk(folder, onerror=failed)


def folder_size(folder: Path) -> int:
    """Add up the bytes of files below a folder, links not followed.

    Files may vanish meanwhile; 0 where there is no such folder.
    """
    total = 0
    for parent, _, files in _walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += (Path(parent) / name).lstat().st_size
    return total


def file_hashes(folder: Path) -> dict[str, str]:
    """Hash every file below a folder with SHA-256, by its relative path.

    A file in place of the folder has an empty path. A symbolic link counts as the text it holds,
    whatever it leads to. Empty where there is no such folder.
    """
    names = []
    for parent, folders, files in _walk(folder):
        # Folders too: `os.walk` lists a link to a folder among them.
        for name in (*folders, *files):
            path = Path(parent) / name
            mode = path.lstat().st_mode
            # Sockets and pipes hold no state, and reading a pipe would wait for a writer.
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                names.append(path.relative_to(folder).as_posix())
    hashes = {name: file_hash(folder / name) for name in sorted(names) or [""]}
    return {name: digest for name, digest in hashes.items() if digest is not None}


def damage(folder: Path, checkpoint_files: Mapping[str, str]) -> str | None:
    """Name the difference of a checkpoint from the saved one, or None.

    Files that were not saved do not count: a script may leave a file in the folder it continues
    from. With no hashes (a checkpoint that is no folder) nothing is checked.

    Returns:
        One phrase that names the first such file.

    Raises:
        StorageError: the disk cannot be read.
    """
    if not checkpoint_files:
        return None
    with reading(folder):
        if not folder.is_dir():
            return "the folder is missing"
        return first_difference(checkpoint_files, lambda name: file_hash(folder / name))


def first_difference(files: Mapping[str, str], hash_of: Callable[[str], str | None]) -> str | None:
    """Name the first missing file, or file of another SHA-256."""
    for name, saved in sorted(files.items()):
        current = hash_of(name)
        if current is None:
            return f"{one_line(name)} is missing"
        if current != saved:
            return f"{one_line(name)} differs from what was saved"
    return None


def stays_inside(path: str) -> bool:
    """Tell whether a path from a log stays in its folder.

    A database of somebody else can say anything.
    """
    return not Path(path).is_absolute() and ".." not in Path(path).parts


def file_hash(path: Path) -> str | None:
    """Hash a file or the text of a link (SHA-256).

    It is read block by block: one of several GB takes no memory.
    """
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def set_aside(folder: Path) -> str:
    """Move a damaged checkpoint to `damaged/` beside it.

    It is never deleted: somebody may want to see what happened to it, or mend it and put it back.

    Returns:
        Its new place, for people.
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


def remove(path: Path) -> None:
    """Remove a folder, a file, or a link but not its target.

    Nobody needs it: it stays where the disk refuses, or a process that outlived its worker writes
    there. The next sweep tries again.
    """
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink()


def sync_tree(folder: Path) -> None:
    """Force a folder and the files in it to the disk.

    To open a pipe would wait for a writer, and a link may lead nowhere.
    """
    for parent, _, files in _walk(folder):
        for name in files:
            path = Path(parent) / name
            if stat.S_ISREG(path.lstat().st_mode):
                sync(path)
        sync(Path(parent))


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
