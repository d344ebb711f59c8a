"""Short forms of hyperparameters, and the long forms they stand for.

| short | long |
| --- | --- |
| `8`, `0.99`, `true`, `MlpPolicy` | `{value: 8}` |
| `[32, 64, 128]` | `{choices: [32, 64, 128]}` |
| `uniform(0.9, 0.999)` | `{type: float, lower: 0.9, upper: 0.999, scale: linear}` |
| `log(1e-5, 1e-2)` | `{type: float, lower: 1e-5, upper: 1e-2, scale: log}` |
| `flipped_log(0.9, 0.999)` | `{type: float, lower: 0.9, upper: 0.999, scale: flipped_log}` |
| `int(1, 8)` | `{type: int, lower: 1, upper: 8, scale: linear}` |
| `int(16, 4096, log)` | `{type: int, lower: 16, upper: 4096, scale: log}` |
| `[1e-5, 1e-2, log]` | as `log(1e-5, 1e-2)` |

An interval always has a word that says its type and scale, and a list without one is a list of
choices, also one of two numbers: how a number is written (`1` or `1.0`, `1e5`) decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autorl.core.plain_text import did_you_mean, shown
from autorl.core.types import InputError
from autorl.space.document import parse_document

# Word: type and scale. `int` takes its scale as a third argument.
INTERVALS: Mapping[str, tuple[str, str]] = {
    "uniform": ("float", "linear"),
    "log": ("float", "log"),
    "flipped_log": ("float", "flipped_log"),
    "int": ("int", "linear"),
}
INT_SCALES = ("linear", "log")
_EXAMPLES = (
    "uniform(0.9, 0.999), log(1e-5, 1e-2), flipped_log(0.9, 0.999), int(1, 8), int(16, 4096, log)"
)
_LONG = "{value: ...} for one value, {choices: [...]} for several"
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(([^()]*)\)\s*")


def is_short(definition: object) -> bool:
    """Tell whether an entry under `hyperparameters:` is no mapping, and not null."""
    return definition is not None and not isinstance(definition, Mapping)


def long_form(name: str, definition: object) -> object:
    """Write out a short form.

    A mapping, and null, are returned as they are.

    Args:
        name: of the hyperparameter, for errors.
        definition: its entry under `hyperparameters:`.

    Raises:
        InputError: it is no short form: a tuple, or text with parentheses that is no interval.
    """
    if not is_short(definition):
        return definition
    key = f"hyperparameters.{name}"
    if isinstance(definition, list):
        if _is_interval(definition):
            lower, upper, word = definition
            return _of_text(f"{word}({lower}, {upper})", key)
        _check_choices(definition, key)
        return {"choices": definition}
    if isinstance(definition, str):
        return _of_text(definition, key)
    if isinstance(definition, bool | int | float):
        return {"value": definition}
    raise InputError(
        f"expected a value, a list of choices, an interval ({_EXAMPLES}) or a mapping, "
        f"got {shown(definition)}",
        key=key,
    )


def _of_text(text: str, key: str) -> dict[str, Any]:
    """Read text: an interval where it has parentheses, else a value."""
    if not _has_parenthesis(text):
        return {"value": text}
    call = _CALL.fullmatch(text)
    if call is None:
        raise InputError(
            f"{shown(text)} is not an interval such as {_EXAMPLES}; "
            f"text with parentheses needs the long form ({_LONG})",
            key=key,
        )
    word = call[1]
    if word not in INTERVALS:
        allowed = f"allowed: {_EXAMPLES}; text with parentheses needs the long form ({_LONG})"
        hint = did_you_mean(word, INTERVALS, allowed)
        raise InputError(f"unknown interval {shown(word)}{hint}", key=key)
    kind, scale = INTERVALS[word]
    arguments = [part.strip() for part in call[2].split(",")]
    if kind == "int" and len(arguments) == 3:
        scale = arguments.pop()
        if scale not in INT_SCALES:
            raise InputError(
                f"expected one of {', '.join(INT_SCALES)} as the scale, got {shown(scale)}", key=key
            )
    if len(arguments) != 2:
        raise InputError(
            f"{word}(...) takes a lower and an upper bound, got {shown(text)}; "
            f"for example {_EXAMPLES}. A default and more need the long form",
            key=key,
        )
    lower, upper = (_number(argument, key) for argument in arguments)
    return {"type": kind, "lower": lower, "upper": upper, "scale": scale}


def _number(text: str, key: str) -> float:
    """Read a bound as the numbers of a file are read."""
    try:
        value = parse_document(text).data
    except InputError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"expected a number as a bound, got {shown(text)}", key=key)
    return value


def _is_interval(entries: list[Any]) -> bool:
    """Tell whether a list has two numbers and an interval's word."""
    *bounds, word = entries or [None]
    return (
        isinstance(word, str)
        and word in INTERVALS
        and len(bounds) == 2
        and all(isinstance(bound, int | float) for bound in bounds)
    )


def _check_choices(choices: list[Any], key: str) -> None:
    """Refuse a list that was probably meant as an interval.

    Raises:
        InputError: text with parentheses, or the name of a scale beside numbers.
    """
    for position, choice in enumerate(choices):
        if isinstance(choice, str) and _has_parenthesis(choice):
            raise InputError(
                f"{shown(choice)}: a list holds choices, an interval stands alone and without "
                f"brackets; text with parentheses needs the long form ({_LONG})",
                key=f"{key}[{position}]",
            )
    words = [choice for choice in choices if isinstance(choice, str) and choice in INTERVALS]
    numbers = [choice for choice in choices if isinstance(choice, int | float)]
    if words and numbers:
        bounds = ", ".join(str(number) for number in numbers[:2])
        raise InputError(
            f"{shown(choices)}: a list holds choices; an interval is {words[0]}({bounds}) or "
            f"[{bounds}, {words[0]}], and the text {words[0]} among choices needs the long form "
            f"({_LONG})",
            key=key,
        )


def _has_parenthesis(text: str) -> bool:
    return "(" in text or ")" in text
