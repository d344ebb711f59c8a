"""Options of a trainer, declared as the fields of a dataclass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from autorl.core.plain_text import one_of, shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.trainers.shared import check_names

T = TypeVar("T")
Number = Annotated[float, Field(allow_inf_nan=False), "a number"]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False), "a number of at least 0"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), "a number above 0"]
Count = Annotated[int, Field(ge=1), "a whole number above 0"]
Flag = Annotated[bool, "true or false"]
Text = Annotated[str | None, "a text"]


def read_options(kind: type[T], options: object, key: str = "trainer.kwargs") -> T:
    """Make a dataclass whose fields are options in a study file.

    A text among the annotations of a field says what is allowed.

    Raises:
        InputError: an option is unknown, missing, or not of its field's type.
    """
    if not isinstance(options, Mapping):
        raise InputError(f"expected a mapping of keys, got {shown(options)}", key=key)
    hints = get_type_hints(kind, include_extras=True)
    # `from` cannot be a name in Python, `from_` is one.
    named = {item.name.rstrip("_"): item for item in fields(kind)}  # type: ignore[arg-type]
    check_names(options, named, "option", key)
    values = {}
    for name, item in named.items():
        hint = hints[item.name]
        if name in options:
            values[item.name] = _read(options[name], hint, f"{key}.{name}")
        elif item.default is MISSING:
            raise InputError(f"is missing: {_allowed(hint)}", key=f"{key}.{name}")
    return kind(**values)


def _read(value: object, hint: Any, key: str) -> Any:
    try:
        # As JSON, whose lists are tuples and whose whole numbers are numbers too.
        return TypeAdapter(hint).validate_json(json.dumps(plain(value)), strict=True)
    except ValidationError:
        if get_origin(hint) is Literal:
            message = f"got {value!r}{one_of(value, get_args(hint))}"
        else:
            message = f"expected {_allowed(hint)}, got {shown(plain(value))}"
    raise InputError(message, key=key)


def _allowed(hint: Any) -> str:
    metadata: tuple[object, ...] = getattr(hint, "__metadata__", ())
    return next(text for text in metadata if isinstance(text, str))
