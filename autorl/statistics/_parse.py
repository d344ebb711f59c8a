"""Reads `name` or `name(number)`, as study files write aggregates and reductions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autorl.core.plain_text import did_you_mean
from autorl.core.types import InputError

_FORM = re.compile(r"\s*([a-z_]+)\s*(?:\(\s*([^()]*?)\s*\))?\s*\Z")


def name_and_number(
    text: str, plain: Sequence[str], with_number: Sequence[str], key: str
) -> tuple[str, float | None]:
    """Read a name and its number, None for the names in `plain`.

    Raises:
        InputError: unknown name (the message has the nearest one), or a number that is missing,
            unreadable or one too many.
    """
    forms = [*plain, *(f"{name}(number)" for name in with_number)]
    # A study file may hold anything here, a bare number too.
    match = _FORM.match(text) if isinstance(text, str) else None
    name = match.group(1) if match else str(text)
    if match is None or name not in (*plain, *with_number):
        allowed = f"allowed: {', '.join(forms)}"
        hint = did_you_mean(name.split("(")[0], [*plain, *with_number], allowed)
        raise InputError(f"unknown name {text!r}{hint}", key=key)
    argument = match.group(2)
    if name in plain:
        if argument is not None:
            raise InputError(f"'{name}' takes no number, got {text!r}", key=key)
        return name, None
    try:
        return name, float(argument or "")
    except ValueError as error:
        raise InputError(
            f"'{name}' needs one number, e.g. '{name}(0.2)', got {text!r}", key=key
        ) from error
