"""Checkpoints: immutable folders of saved training state, written aside and renamed in one step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autorl.types import Segment


@contextmanager
def writing(segment: Segment) -> Iterator[Path]:
    """A fresh folder to write the checkpoint of `segment` into; it becomes `segment.folder` on clean exit.

    Files and folders are fsync'ed before the rename, so a checkpoint exists whole or not at all, power loss included. A
    folder left by an earlier attempt that was never recorded is removed first. On an exception nothing is left.

    Raises:
        ValueError: the segment names no folder.
        OSError: the disk is full or the folder cannot be written.
    """
    if not segment.folder:
        raise ValueError(f"segment {segment.id!r} names no folder to save its checkpoint in")
    final = Path(segment.folder)
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = final.parent / f".tmp-{final.name}-{os.getpid()}"
    _remove(scratch)
    scratch.mkdir()
    try:
        yield scratch
        sync_tree(scratch)
        if final.exists():
            aside = final.parent / f".old-{final.name}-{os.getpid()}"
            _remove(aside)
            final.rename(aside)
            _remove(aside)
        scratch.rename(final)
    except BaseException:
        _remove(scratch)
        raise
    _sync(final.parent)


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
