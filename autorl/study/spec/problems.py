"""Words what pydantic says against a study file, with its line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from pydantic import BaseModel, ValidationError

from autorl.core.masking import masked
from autorl.core.plain_text import shown
from autorl.core.types import InputError
from autorl.space import Document, unknown_key

_KEY = re.compile(r"[\w.-]+")
_TYPES = frozenset({"int", "float", "str", "bool", "constrained-int", "constrained-float"})


def first_problem(error: ValidationError, document: Document, model: type[BaseModel]) -> InputError:
    """Say the first problem pydantic met, as one line."""
    problems = error.errors()
    first = problems[0]
    if first["type"] == "missing":
        # It may be there under another name, which says more.
        unknown = (problem for problem in problems if problem["type"] == "extra_forbidden")
        first = next(unknown, first)
    # pydantic adds the branch of a union that it tried, such as `list[any]` or `int`: no key.
    path = [
        part
        for part in first["loc"]
        if isinstance(part, int) or (_KEY.fullmatch(part) and part not in _TYPES)
    ]
    steps = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    key = "".join(steps).lstrip(".")
    if first["type"] == "extra_forbidden":
        return document.error(unknown_key(path[-1], _known_keys(model, path[:-1])), key)
    if first["type"] == "missing":
        return document.error("is missing", key)
    # Its words, without those that speak of Python.
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message, is_mapping = re.subn(
        r"a valid dictionary( or instance of \w+)?", "a mapping of keys", message
    )
    if first["type"] != "value_error":
        message += f", got {shown(masked(first['input']))}"  # which may be a secret
    keys = _keys_of_section(model, path)
    if is_mapping and keys:
        message += f"; its keys: {', '.join(keys)}"
    return document.error(message, key)


def _known_keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the keys allowed at a place of the study file."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = _sections(model.model_fields[part].annotation)[0]
    return list(model.model_fields)


def _keys_of_section(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the keys of the section at a place.

    The result is None where a value or a user's own names stand there.
    """
    for part in path:
        if not isinstance(part, str) or part not in model.model_fields:
            return []
        sections = _sections(model.model_fields[part].annotation)
        if not sections:
            return []
        model = sections[0]
    return list(model.model_fields)


def _sections(annotation: object) -> list[type[BaseModel]]:
    """Return the sections a field's annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]
