"""Types of the keys of `manifest.json`, checked when it is read.

A manifest is a stranger's file.

They follow from the annotations of `Manifest` and `Objective`, so a key that is added there is
typed here. The content of a mapping is not in its annotation; `_HELD` says it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from autorl.core.plain_text import shortened, shown
from autorl.core.types import FrozenMap, InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LARGEST = 2**63 - 1  # a BIGINT of the tables
_DEEPEST = 32  # levels of a JSON value

Text = Annotated[str, Field(strict=True, max_length=100_000)]
Whole = Annotated[int, Field(strict=True, ge=-_LARGEST, le=_LARGEST)]
Count = Annotated[int, Field(strict=True, ge=0, le=_LARGEST)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
# Files stay inside the folder: no path but these is ever opened.
FileName = Annotated[
    str,
    Field(
        strict=True,
        pattern=(
            r"\A(space\.yaml|(configs|runs|segments)\.parquet|"
            r"evals/part-[0-9]{5,9}\.parquet)\z"  # the end in pydantic's (Rust's) expressions
        ),
    ),
]


class _Evaluation(BaseModel):
    """The keys of `evaluation` that are used in queries.

    Others are kept as they are.
    """

    model_config = ConfigDict(extra="allow")
    at: Text | None = None
    reduce: Text | None = None
    aggregate: Text | None = None
    steps: list[Count] = []
    overshoot: Count = 0
    undershoot: Count = 0


_HELD: Mapping[str, Any] = {
    "seeds": dict[Text, list[Whole]],
    "evaluation": _Evaluation,
    "packages": dict[Text, dict[Text, Any]],
    "rows": dict[Literal["configs", "runs", "evals", "segments"], Count],
    "files": dict[FileName, Text],
}
# Whole numbers outside `_HELD` (versions, steps) are never negative.
_SCALARS: Mapping[Any, Any] = {
    str: Text,
    int: Count,
    float: Number,
    NoneType: NoneType,
    bool: bool,
    Any: Any,
}


def check_types(kind: type[DataclassInstance], values: Mapping[str, object]) -> None:
    """Check values against the annotations of the dataclass `kind`.

    Raises:
        InputError: with the key of the first value that has another type.

    Keys that are unknown or missing are not looked at.
    """
    # Bounded before anything recursive looks at them.
    if _is_deeper(values, _DEEPEST):
        raise InputError(f"nested in more than {_DEEPEST} levels")
    try:
        _model(kind).model_validate(dict(values))
    except ValidationError as error:
        raise _first_problem(error) from None


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, Mapping | list | tuple):
        return False
    items = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in items)


@cache
def _model(kind: type[DataclassInstance]) -> type[BaseModel]:
    """Make a pydantic model of a dataclass, all of its fields optional."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {
        field.name: (_checked(hints[field.name], field.name), None)
        for field in dataclasses.fields(kind)
    }
    return create_model(kind.__name__, **fields)


def _checked(annotation: object, name: str) -> Any:
    """Put strict, bounded types in the place of plain ones."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if dataclasses.is_dataclass(annotation):
        return _model(annotation)  # type: ignore[arg-type]
    if annotation is FrozenMap:
        return _HELD.get(name, dict[Text, Any])
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Literal:
        return annotation
    if origin in (Union, UnionType):
        return Union[tuple(_checked(part, name) for part in parts)]  # noqa: UP007
    if origin is tuple:
        held = [part if part is ... else _checked(part, name) for part in parts]
        checked = tuple(held)
        return tuple[checked]  # type: ignore[valid-type]
    # A key of ours without one is a defect of ours.
    raise TypeError(f"no type for {name}: {annotation}")


def _first_problem(error: ValidationError) -> InputError:
    first = error.errors()[0]
    key = ""
    for part in first["loc"]:
        if isinstance(part, int):
            key += f"[{part}]"
        elif part not in _BRANCHES:
            key += f".{shortened(part)}"
    message = re.sub(r"^Input ", "", first["msg"])
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping of keys", message)
    if first["type"] == "string_pattern_mismatch":
        message = (
            "not a file of a landscape: space.yaml, configs, runs or segments.parquet, "
            "evals/part-00000.parquet"
        )
    return InputError(f"{message}, got {shown(first['input'])}", key=key.lstrip("."))


_BRANCHES = ("[key]", "int", "str", "float", "none")  # what pydantic adds to a place
