"""The worker of a study in a shared folder, for `autorl worker`.

It reads the study file, which decides what code runs, and the queue. The database it leaves alone:
SQLite is no database for several machines.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from autorl.executors.folder_worker import FolderWorker
from autorl.executors.segment_form import SegmentForm
from autorl.space import Space
from autorl.spec import Spec, thaw
from autorl.store.folder import STUDY_FILE, holds_study
from autorl.store.remote import RemoteFolder, StorageError, shown_url
from autorl.study.session import session
from autorl.study.setup import executor_name, make_local_executor, trainer_loader
from autorl.types import Config, InputError, TrainerSpec


def make_worker(
    folder: Path,
    *,
    slots: int = 1,
    idle_seconds: float = 1800.0,
    most_segments: int | None = None,
    trust: bool = False,
) -> FolderWorker:
    """Make a worker of the study in `folder`.

    Args:
        folder: of the study, as this machine sees it.
        slots: segments at once.
        idle_seconds: it ends after so long without a segment.
        most_segments: it ends after so many; None = no limit.
        trust: whether pickles of others in checkpoints are opened, which can run anything.

    Raises:
        InputError: there is no study, or none whose executor is `folder`.
    """
    if not folder.is_dir():
        raise InputError("no such folder", file=str(folder))
    if not holds_study(folder):
        raise InputError(
            f"holds no study ({STUDY_FILE} is missing): its driver, `autorl tune`, begins it",
            file=str(folder),
        )
    file = folder / STUDY_FILE
    content = file.read_bytes()
    try:
        spec = thaw(content.decode("utf-8"), str(file))
    except UnicodeDecodeError as error:
        raise InputError(f"is no text ({error})", file=str(file)) from None
    if executor_name(spec) != "folder":
        raise InputError(
            f"expected folder, got {spec.executor.name}: segments of this study are trained by "
            "its driver alone",
            file=str(file),
            key="executor.name",
        )
    load = trainer_loader(spec)
    form = SegmentForm(
        folder,
        spec.trainers,
        spec.environment.resolve(),
        functools.partial(_check, spec),
        storage=spec.storage,
    )
    return FolderWorker(
        form,
        lambda: make_local_executor(spec, load, slots),
        hashlib.sha256(content).hexdigest(),
        session(spec),
        slots=slots,
        idle_seconds=idle_seconds,
        most_segments=most_segments,
        trust=trust,
        check=functools.partial(_check_storage, spec.storage, content),
    )


def _check_storage(storage: str | None, study: bytes) -> None:
    """Refuse a storage that is not the driver's, or cannot be used.

    Its driver puts the study file there. A path of the driver's own disk is another folder here,
    and nobody else would find what is saved in it.

    Raises:
        InputError: naming the storage.
    """
    if storage is None:
        return
    folder = RemoteFolder(storage)
    try:
        stored = folder.read(STUDY_FILE)
    except StorageError as error:
        raise InputError(str(error), key="storage") from error
    if stored != study:
        raise InputError(
            f"{shown_url(storage)}, as this machine sees it, does not hold this study: give it a "
            "storage that the driver and all workers reach",
            key="storage",
        )
    folder.check_writable()


def _check(spec: Spec, trainer: TrainerSpec, config: Config) -> None:
    """Refuse a configuration that no algorithm with this trainer can have.

    Raises:
        InputError: naming the hyperparameter.
    """
    spaces: list[Space] = [
        spec.spaces[name] for name, section in spec.trainers.items() if section == trainer
    ]
    if not any(space.is_valid(config) for space in spaces):
        spaces[0].check(config)
