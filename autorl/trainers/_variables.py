"""The environment variables of a command.

They are written in the study file, or named there and taken from this process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from autorl.masking import VARIABLES
from autorl.types import FrozenMap, InputError

_KEY = f"trainer.kwargs.{VARIABLES}"


def checked(options: Mapping[str, object]) -> FrozenMap:
    """Check what the options say of environment variables.

    Returns a value, or None, by name.

    Raises:
        InputError: no mapping of names to single values, or a name without a value that is not set
            here. No message holds a value.
    """
    variables = options.get(VARIABLES, FrozenMap())
    if not isinstance(variables, Mapping):
        raise InputError(
            "expected names with values, or without to take them from the environment", key=_KEY
        )
    # For its errors, before anything trains: the values are taken again where the command runs.
    resolved(variables)
    return FrozenMap(variables)


def resolved(variables: Mapping[str, object]) -> dict[str, str]:
    """Return texts by name.

    A name without a value has that of this process, as it is now.
    """
    return {name: _text(name, value) for name, value in variables.items()}


def _text(name: str, value: object) -> str:
    # No process can be given such a name.
    if not name or "=" in name or "\0" in name:
        raise InputError("expected the name of an environment variable before each colon", key=_KEY)
    if value is None:
        if name not in os.environ:
            raise InputError(
                "has no value here and is not set in the environment", key=f"{_KEY}.{name}"
            )
        return os.environ[name]
    if not isinstance(value, str | int | float) or "\0" in str(value):
        raise InputError(
            "expected one text or number, or no value to take it from the environment",
            key=f"{_KEY}.{name}",
        )
    return str(value)
