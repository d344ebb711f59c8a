"""Makes the JSON Schema of `optimizer` from the options of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

from autorl.core.json_schema import Json, described
from autorl.core.types import InputError
from autorl.optimizers import registry
from autorl.optimizers.base import BaseOptimizer

Class: TypeAlias = type[BaseOptimizer[Any]]
_TYPES: Mapping[type, str] = {
    NoneType: "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Mapping: "object",
    Sequence: "array",
}
_MAY_BE_NULL = ("rungs",)  # a key of the section too, whose null is its absence


def optimizer_name(names: Sequence[str]) -> Json:
    """Describe names of optimizers: these, or a class by path."""
    return {"type": "string", "anyOf": [{"enum": [*names]}, {"pattern": ":"}]}


def optimizer_options(names: Sequence[str]) -> list[Json]:
    """Describe the options that each of these optimizers takes."""
    usual = (registry.DEFAULT, registry.DEFAULT_WITH_PRIOR)
    defaults = [_taken_by(registry.find(name)) for name in usual]
    rules: list[Json] = [{"if": {"not": {"required": ["name"]}}, "then": {"anyOf": defaults}}]
    for name in names:
        try:
            taken = _taken_by(registry.find(name))
        except InputError:  # not installed: it takes what it takes
            continue
        condition = {"required": ["name"], "properties": {"name": {"const": name}}}
        rules.append({"if": condition, "then": taken})
    return rules


def _taken_by(cls: Class) -> Json:
    """Describe the keys beside `name`, with those of all stopping rules."""
    taken: dict[str, list[Json]] = {"stop": [{"type": "null"}]} if cls.partial else {}
    for taker in (cls, *([] if cls.partial else map(registry.find_stopping, registry.STOPPING))):
        for field in registry.option_fields(taker):
            taken.setdefault(field.name, []).append(_option(taker, field))
    options = {key: {"anyOf": kinds} for key, kinds in taken.items()}
    return {"properties": options, "propertyNames": {"enum": ["name", "stop", *options]}}


def _option(cls: Class, field: registry.OptionField) -> Json:
    """Describe what an option may be, as `registry` checks it."""
    parts: list[Json] = []
    for kind in (
        *registry.option_types(cls, field),
        *([NoneType] if field.name in _MAY_BE_NULL else []),
    ):
        part: Json = {"type": _TYPES[kind]}
        if kind in (int, float):
            bounds = {key: field.metadata[key] for key in ("minimum", "maximum")}
            part |= {key: bound for key, bound in bounds.items() if bound is not None}
        elif kind is str and field.metadata["choices"]:
            part["enum"] = [*field.metadata["choices"]]
        parts.append(part)
    text = field.metadata["help"]
    value: Json = parts[0] if len(parts) == 1 else {"anyOf": parts}
    value["default"] = field.default
    return {**value, "description": described(value, f"{text[:1].upper()}{text[1:]}.")}
