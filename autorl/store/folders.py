"""Whether a folder holds a study, asked before anything is made."""

from __future__ import annotations

from pathlib import Path

from autorl.plain_text import shown
from autorl.types import InputError


def holds_study(folder: Path) -> bool:
    """Whether `folder` holds a study.

    Raises:
        InputError: its path is none, for example too long or with a null character.
    """
    try:
        (folder / "study.yaml").lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be a study's folder ({reason})", file=shown(str(folder))) from None
    return True
