"""Opens a study's folder.

It is a new study, or the one that was begun there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from autorl.core.types import InputError
from autorl.store import Store
from autorl.store.folder import holds_study
from autorl.store.tables import StudyTables
from autorl.study.spec import Spec
from autorl.study.study import Study


def create_or_open(spec: Spec, folder: Path, *, option: str, ignoring: Sequence[str] = ()) -> Study:
    """Create the study in `folder`, or open it where it was begun.

    Args:
        spec: the study.
        folder: where it is kept.
        option: of the command line, by which another folder is chosen.
        ignoring: sections of the study file that may have changed since.

    Raises:
        InputError: the folder holds another study.
    """
    if not holds_study(folder):
        return Study.create(spec, folder)
    study = Study.open(folder)
    ignored = dict.fromkeys(ignoring)
    stored = study.spec.model_copy(update=ignored)
    # Resuming another study would give its table under this one's name.
    if not spec.model_copy(update=ignored).same_study(stored):
        study.close()
        raise InputError(
            f"holds another study: choose another folder with {option}", file=str(folder)
        )
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
        store = Store.open(folder)
    except InputError:  # another driver works on it, say
        return False
    try:
        return not StudyTables(store.query).has_success()
    finally:
        store.close()
