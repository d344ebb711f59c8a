"""Named functions of arrays, as study files write them: `name` or `name(number)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from autorl.core.plain_text import did_you_mean
from autorl.core.types import InputError
from autorl.statistics.arrays import Array

_FORM = re.compile(r"\s*([a-z_]+)\s*(?:\(\s*([^()]*?)\s*\))?\s*\Z")


@dataclass(frozen=True)
class Named:
    """A named function of an array, whose docstring is its definition.

    Attributes:
        name: as written in a study file, e.g. `cvar(0.2)`: parsing it gives the same function.
        stacked: the same function of a stack of arrays, along the last axes; inputs are not
            checked.
    """

    name: str
    stacked: Callable[[Array], Array]

    def __post_init__(self) -> None:
        definition = self.stacked.func if isinstance(self.stacked, partial) else self.stacked
        object.__setattr__(self, "__doc__", definition.__doc__)

    @classmethod
    def of(cls, stacked: Callable[[Array], Array], **more: Any) -> Self:
        """Make what a function defines, under the function's name."""
        # That name is the result's from here on: pickle finds the function by this path.
        stacked.__qualname__ = f"{stacked.__name__}.stacked"
        return cls(stacked.__name__, stacked, **more)


N = TypeVar("N", bound=Named)


def parsed(
    text: str | N, plain: Mapping[str, N], with_number: Mapping[str, Callable[[float], N]], key: str
) -> N:
    """Return the function that a text names, or a function itself.

    Args:
        text: as in a study file.
        plain: functions by name.
        with_number: what makes one of its number, by name.
        key: of the study file, for messages.

    Raises:
        InputError: unknown name (the message has the nearest one), or a number that is missing,
            unreadable, out of range or one too many.
    """
    if isinstance(text, Named):
        return text
    forms = [*plain, *(f"{name}(number)" for name in with_number)]
    # A study file may hold anything here, a bare number too.
    match = _FORM.match(text) if isinstance(text, str) else None
    name = match.group(1) if match else str(text)
    if match is None or name not in {*plain, *with_number}:
        allowed = f"allowed: {', '.join(forms)}"
        hint = did_you_mean(name.split("(")[0], [*plain, *with_number], allowed)
        raise InputError(f"unknown name {text!r}{hint}", key=key)
    argument = match.group(2)
    if name in plain:
        if argument is not None:
            raise InputError(f"'{name}' takes no number, got {text!r}", key=key)
        return plain[name]
    try:
        number = float(argument or "")
    except ValueError as error:
        raise InputError(
            f"'{name}' needs one number, e.g. '{name}(0.2)', got {text!r}", key=key
        ) from error
    try:
        return with_number[name](number)
    except ValueError as error:
        raise InputError(str(error), key=key) from error
