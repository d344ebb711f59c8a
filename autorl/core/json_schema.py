"""JSON Schema of the classes that check files, for editors.

Types, ranges, choices and defaults are pydantic's own account of a class; the sentence of a key is
its docstring, or its entry below `Attributes:` in the docstring of the class.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
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
_NAMES = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_MOST_SHOWN = 10**15  # a larger bound is that of a file format


def definitions(*kinds: type) -> Json:
    """Describe classes, and those they are made of, by name."""
    _, shared = TypeAdapter.json_schemas(
        [(kind.__name__, "validation", TypeAdapter(kind)) for kind in kinds],
        ref_template="#/definitions/{model}",
        schema_generator=_Writer,
    )
    found: Json = shared["$defs"]
    return found


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
        said |= {name: _in_one_line(text) for name, text in _below_fields(cls)}
    return said


def _in_one_line(text: str) -> str:
    words = " ".join(text.split()).replace("None", "null")
    return f"{words[:1].upper()}{words[1:]}".replace("`", "")


def _below_fields(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class that have a docstring below them."""
    body = _classes(cls.__module__).get(cls.__qualname__, [])
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(it))
            ):
                yield name, it


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """Parse the classes of a module, none where its source is not there."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


class _Writer(GenerateJsonSchema):
    """Writes the older draft, with a sentence for every key."""

    def model_schema(self, schema: Any) -> Json:
        return _told(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> Json:
        return _told(super().dataclass_schema(schema), schema["cls"])

    def str_schema(self, schema: Any) -> Json:
        text = super().str_schema(schema)
        if "pattern" in text:  # Rust's ends of a text are not those of JavaScript
            text["pattern"] = text["pattern"].replace(r"\A", "^").replace(r"\z", "$")
        return text

    def tuple_schema(self, schema: Any) -> Json:
        items = super().tuple_schema(schema)
        if "prefixItems" in items:
            items |= {"items": items.pop("prefixItems"), "additionalItems": False}
        return items

    def get_title_from_name(self, name: str) -> str:
        return name

    def default_schema(self, schema: Any) -> Json:
        written = super().default_schema(schema)
        # That of a section is said by its keys.
        if isinstance(written.get("default"), dict) and written["default"]:
            del written["default"]
        return written


def _told(written: Json, cls: type) -> Json:
    said = sentences(cls)
    properties = written["properties"] = _renamed(written.get("properties", {}))
    for name, value in properties.items():
        if name in said:
            value["description"] = described(value, said[name])
    about = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
    written.pop("title", None)
    written.pop("description", None)
    if cls.__dict__.get("__doc__"):
        written["description"] = _in_one_line(about)
    one_of = getattr(cls, "one_of", ())
    if one_of:
        written["oneOf"] = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in one_of
        ]
    return written


def _renamed(written: Any) -> Any:
    """Give bounds behind a validator their names."""
    if isinstance(written, list):
        return [_renamed(part) for part in written]
    if not isinstance(written, dict):
        return written
    return {_NAMES.get(key, key): _renamed(value) for key, value in written.items()}


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
