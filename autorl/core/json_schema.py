"""JSON Schema of the classes that check files, for editors.

Types, ranges, choices and defaults are pydantic's own account of a class; the sentence of a key is
its docstring, or its entry below `Attributes:` in the docstring of the class.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

Json: TypeAlias = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"
"""The newest draft that all editors know."""
_ENTRIES = re.compile(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", re.M)
_BOUNDS = {
    "minimum": "at least {:,}",
    "exclusiveMinimum": "above {:,}",
    "maximum": "at most {:,}",
    "exclusiveMaximum": "below {:,}",
}
_MOST_SHOWN = 10**15  # a larger bound is that of a file format


def definitions(*kinds: type) -> Json:
    """Describe classes, and those they are made of, by name."""
    _, shared = TypeAdapter.json_schemas(
        [(kind.__name__, "validation", TypeAdapter(kind)) for kind in kinds],
        ref_template="#/definitions/{model}",
        schema_generator=_Writer,
    )
    described: Json = shared["$defs"]
    return described


def whole(name: str, content: Json, definitions: Json) -> Json:
    """Make a schema of its own of some content."""
    head = {"$schema": DIALECT, "$id": f"urn:autorl:{name}", "title": f"autorl {name} file"}
    return {**head, **content, "definitions": definitions}


def mapping(properties: Mapping[str, Any], **more: Any) -> Json:
    """Describe a mapping of these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def sentences(kind: type) -> dict[str, str]:
    """Read what docstrings say of a class's keys."""
    said: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        for names, text in _ENTRIES.findall(inspect.cleandoc(cls.__doc__ or "")):
            said |= dict.fromkeys(names.split(", "), _in_one_line(text))
        said |= _below_fields(cls)
    return said


def _in_one_line(text: str) -> str:
    words = " ".join(text.split()).replace("None", "null")
    return f"{words[:1].upper()}{words[1:]}".replace("`", "")


@cache
def _below_fields(cls: type) -> dict[str, str]:
    """Read the docstrings below fields of a class, none without its source."""
    try:
        tree: Any = ast.parse(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    said = {}
    for pair in pairwise(tree.body[0].body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=it)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                said[it] = _in_one_line(text)
    return said


class _Writer(GenerateJsonSchema):
    """Writes the older draft, with a sentence for every key."""

    def model_schema(self, schema: Any) -> Json:
        return _told(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> Json:
        return _told(super().dataclass_schema(schema), schema["cls"])

    def tuple_schema(self, schema: Any) -> Json:
        items = super().tuple_schema(schema)
        if "prefixItems" in items:
            items |= {"items": items.pop("prefixItems"), "additionalItems": False}
        return items


def _told(written: Json, cls: type) -> Json:
    said = sentences(cls)
    for name, value in written.get("properties", {}).items():
        if isinstance(value.get("default"), dict):  # that of a section is said by its keys
            del value["default"]
        if name in said:
            value["description"] = described(value, said[name])
    if cls.__doc__:
        written["description"] = _in_one_line(cls.__doc__.split("\n\n")[0])
    one_of = getattr(cls, "one_of", ())
    if one_of:
        stated = {"not": {"type": "null"}}
        written["oneOf"] = [{"required": [it], "properties": {it: stated}} for it in one_of]
    return written


def described(value: Json, text: str) -> str:
    """Say of a key what it is, its range and its default."""
    parts = [text]
    for part in (value, *value.get("anyOf", ())):
        bounds = [
            words.format(part[key])
            for key, words in _BOUNDS.items()
            if key in part and abs(part[key]) < _MOST_SHOWN
        ]
        if bounds:
            parts.append(f"A number {' and '.join(bounds)}.")
    if value.get("default") not in (None, "", [], {}):
        parts.append(f"Default: {json.dumps(value['default'])}.")
    return " ".join(parts)
