"""Says in one line what an environment raised before a study.

In a run the same error is not caught: it is a failed run, recorded with its traceback.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium

import autorl
from autorl.core.plain_text import printable, shortened
from autorl.core.types import EnvironmentSpec, InputError

_LONGEST = 300  # characters of what was raised
_ON_THE_WAY = tuple(Path(file).resolve().parent for file in (autorl.__file__, gymnasium.__file__))
_LIBRARIES = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib")
)


@contextmanager
def faults_in_one_line(spec: EnvironmentSpec) -> Iterator[None]:
    """Raise what an environment raises as an error of the study file.

    Raises:
        InputError: with type, message and place of what was raised.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        text = printable(" ".join(str(error).split()), keep_lines=False)
        raised = ": ".join(filter(None, (type(error).__name__, shortened(text, _LONGEST))))
        message = f"{spec.id!r} raised {raised}{_place(error)}"
        raise InputError(message, key="environment") from error


def _place(error: Exception) -> str:
    """Say where in the user's files something was raised.

    If none of the user's files took part, it is the last line of the environment's own package.
    """
    # Its text says the line that cannot be read; the traceback ends in what imports it.
    if isinstance(error, SyntaxError):
        return ""
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_file() and not _is_below(Path(frame.filename), _ON_THE_WAY)
    ]
    of_user = [frame for frame in frames if not _is_below(frame[0], _LIBRARIES)]
    if not frames:
        return ""
    path, line = (of_user or frames)[-1]
    return f" ({path}:{line})"


def _is_below(file: Path, folders: Collection[Path]) -> bool:
    return any(file.resolve().is_relative_to(folder) for folder in folders)
