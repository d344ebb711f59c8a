"""JSON Schema of the section `optimizer`, made of the options that classes declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

from autorl.core.json_schema import Json, described
from autorl.core.types import InputError
from autorl.optimizers.base import BaseOptimizer
from autorl.optimizers.registry import (
    DEFAULT,
    DEFAULT_WITH_PRIOR,
    STOPPING,
    OptionField,
    find,
    find_stopping,
    option_fields,
    option_types,
)

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


def definitions() -> Json:
    """Describe the options of stopping rules."""
    return {f"stop_{rule}": {"properties": _options(find_stopping(rule))} for rule in STOPPING}


def optimizer_name(names: Sequence[str]) -> Json:
    """Describe the name of an optimizer: one of these, or a class by path."""
    return {"type": "string", "anyOf": [{"enum": [*names]}, {"pattern": ":"}]}


def optimizer_options(names: Sequence[str]) -> list[Json]:
    """Describe the options that each of these optimizers takes."""
    defaults = [_taken_by(find(name)) for name in (DEFAULT, DEFAULT_WITH_PRIOR)]
    rules: list[Json] = [{"if": {"not": {"required": ["name"]}}, "then": {"anyOf": defaults}}]
    for name in names:
        try:
            taken = _taken_by(find(name))
        except InputError:  # not installed: it takes what it takes
            continue
        named = {"required": ["name"], "properties": {"name": {"const": name}}}
        rules.append({"if": named, "then": taken})
    return rules


def _taken_by(cls: Class) -> Json:
    """Describe the keys beside `name`, with every rule and without."""
    own = _options(cls)
    if cls.partial:
        properties = {**own, "stop": {"type": "null"}}
        return {"properties": properties, "propertyNames": {"enum": ["name", *properties]}}
    of_rules: dict[str | None, Json] = {rule: _options(find_stopping(rule)) for rule in STOPPING}
    shared = {key for options in of_rules.values() for key in options}
    return {
        "properties": {key: value for key, value in own.items() if key not in shared},
        "allOf": [*_by_rule(own, {None: {}, **of_rules})],
    }


def _by_rule(own: Json, of_rules: Mapping[str | None, Json]) -> Iterator[Json]:
    for rule, options in of_rules.items():
        stop = {"properties": {"stop": {"const": rule}}}
        left = {key: value for key, value in own.items() if key not in options}
        then: Json = {"propertyNames": {"enum": ["name", "stop", *left, *options]}}
        if rule is None:
            then["properties"] = left
        else:
            stop["required"] = ["stop"]  # type: ignore[assignment]
            then["allOf"] = [{"$ref": f"#/definitions/stop_{rule}"}]
        yield {"if": stop, "then": then}


def _options(cls: Class) -> Json:
    return {field.name: _option(cls, field) for field in option_fields(cls)}


def _option(cls: Class, field: OptionField) -> Json:
    """Describe what an option may be, as `registry` checks it."""
    parts: list[Json] = []
    for kind in (*option_types(cls, field), *([NoneType] if field.name in _MAY_BE_NULL else [])):
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
