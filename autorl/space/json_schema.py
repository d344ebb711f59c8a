"""Makes the JSON Schema of search spaces from what checks them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import get_type_hints

from pydantic import TypeAdapter

from autorl.core.json_schema import Json, mapping, sentences
from autorl.space import simplex
from autorl.space.core import SpaceCore
from autorl.space.extend import EXTENDS, LISTS, MAPPINGS
from autorl.space.hyperparameter import CONFIDENCES, NAME, Details, Hyperparameter
from autorl.space.schedules import SHAPES
from autorl.space.short_form import INT_SCALES, INTERVALS
from autorl.space.yaml_format import KEYS, TOP

_MADE_BY: Mapping[str, Callable[..., object]] = {
    "float": Hyperparameter.real,
    "int": Hyperparameter.integer,
    "categorical": Hyperparameter.categorical,
    "ordinal": Hyperparameter.ordinal,
    "constant": Hyperparameter.constant,
    "simplex": simplex.expand,
}
_SAID = {
    EXTENDS: "The name or file of a space of which this one fixes, narrows or adds a part.",
    "schedule": "Shapes of its change over training, to be searched, or the only one.",
    "size": "How many weights there are, with sum 1.",
    "value": "The one value of a constant.",
}
_UNTYPED = ("categorical", "constant")  # their keys tell
_BOUND = "[^(),]+"


def definitions() -> Json:
    """Describe spaces, alone and within a study file.

    A `change` is the entry of a hyperparameter in a space that extends another.
    """
    entry = {"$ref": "#/definitions/hyperparameter"}
    change = {"$ref": "#/definitions/change"}
    return {
        "hyperparameter": {"anyOf": [_short(), *map(_entry, KEYS)]},
        "change": {
            "anyOf": [{"type": "null"}, _short(), *(_entry(kind, complete=False) for kind in KEYS)]
        },
        "space": {
            **_space(),
            "if": {"required": [EXTENDS]},
            "then": {"properties": {"hyperparameters": {"additionalProperties": change}}},
            "else": {
                "required": ["hyperparameters"],
                "properties": {"hyperparameters": {"additionalProperties": entry}},
            },
        },
        "inline_space": {
            "type": "object",
            "if": {"anyOf": [{"required": [key]} for key in TOP]},
            "then": {"$ref": "#/definitions/space"},
            "else": {**_named(entry), "minProperties": 1},
        },
    }


def _space() -> Json:
    said = {**sentences(SpaceCore), **_SAID}
    kinds: dict[str, Json] = {
        **{key: {"type": ["object", "null"]} for key in MAPPINGS},
        **{key: {"type": ["array", "null"]} for key in LISTS},
        EXTENDS: {"type": "string"},
        "hyperparameters": {**_named({}), "type": ["object", "null"]},
    }
    return mapping({key: {**kinds[key], "description": said[key]} for key in TOP})


def _named(entry: Json) -> Json:
    names = {"pattern": f"^{NAME.pattern}$"}
    return {"type": "object", "propertyNames": names, "additionalProperties": entry}


def _short() -> Json:
    """Describe a value, a list of choices, and an interval as text."""
    bounds = rf"\({_BOUND},{_BOUND}\)"
    scales = "|".join(INT_SCALES)
    integers = rf"int\s*\({_BOUND},{_BOUND},\s*({scales})\s*\)"
    calls = rf"^\s*(({'|'.join(INTERVALS)})\s*{bounds}|{integers})\s*$"
    texts = [{"pattern": "^[^()]*$"}, {"pattern": calls}]
    return {
        "anyOf": [
            {"type": ["number", "boolean"]},
            {"type": "array", "minItems": 1},
            {"type": "string", "anyOf": texts},
        ]
    }


def _entry(kind: str, *, complete: bool = True) -> Json:
    """Describe a hyperparameter of a type by the constructor that checks it."""
    make = _MADE_BY[kind]
    hints = {**get_type_hints(Details), **get_type_hints(make)}
    said = {**sentences(Hyperparameter), **_SAID}
    shape = {"enum": [*SHAPES]}
    of_prior: Json = {"centre": {}, "confidence": {"enum": [*CONFIDENCES]}}
    special: dict[str, Json] = {
        "type": {"const": kind},
        "choices": {"type": "array", "minItems": 1},
        "schedule": {"anyOf": [shape, {"type": "array", "items": shape}]},
        "prior": mapping(of_prior, required=["centre"]),
    }
    if kind == "int":
        special["scale"] = {"enum": [*INT_SCALES]}
    keys = {key: special.get(key) or TypeAdapter(hints[key]).json_schema() for key in KEYS[kind]}
    parameters = inspect.signature(make).parameters.values()
    needed = [it.name for it in parameters if it.default is it.empty]
    if kind not in _UNTYPED:
        needed.append("type")
    return mapping(
        {key: {**value, "description": said[key]} for key, value in keys.items()},
        required=[key for key in KEYS[kind] if complete and key in needed],
    )
