"""Opens a study's folder.

It is a new study, or the one that was begun there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autorl.spec import Spec
from autorl.store.folder import holds_study
from autorl.study.study import Study
from autorl.types import InputError


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
