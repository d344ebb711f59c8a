"""Search spaces and overrides of Hydra as ours, and configurations back."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import (
    IntervalSweep,
    Override,
    Quote,
    QuotedString,
    RangeSweep,
)

from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import Config, InputError
from autorl.space import Space, from_configspace, load_space

_MOST_VALUES = 10_000  # of a range with a step
_SCALES = ("log", "flipped_log")
_CONFIGSPACE = re.compile(r"(uniform|normal|beta)_(float|int)\Z")


@dataclass
class Searched:
    """Space and settings that a sweep searches.

    Attributes:
        definition: of the space, as a search-space file has it.
        keys: the override key of each hyperparameter, `+lr` for one that the application lacks.
        stated: hyperparameters whose default was stated.
    """

    definition: dict[str, Any] = field(default_factory=lambda: {"hyperparameters": {}})
    keys: dict[str, str] = field(default_factory=dict)
    stated: set[str] = field(default_factory=set)

    def add(self, override: Override) -> None:
        """Search what a sweep in Hydra's own syntax names.

        It takes the place of what was searched under that key.

        Raises:
            InputError: the sweep has no counterpart.
        """
        key = override.get_key_element()
        name = plain_name(key)
        self.definition["hyperparameters"][name] = _entry(key, override)
        self.keys[name] = key
        self.stated.discard(name)

    def fix(self, name: str, value: object) -> None:
        """Fix a hyperparameter at a value."""
        self.definition["hyperparameters"][name] = {"type": "constant", "value": value}
        self.stated.add(name)

    def start_from(self, values: Mapping[str, Any]) -> Space:
        """Make the space, with the application's own values as defaults.

        If these values are not a configuration of the space, the space's own defaults stand.
        """
        space = load_space(self.definition)
        with_values = copy.deepcopy(self.definition)
        for name, item in space.hyperparameters.items():
            value = values.get(name)
            if name not in self.stated and item.varies and item.accepts(value):
                with_values["hyperparameters"][name] = item.to_dict() | {"default": value}
        try:
            return load_space(with_values)
        except InputError:  # a rule of the space forbids them together
            return space


def plain_name(key: str) -> str:
    """Return the name of the hyperparameter that an override key sets."""
    return key.lstrip("+").replace("@", "/")


def read_searched(source: object, folder: Path) -> Searched:
    """Read `hydra.sweeper.search_space`.

    Args:
        source: the name or file of a search space; a mapping as such a file has it, or just
            hyperparameters by name; a ConfigSpace as mapping or .json, as hypersweeper has it.
        folder: where a relative path begins.

    Raises:
        InputError: it is none of these.
    """
    if source is None:
        return Searched()
    if isinstance(source, str):
        content = _json_of(folder / source)
        if not _is_configspace(content):
            space = load_space(source, folder)
            return Searched(space.to_dict(), {}, set(space.hyperparameters))
        source = content
    if not isinstance(source, Mapping):
        raise InputError(
            f"expected the file of a search space or a mapping, got {shown(source)}",
            key="hydra.sweeper.search_space",
        )
    if _is_configspace(source):
        return _of_configspace(source)
    entries = source.get("hyperparameters", source)
    content = source if "hyperparameters" in source else {"hyperparameters": source}
    stated = {name for name, entry in entries.items() if _states_default(entry)}
    return Searched(load_space(plain(content)).to_dict(), {}, stated)


def _json_of(path: Path) -> Any:
    """Read a file of JSON, as ConfigSpace writes one, or nothing."""
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"is not JSON ({error})", file=str(path)) from None


def _states_default(entry: object) -> bool:
    return isinstance(entry, Mapping) and not {"default", "default_value"}.isdisjoint(entry)


def _is_configspace(source: object) -> bool:
    """Say whether a mapping is a serialized ConfigSpace."""
    if not isinstance(source, Mapping):
        return False
    entries = source.get("hyperparameters", source)
    if isinstance(entries, Sequence) or isinstance(source.get("conditions"), list):
        return True
    return isinstance(entries, Mapping) and any(
        isinstance(entry, Mapping) and _CONFIGSPACE.match(str(entry.get("type")))
        for entry in entries.values()
    )


def _of_configspace(source: Mapping[str, Any]) -> Searched:
    """Read a serialized ConfigSpace.

    hypersweeper has its hyperparameters by name, a file has a list of them.
    """
    import ConfigSpace

    serialized = copy.deepcopy(plain(source))
    entries = serialized.get("hyperparameters", serialized)
    if isinstance(entries, dict):
        entries = [entry | {"name": name} for name, entry in entries.items()]
    for entry in entries:
        if "default" in entry:  # its name until ConfigSpace 1.0
            entry["default_value"] = entry.pop("default")
        # `5e3` and `1e4` are bounds of integers in hypersweeper's examples.
        if entry.get("type") == "uniform_int":
            entry |= {name: _whole(entry[name]) for name in ("lower", "upper") if name in entry}
    stated = {entry["name"] for entry in entries if _states_default(entry)}
    parts = {name: serialized.get(name) or [] for name in ("conditions", "forbiddens")}
    try:
        space = ConfigSpace.ConfigurationSpace.from_serialized_dict(
            {"hyperparameters": entries} | parts
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"ConfigSpace cannot read it: {error}", key="hydra.sweeper.search_space"
        ) from None
    return Searched(from_configspace(space).to_dict(), {}, stated)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _entry(key: str, override: Override) -> dict[str, Any]:
    """Write a sweep of Hydra as an entry of a search space."""
    value = override.value()
    if isinstance(value, IntervalSweep):
        integral = isinstance(value.start, int) and isinstance(value.end, int)
        return {
            "type": "int" if integral else "float",
            "lower": value.start,
            "upper": value.end,
            "scale": _scale(key, value.tags),
        }
    if isinstance(value, RangeSweep):
        return _range(key, value)
    choices = [_plain_choice(item) for item in override.sweep_iterator()]
    return {"choices": choices} if len(choices) > 1 else {"value": choices[0]}


def _plain_choice(item: Any) -> Any:
    match item:
        case QuotedString():
            return item.text
        case list():
            return [_plain_choice(part) for part in item]
        case dict():
            return {_plain_choice(name): _plain_choice(part) for name, part in item.items()}
    return item


def _scale(key: str, tags: set[str]) -> str:
    unknown = sorted(set(tags) - set(_SCALES))
    if unknown or len(tags) > 1:
        raise InputError(
            f"expected one of the tags {', '.join(_SCALES)}, got {', '.join(sorted(tags))}",
            key=f"hydra.sweeper.params.{key}",
        )
    return next(iter(tags), "linear")


def _range(key: str, value: RangeSweep) -> dict[str, Any]:
    """Write a range, whose end Hydra leaves out."""
    scale = _scale(key, value.tags)
    values = value.range()
    if isinstance(values, range) and values.step == 1 and len(values) > 1:
        return {"type": "int", "lower": values[0], "upper": values[-1], "scale": scale}
    # A log scale needs an interval: these are the values themselves.
    items = list(islice(values, _MOST_VALUES + 1))
    if not 0 < len(items) <= _MOST_VALUES:
        message = f"expected at most {_MOST_VALUES:,} values in a range"
        message = message if items else "the range is empty"
        raise InputError(message, key=f"hydra.sweeper.params.{key}")
    return {"type": "ordinal", "choices": items} if len(items) > 1 else {"value": items[0]}


def overrides_of(config: Config, keys: Mapping[str, str]) -> list[str]:
    """Write a configuration as overrides of Hydra."""
    return [f"{keys.get(name, name)}={override_text(value)}" for name, value in config.items()]


def override_text(value: object) -> str:
    """Write a value as the part of an override after `=`."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case Mapping():
            parts = (f"{override_text(name)}:{override_text(item)}" for name, item in value.items())
            return "{" + ",".join(parts) + "}"
        case list() | tuple():
            return "[" + ",".join(override_text(item) for item in value) + "]"
    text = str(value)
    # Plain words stay readable in folder names and logs.
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text) and not _READ_AS_ANOTHER.fullmatch(text):
        return text
    return str(QuotedString(text, Quote.single).with_quotes())


_READ_AS_ANOTHER = re.compile(r"true|false|null|nan|inf", re.IGNORECASE)
