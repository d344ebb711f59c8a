"""Checks the paths that commands and functions are asked to write.

Nothing that others wrote is replaced by itself, and nothing lies among the files of a study or of
a landscape.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autorl.core.types import InputError
from autorl.store.checkpoints import sync, sync_tree
from autorl.store.folder import DATABASE

MARK = "made by autorl"
"""Stands near the beginning or the end of pages and figures of ours, which replace each other."""
REPORT = "report.html"
"""The file that may be written into a study's folder: `verify` passes over it."""
_NEAR = 4096  # bytes
_SHOWS = ((DATABASE,), ("manifest.json", "space.yaml"))  # of a study, of a landscape


def free_output(path: str | Path, endings: Sequence[str] = (), *, replace: bool = False) -> Path:
    """Return a path where a file or a folder may be written.

    Args:
        path: that the user named.
        endings: the allowed ones; empty: any.
        replace: what is there may be replaced, whoever wrote it.

    Raises:
        InputError: another ending, a place inside a study or a landscape, a name that is taken and
            may not be replaced, or a file in the place of the folder.
    """
    target = Path(path)
    if endings and not target.name.lower().endswith(tuple(endings)):
        raise InputError(f"expected a name that ends in {', '.join(endings)}", file=str(target))
    try:
        refuse_inside(target)
        # One to nothing would be written through.
        replaced = not target.is_symlink() and (replace or _is_ours(target))
        taken = os.path.lexists(target) and not replaced
    # A name that is too long, or has a null character.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be written ({reason})", file=str(target)) from error
    if taken:
        raise InputError(
            "is there already: give another name (some commands take --replace)", file=str(target)
        )
    return target


def refuse_inside(target: Path) -> None:
    """Refuse a path inside a study or a landscape by `InputError`."""
    place = Path(os.path.realpath(target)).parent  # a link leads there, too
    for folder in (place, *place.parents):
        report = folder == place and target.name == REPORT
        if not report and any(all((folder / it).exists() for it in names) for names in _SHOWS):
            raise InputError(
                f"lies among the files of {folder}: give a name outside", file=str(target)
            )


def write_output(target: Path, text: str) -> None:
    """Write a text to a path that `free_output` returned, with its folder.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=str(target)) from error


def write_whole(file: Path, text: str) -> None:
    """Write a text aside and rename it: whole or not at all.

    Raises:
        OSError: it cannot be written; what was there is there still.
    """
    aside = file.with_name(f".tmp-{secrets.token_hex(4)}-{file.name}")
    try:
        aside.write_text(text, encoding="utf-8")
        sync(aside)  # whole on the disk before it has its name
        os.replace(aside, file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _is_ours(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:  # which may be large: only its ends are read
        begin = stream.read(_NEAR)
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _NEAR))
        return MARK.encode() in begin + stream.read(_NEAR)


def zip_target(file: str | Path, *, replace: bool, beside: Sequence[str] = ()) -> Path:
    """Return the name of a zip to write, and make its folder.

    `beside` are the endings of files written with it.

    Raises:
        InputError: one of the files is there already and may not be replaced.
    """
    target = Path(file)
    # `with_suffix` would make `model.zip` of `model.v2`.
    target = target if target.suffix == ".zip" else target.with_name(target.name + ".zip")
    for path in (target, *(target.with_suffix(ending) for ending in beside)):
        free_output(path, (path.suffix,), replace=replace)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=str(target)) from error
    return target


_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make the folder of a model, as `whole_folder`.

    Raises:
        InputError: something has this name, it is the name of a file, or it cannot be written.
    """
    if target.suffix.lower() in _ARCHIVES:
        raise InputError(
            "the model is a folder, as its program writes and reads it, and no "
            f"{target.suffix} file: expected a name such as {target.with_suffix('').name}",
            file=str(target),
        )
    free_output(target)
    with whole_folder(target) as scratch:
        yield scratch


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Make a folder that appears whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    # beside the target: a rename is atomic on one file system alone
    scratch = target.with_name(f".tmp-{target.name}-{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch.mkdir()
        yield scratch
        sync_tree(scratch)
        # fails where a file, or a folder that is not empty, has come meanwhile
        scratch.rename(target)
    # an interrupt leaves nothing behind either
    except BaseException as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, OSError):
            message = f"cannot be written ({error.strerror or error})"
            raise InputError(message, file=str(target)) from error
        raise
