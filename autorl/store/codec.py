"""Events to and from plain JSON, for the log.

The classes of `events.py` declare the JSON: the body of an event holds its fields by name, and so
does every object in it. Left out are fields that have their default, and the `segment` of an object
inside one of that segment. Tuples become lists and come back as tuples; floats keep every bit
(`repr`); NaN and infinities are written as Python's `json` writes them, and only this module reads
them. Hashes of the log are taken over the texts.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import NoneType
from typing import Any, TypeAlias, cast, get_args, get_origin, get_type_hints

from autorl.core.plain_values import python_scalar
from autorl.core.types import Event, FrozenMap, Proposed, Scored, SegmentId, freeze
from autorl.store.events import Body, ProposalFailed, ProposalMade, ProposalScored, StudyEvent

_EVENTS: Mapping[str, type[StudyEvent]] = {event.kind: event for event in get_args(StudyEvent)}
KINDS = frozenset(_EVENTS)
_SEGMENT = "segment"

_Read: TypeAlias = Callable[[Any, object], Any]
"""Makes a value of its JSON and of the segment that the object around it has."""


class UnknownEventError(ValueError):
    """An event is of a kind that this version does not have.

    Nothing may be left out of a fold.
    """

    def __init__(self, kind: object) -> None:
        super().__init__(f"event of unknown kind {kind!r}: written by a newer autorl?")


def body_of(event: StudyEvent) -> dict[str, Any]:
    """Return what is stored of an event beside its kind."""
    return _fields_of(event, None)


def read_event(kind: str, body: Body) -> StudyEvent:
    """Read an event from its stored body.

    Args:
        kind: as the log names it.
        body: what is stored beside it. It may be changed afterwards: the event has copies.

    Raises:
        UnknownEventError: there is no such kind.
        ValueError: the body is not one of this kind.
    """
    event = _EVENTS.get(kind)
    if event is None:
        raise UnknownEventError(kind)
    try:
        return cast(StudyEvent, _reader(cast(Any, event))(body, None))
    # All that a constructor raises at a body of another shape.
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"event of kind {kind!r} cannot be read ({problem})") from error


# -- objects -----------------------------------------------------------------------------------


@functools.cache
def _defaults(kind: Any) -> Mapping[str, object]:
    """Return the default of each field of a dataclass, by name."""
    missing = dataclasses.MISSING
    return {
        field.name: field.default if field.default_factory is missing else field.default_factory()
        for field in dataclasses.fields(kind)
    }


def _fields_of(value: Any, segment: object) -> dict[str, Any]:
    """Return the fields of a dataclass that say anything new, by name.

    `segment` is the one that the object around it names.
    """
    defaults = _defaults(cast(Any, type(value)))
    inner = getattr(value, _SEGMENT) if _SEGMENT in defaults else segment
    fields = {}
    for name, default in defaults.items():
        item = getattr(value, name)
        if item == default or (name == _SEGMENT and item == segment):
            continue
        if dataclasses.is_dataclass(item):
            item = _fields_of(item, inner)
        elif isinstance(item, tuple) and item and dataclasses.is_dataclass(item[0]):
            item = [_fields_of(part, inner) for part in item]
        fields[name] = item
    return fields


@functools.cache
def _reader(kind: Any) -> _Read:
    """Return what reads a value of a type."""
    arguments = get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _object_reader(cast(type, kind))
    if get_origin(kind) is tuple and arguments[-1] is Ellipsis:
        read = _reader(arguments[0])
        return lambda value, segment: tuple([read(item, segment) for item in value])
    if NoneType in arguments:
        read = _union_reader([argument for argument in arguments if argument is not NoneType])
        return lambda value, segment: None if value is None else read(value, segment)
    if kind is SegmentId:
        return lambda value, _: SegmentId.parse(value)
    if isinstance(kind, type) and issubclass(kind, StrEnum | FrozenMap):
        return lambda value, _: kind(value)
    return lambda value, _: freeze(value)


def _union_reader(kinds: list[Any]) -> _Read:
    """Return what reads an object of one of several types.

    It is of the first type that has all of its fields.
    """
    readers = [_reader(kind) for kind in kinds]
    if len(kinds) == 1 or not all(map(dataclasses.is_dataclass, kinds)):
        return readers[0]
    names = [{field.name for field in dataclasses.fields(kind)} for kind in kinds]

    def read(value: Any, segment: object) -> Any:
        number = next(i for i, fields in enumerate(names) if fields.issuperset(value))
        return readers[number](value, segment)

    return read


def _object_reader(kind: type) -> _Read:
    """Return what reads a dataclass."""
    hints = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    read_segment = readers.pop(_SEGMENT, None)

    def read(value: Any, segment: object) -> Any:
        fields = {}
        if read_segment is not None:
            if _SEGMENT in value:
                segment = read_segment(value[_SEGMENT], None)
            if segment is not None:
                fields[_SEGMENT] = segment
        for name, item in value.items():
            if name != _SEGMENT or read_segment is None:
                fields[name] = readers[name](item, segment)
        return kind(**fields)

    return read


# -- JSON --------------------------------------------------------------------------------------


def dumps(body: object) -> str:
    """Write one line of canonical JSON: sorted keys, no spaces."""
    return _ENCODER.encode(body)


def _unfrozen(value: object) -> object:
    # Not `plain`: json calls this for the few values it does not know and walks the rest in C.
    if isinstance(value, Mapping):
        return dict(value)
    number = python_scalar(value)  # one of NumPy that slipped through a trainer's metrics
    if number is not value:
        return number
    raise TypeError(
        f"{type(value).__name__} {value!r} cannot be stored: use numbers, strings, lists and "
        "mappings"
    )


# Made once: `json.dumps` makes one at every call that asks for anything of its own.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_unfrozen)


# -- what an optimizer observes -----------------------------------------------------------------


def to_json(event: Event) -> dict[str, Any]:
    """Turn an event into plain JSON, as a study's log does."""
    stored: StudyEvent
    # Fields that an optimizer does not observe are left empty.
    if isinstance(event, Proposed):
        stored = ProposalMade(event, config_hash="")
    elif isinstance(event, Scored):
        stored = ProposalScored(event, seeds=(), score=())
    else:
        stored = ProposalFailed(event, seeds=(), score=())
    return {"event": stored.kind, "body": json.loads(dumps(body_of(stored)))}


def from_json(fields: Mapping[str, Any]) -> Event:
    """The inverse of `to_json`.

    Raises:
        ValueError: the JSON is no such event.
    """
    match read_event(fields["event"], fields["body"]):
        case ProposalMade(proposed=proposed):
            return proposed
        case ProposalScored(scored=scored):
            return scored
        case ProposalFailed(failed=failed):
            return failed
    raise ValueError(f"an optimizer observes no event of kind {fields['event']!r}")
