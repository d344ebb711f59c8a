"""Reading YAML, and JSON, which is YAML, the way people expect.

`1e-3` is a number, no key stands twice, and errors have lines.
Shared by search-space files and study files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from autorl.core.plain_text import one_of, shortened, shown
from autorl.core.types import InputError

_KEY = 100  # characters of a key in a message: a stranger's may be long
_MOST_WRITTEN_OUT = 100_000  # nodes and characters that a short file with aliases may stand for
# YAML 1.2: PyYAML's 1.1 makes text of 1e-3, True of yes, 90 of 1:30, 8 of 010.
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^[-+]?(?:[0-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_FLOAT = re.compile(
    r"""^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$""",
    re.VERBOSE,
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2 that refuses keys given twice.

    `1e-3` is a number, while `yes`, `1:30` and dates are text. A call is one value also between
    braces: `{rate: log(1e-4, 1e-2)}`.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        if node.flow_style:
            node.value = _with_whole_calls(node.value)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            # A key from `<<` may be given again: the mapping's own value counts.
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, Hashable):
                raise InputError("a key cannot be a list or a mapping", line=line)
            if key in seen:
                raise InputError(
                    f"the key {shown(key)} is given twice, first in line {seen[key]}", line=line
                )
            seen[key] = line
        return super().construct_mapping(node, deep)

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        base = 16 if "x" in text else 10
        return int(text, base)


def _with_whole_calls(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Join the calls of a mapping that YAML cut at their commas.

    A part that was cut off is a key without a value.
    """
    joined: list[tuple[Any, Any]] = []
    for key, value in pairs:
        call: Any = joined[-1][1] if joined else None
        is_open = _is_plain(call) and call.value.count("(") > call.value.count(")")
        if is_open and _is_plain(key) and _is_plain(value) and not value.value:
            call.value += f", {key.value}"
        else:
            joined.append((key, value))
    return joined


def _is_plain(node: object) -> TypeGuard[yaml.ScalarNode]:
    """Tell whether a node is a scalar without quotes."""
    return isinstance(node, yaml.ScalarNode) and node.style is None


_REPLACED = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp")}
_Loader.yaml_implicit_resolvers = {
    character: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for character, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


class Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text our loader takes for a number.

    YAML 1.1 does not take `1e-3` and `09` for one.
    """


Dumper.add_implicit_resolver(
    "tag:autorl,2026:number", re.compile(r"[-+]?[0-9_]+([eE][-+]?[0-9]+)?$"), list("-+0123456789")
)


@dataclass(frozen=True)
class Document:
    """Data of a file, and the line of each key.

    Attributes:
        data: the content in Python types; None if the file is empty.
        lines: line number (from 1) of every key path: `fidelity.steps`, `constraints[0]`.
        file: for messages.
    """

    data: Any
    lines: Mapping[str, int]
    file: str | None = None

    def line(self, key: str | None) -> int | None:
        """Return the line of `key`, else of the nearest key above it."""
        while key:
            if key in self.lines:
                return self.lines[key]
            key = re.sub(r"(\.[^.\[]*|\[\d+\]|^[^.\[]+)$", "", key)
        return None

    def error(self, message: str, key: str | None = None) -> InputError:
        """Make an `InputError` that says where."""
        shown_key = shortened(key, _KEY) if key else None
        return InputError(message, file=self.file, key=shown_key, line=self.line(key))

    def located(self, error: InputError, prefix: str = "") -> InputError:
        """Add the file and line to an error.

        Args:
            error: its key is a path in the part that was checked.
            prefix: where that part stands in this document.
        """
        key = ".".join(part for part in (prefix, error.key) if part)
        return self.error(error.message, key)


def read_document(path: str | Path) -> Document:
    """Read a YAML or JSON file.

    Raises:
        InputError: the file is missing, unreadable, not text, not YAML, or has a key twice.
    """
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
        if Path(path).suffix == ".json":
            text = text.replace("\t", "  ")  # JSON may be indented with tabs, YAML may not
    except FileNotFoundError:
        raise InputError("file not found", file=file) from None
    except IsADirectoryError:
        raise InputError("expected a file, this is a folder", file=file) from None
    except UnicodeDecodeError:
        raise InputError("not a text file in UTF-8", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    return parse_document(text, file)


def parse_document(text: str, file: str | None = None) -> Document:
    """Read YAML or JSON text.

    Raises:
        InputError: the text is not YAML, or has a key twice.
    """
    lines: dict[str, int] = {}
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _collect_lines(node, "", lines, {}, max(_MOST_WRITTEN_OUT, 2 * len(text)))
            data = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except InputError as error:
        raise error.in_file(file) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise InputError(
            f"not valid YAML: {shortened(str(error.problem or error.context))}",
            file=file,
            line=line,
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(
            # The other lines say where in "<unicode string>".
            f"not valid YAML: {shortened(str(error).splitlines()[0])}",
            file=file,
        ) from None
    except RecursionError:  # PyYAML reads nested brackets by nested calls
        raise InputError("nested too deeply", file=file) from None
    return Document(data, lines, file)


def _collect_lines(
    node: yaml.Node, path: str, lines: dict[str, int], sizes: dict[int, int], most: int
) -> int:
    """Note the line of every key and item under `node`.

    Nodes that an alias repeats are counted, not walked again: a few aliases can stand for billions
    of items, which every reader of the data would walk.

    Args:
        node: of the document.
        path: its key.
        lines: of every key so far.
        sizes: nodes and characters under every node so far, by its `id`; 0 of those above.
        most: that `node` may stand for.

    Returns:
        The nodes and characters that `node` stands for.
    """
    line = node.start_mark.line + 1
    if id(node) in sizes:
        if sizes[id(node)] == 0:
            raise InputError("an anchor may not contain itself", line=line)
        return sizes[id(node)]
    sizes[id(node)] = 0
    size = 1
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            size += _collect_lines(key_node, path, lines, sizes, most)
            key = f"{path}.{key_node.value}" if path else str(key_node.value)
            lines[key] = key_node.start_mark.line + 1
            size += _collect_lines(value_node, key, lines, sizes, most)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            key = f"{path}[{position}]"
            lines[key] = item.start_mark.line + 1
            size += _collect_lines(item, key, lines, sizes, most)
    else:
        size += len(node.value)
    if size > most:
        raise InputError(
            f"with its aliases written out it is longer than {most} characters: write less, or "
            "write it without aliases",
            line=line,
        )
    sizes[id(node)] = size
    return size


def unknown_key(key: object, known: Collection[str]) -> str:
    """Word the message for an unknown key."""
    hint = one_of(key, sorted(known), "known keys")
    return f"unknown key {shown(str(key))}{hint}"
