"""JSON forms of segments, reports and outcomes, which cross machines.

Every field of `autorl.types` is written by its name, and read back by its annotation: a field that
is added there is on the wire without a line here. Reading is strict and makes plain data only.
Floats keep every bit; NaN and infinities are written as Python's `json` writes them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from autorl.plain_text import shown
from autorl.plain_values import python_scalar
from autorl.types import FrozenMap, InputError, Outcome, Report, Segment, SegmentId, freeze

_Value = TypeVar("_Value")
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def segment_to_json(segment: Segment) -> dict[str, Any]:
    """Write a segment as values that JSON has."""
    return to_json(segment)


def segment_from_json(data: object, file: str | None = None) -> Segment:
    """Read a segment.

    Args:
        data: what `segment_to_json` gave, perhaps through a file.
        file: where it was read, for messages.

    Raises:
        InputError: a key is missing or unknown, or a value is not of its type.
    """
    return read(Segment, data, file)


def report_to_json(report: Report) -> dict[str, Any]:
    """Write a report as values that JSON has."""
    return to_json(report)


def report_from_json(data: object, file: str | None = None) -> Report:
    """Read a report, as `segment_from_json` reads a segment."""
    return read(Report, data, file)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Write an outcome as values that JSON has.

    Raises:
        TypeError: a trainer put something into it that JSON has no form for.
    """
    return to_json(outcome)


def outcome_from_json(data: object, file: str | None = None) -> Outcome:
    """Read an outcome, as `segment_from_json` reads a segment."""
    return read(Outcome, data, file)


def dumps(data: Mapping[str, object]) -> str:
    """Write a JSON object in one line, its keys in their order."""
    return json.dumps(data, separators=(",", ":"))


def loads(text: str, file: str | None = None) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: the text is none.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON ({error})", file=file) from None
    if not isinstance(data, dict):
        raise InputError(f"expected a JSON object, got {shown(data)}", file=file)
    return data


def to_json(value: Any) -> dict[str, Any]:
    """Write a frozen dataclass as values that JSON has.

    Raises:
        TypeError: it holds something that JSON has no form for.
    """
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def read(kind: type[_Value], data: object, file: str | None = None) -> _Value:
    """Read a frozen dataclass by the annotations of its fields.

    Raises:
        InputError: as of `segment_from_json`.
    """
    try:
        value: _Value = _dataclass(kind, data, "")
    except InputError as error:
        raise error.in_file(file) from None
    return value


# -- writing -----------------------------------------------------------------------------------


def _plain(value: object) -> Any:
    """Turn a value into what JSON has."""
    if dataclasses.is_dataclass(value):
        return to_json(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = python_scalar(value)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, SegmentId):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} {shown(value)} cannot be sent to another machine")


# -- reading -----------------------------------------------------------------------------------


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: type, data: object, key: str) -> Any:
    entries = _mapping(data, key)
    annotations = _annotations(kind)
    expected = [field.name for field in dataclasses.fields(kind)]
    for name in entries:
        if name not in expected:
            raise InputError(
                f"unknown key {shown(name)}; expected {', '.join(expected)}", key=key or None
            )
    for name in expected:
        if name not in entries:
            raise InputError("the key is missing", key=_below(key, name))
    values = {
        name: _value(annotations[name], entries[name], _below(key, name)) for name in expected
    }
    return kind(**values)


def _value(kind: Any, data: object, key: str) -> Any:
    """Read a value of an annotated type."""
    origin = get_origin(kind)
    if kind is Any:
        return freeze(data)
    if origin in (Union, UnionType):
        return _any_of(get_args(kind), data, key)
    if origin is Literal:
        return _choice(get_args(kind), data, key)
    if origin is tuple:
        if not isinstance(data, list):
            raise _unexpected("a list", data, key)
        item_kind = get_args(kind)[0]
        return tuple(
            _value(item_kind, item, f"{key}[{number}]") for number, item in enumerate(data)
        )
    if origin is not None and issubclass(origin, Mapping):
        item_kind = get_args(kind)[1]
        entries = _mapping(data, key)
        return FrozenMap(
            {name: _value(item_kind, item, _below(key, name)) for name, item in entries.items()}
        )
    if issubclass(kind, FrozenMap):
        return kind(_mapping(data, key))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, data, key)
    if issubclass(kind, StrEnum):
        return kind(_choice([entry.value for entry in kind], data, key))
    if kind is SegmentId:
        return _segment_id(data, key)
    return _scalar(kind, data, key)


def _any_of(kinds: Sequence[Any], data: object, key: str) -> Any:
    """Read a value of the first type that takes it."""
    if data is None and NoneType in kinds:
        return None
    kinds = [kind for kind in kinds if kind is not NoneType]
    for kind in kinds[:-1]:
        try:
            return _value(kind, data, key)
        except InputError:
            continue
    return _value(kinds[-1], data, key)


def _choice(choices: Sequence[object], data: object, key: str) -> object:
    if not isinstance(data, str) or data not in choices:
        raise _unexpected(f"one of {', '.join(map(str, choices))}", data, key)
    return data


def _segment_id(data: object, key: str) -> SegmentId:
    try:
        segment = SegmentId.parse(data if isinstance(data, str) else "")
    except ValueError:
        raise _unexpected("a segment such as 12.3 or 12.3@500", data, key) from None
    # `int` takes more than is written: " 12", "1_2", "-1". The text names files.
    if segment != data or min(segment.proposal, segment.seed, segment.end or 0) < 0:
        raise _unexpected("a segment such as 12.3 or 12.3@500", data, key)
    return segment


def _scalar(kind: type, data: object, key: str) -> Any:
    """Read a number, a truth value or a text.

    A whole number stays one where a float is annotated: trainers give both.
    """
    # A bool is an int of Python; of JSON it is another type.
    allowed = {float: (float, int), int: (int,), bool: (bool,), str: (str,)}[kind]
    if not isinstance(data, allowed) or (isinstance(data, bool) and kind is int):
        raise _unexpected(_NAMES[kind], data, key)
    return data


def _mapping(data: object, key: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise _unexpected("a mapping", data, key)
    return data


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _unexpected(expected: str, data: object, key: str) -> InputError:
    return InputError(f"expected {expected}, got {shown(data)}", key=key or None)
