"""Opens a study's folder.

It is a new study, the one that was begun there, or one made from nothing but its storage: the study
can then go on on this machine. The database is the newest copy there. Segments recorded after it
are trained again and give the same, as every segment is a function of its configuration and seeds.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from autorl.core.types import InputError
from autorl.executors.worker import Load
from autorl.space import parse_document
from autorl.store import Store
from autorl.store.checkpoints import sync_tree
from autorl.store.folder import DATABASE, STUDY_FILE, holds_study
from autorl.store.lease import refuse_living_driver
from autorl.store.offsite import database_copies, fetch_database
from autorl.store.remote import RemoteFolder, shown_url
from autorl.store.tables import StudyTables
from autorl.study.folder.checks import storage_of, with_storage
from autorl.study.results.models import with_start
from autorl.study.spec import Spec
from autorl.study.study import Study


def create_or_open(
    spec: Spec,
    folder: Path,
    load: Load | None = None,
    *,
    option: str | None = None,
    ignoring: Sequence[str] = (),
) -> Study:
    """Create the study in `folder`, or open it where it was begun.

    Args:
        spec: the study.
        folder: where it is kept.
        load: builds trainers.
        option: of the command line, by which another folder is chosen; None in Python.
        ignoring: sections of the study file that may have changed since.

    Raises:
        InputError: the folder holds another study.
    """
    if not holds_study(folder):
        return Study.create(spec, folder, load)
    study = Study.open(folder, load)
    ignored = dict.fromkeys(ignoring)
    # Resuming another study would give its table under this one's name. Test seeds that were added
    # since are no other study.
    begun = with_start(spec).model_copy(update=ignored)
    if not begun.same_study(study.stored.model_copy(update=ignored)):
        study.close()
        refusal = f"holds another study: choose another folder with {option}"
        if option is None:
            refusal = "holds a study of another file: choose another folder, or `resume` it"
        raise InputError(refusal, file=str(folder))
    return study


def create_anew(spec: Spec, folder: Path) -> tuple[Study, Path | None]:
    """Create a study, and move a failed study aside.

    Returns:
        The study, and where the other lies now. No run of the other has ended well.

    Raises:
        InputError: the folder holds a study with a run that has ended well, or one that cannot be
            opened; or as `Study.create` says, and then nothing has moved.
    """
    refuse_existing(folder)
    if not holds_study(folder):
        return Study.create(spec, folder), None
    place = Path(os.path.abspath(folder))
    numbered = (place.with_name(f"{place.name}.failed-{n}") for n in itertools.count(1))
    aside = next(path for path in numbered if not path.exists())
    try:
        place.rename(aside)
    except OSError as error:
        message = f"no run ended well, but it cannot be moved aside ({error.strerror})"
        raise InputError(message, file=str(folder)) from error
    try:
        return Study.create(spec, folder), aside
    except BaseException:
        if not place.exists():
            aside.rename(place)
        raise


def refuse_existing(folder: Path) -> None:
    """Refuse a folder that cannot take a new study.

    Raises:
        InputError: a run of the study there has ended well, or nobody can tell.
    """
    if holds_study(folder) and not _has_failed(folder):
        raise InputError(
            f"holds a study already: go on with `autorl resume {folder}`, "
            "or choose another folder with --out",
            file=str(folder),
        )


def _has_failed(folder: Path) -> bool:
    """Tell whether a study can be opened and has no successful run."""
    try:
        with closing(Store.open(folder)) as store:
            return not StudyTables(store.query).has_success()
    except InputError:  # another driver works on it, say
        return False


def take_over(url: str, folder: Path) -> Path:
    """Make a study's folder from its storage.

    It appears whole or not at all. The lease is taken when the study is opened.

    Args:
        url: of the storage.
        folder: of the study; must not exist, or be empty.

    Returns:
        The folder.

    Raises:
        InputError: the storage cannot be used, holds no study, another driver works on it, or the
            folder is not free.
        StorageError: the storage does not answer.
    """
    storage = RemoteFolder(url)
    study_file = storage.read(STUDY_FILE)
    if study_file is None or not database_copies(storage):
        raise InputError(
            f"{shown_url(url)} holds no study (no copy of a database)", key="--storage"
        )
    refuse_living_driver(storage, "--storage")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError("is not empty: a study needs a folder of its own", file=str(folder))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Beside it: a rename is one step within a file system only.
        scratch = folder.parent / f".tmp-{folder.name}-{secrets.token_hex(4)}"
        scratch.mkdir()
        try:
            fetch_database(storage, scratch / DATABASE)
            text = with_storage(_decoded(study_file, url), url)
            (scratch / STUDY_FILE).write_text(text, encoding="utf-8")
            sync_tree(scratch)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=str(folder)) from error
    return folder


def study_folder(url: str, folder: Path) -> Path:
    """Return the folder of the study in a storage.

    It is made from the storage unless it is there.

    Raises:
        InputError: the folder holds another study or one that is stored elsewhere, or as
            `take_over` says.
        StorageError: the storage does not answer.
    """
    if not holds_study(folder):
        return take_over(url, folder)
    if storage_of(folder) != url:
        raise InputError(
            f"holds a study that is not stored in {shown_url(url)}: choose another folder",
            file=str(folder),
        )
    return folder


def _decoded(study_file: bytes, url: str) -> str:
    """Return the text of a study file.

    Raises:
        InputError: it is none.
    """
    with suppress(UnicodeDecodeError, InputError):
        text = study_file.decode()
        if isinstance(parse_document(text, STUDY_FILE).data, dict):
            return text
    raise InputError(f"{shown_url(url)}/{STUDY_FILE} is no study file", key="--storage")
