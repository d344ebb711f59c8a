"""Makes the folder of a study from nothing but its storage.

The study can then go on on this machine. The database is the newest copy there. Segments recorded
after it are trained again and give the same, as every segment is a function of its configuration
and seeds.
"""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from autorl.core.types import InputError
from autorl.space import parse_document
from autorl.store.checkpoints import sync_tree
from autorl.store.folder import DATABASE, STUDY_FILE, holds_study
from autorl.store.lease import refuse_living_driver
from autorl.store.offsite import database_copies, fetch_database
from autorl.store.remote import RemoteFolder, shown_url
from autorl.study.folder.checks import storage_of, with_storage


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
