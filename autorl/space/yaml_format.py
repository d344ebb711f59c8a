"""The search-space file: reading it, with errors by line, and writing it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from autorl.core.plain_text import one_of, shortened, shown
from autorl.core.shipped import shipped_folder
from autorl.core.types import InputError
from autorl.space import simplex
from autorl.space.define import define_space
from autorl.space.document import Dumper, read_document, unknown_key
from autorl.space.extend import EXTENDS, extended, parts_of
from autorl.space.hyperparameter import Hyperparameter, check_name
from autorl.space.schedules import expand
from autorl.space.short_form import long_form
from autorl.space.space import Space

TOP = (EXTENDS, "hyperparameters", "conditions", "forbidden", "constraints", "constants")
_NUMERIC = ("type", "lower", "upper", "scale", "default", "changeable", "prior", "schedule")
_DISCRETE = ("type", "choices", "default", "changeable", "prior")
KEYS: Mapping[str, tuple[str, ...]] = {
    "float": _NUMERIC,
    "int": _NUMERIC,
    "categorical": _DISCRETE,
    "ordinal": _DISCRETE,
    "constant": ("type", "value"),
    "simplex": ("type", "size", "default", "changeable"),
}


def load_space(
    source: str | Path | Mapping[str, object],
    folder: str | Path | None = None,
    constants: Mapping[str, float] | None = None,
) -> Space:
    """Read a space by shipped name, from a file or a mapping.

    Args:
        source: `sb3/ppo` (looked up in `search_spaces/` of the working folder, then among those
            shipped with the package), the path of a YAML or JSON file, or a mapping as such a file
            holds. An inline mapping may also be just `{name: hyperparameter}`.
        folder: where a relative path begins, if not in the working folder.
        constants: numbers for names that constraints use, such as `{"n_envs": 8}`.

    Raises:
        InputError: no such space, or a wrong definition: file, key, line, what is wrong, what is
            allowed.
    """
    if isinstance(source, Mapping):
        return _read_inline(_whole(source, folder), constants)
    if isinstance(source, str | Path):
        file = find_space(source, folder)
        document = read_document(file)
        try:
            _require_a_space(document.data)
            return read_space(_whole(document.data, file.parent, (file.resolve(),)), constants)
        except InputError as error:
            raise document.located(error) from None
    raise InputError(
        f"expected the name or file of a search space or a mapping, got {shown(source)}"
    )


def _whole(definition: object, folder: str | Path | None, above: tuple[Path, ...] = ()) -> Any:
    """Write out what a definition extends.

    Args:
        definition: the content of a file, or an inline mapping.
        folder: where relative paths begin.
        above: the files that led to it.
    """
    if not isinstance(definition, Mapping) or EXTENDS not in definition:
        return definition

    def read_base(name: object) -> Any:
        if not isinstance(name, str):
            raise InputError(
                f"expected the name or file of a search space, got {shown(name)}", key=EXTENDS
            )
        try:
            file = find_space(name, folder)
            content = read_document(file).data
            _require_a_space(content)
        except InputError as error:
            raise InputError(f"{shortened(name)}: {error.message}", key=EXTENDS) from None
        # Resolved: two spellings of one path are one file.
        if file.resolve() in above:
            raise InputError(f"{name} extends itself", key=EXTENDS)
        return _whole(content, file.parent, (*above, file.resolve()))

    return extended(definition, read_base)


def _read_inline(source: Mapping[str, object], constants: Mapping[str, float] | None) -> Space:
    if _looks_complete(source):
        return read_space(source, constants)
    try:
        return read_space({"hyperparameters": source}, constants)
    except InputError as error:
        key = (error.key or "").removeprefix("hyperparameters.")
        raise InputError(error.message, key=key or None) from None


def find_space(source: str | Path, folder: str | Path | None = None) -> Path:
    """Find the file of a space.

    It is a path, or a name under `search_spaces/` of the working folder or else of the package.
    """
    base = Path(folder) if folder is not None else Path()
    roots = _roots()
    name = Path(source)
    if name.suffix in (".yaml", ".yml", ".json"):
        candidates = [base / name, *(root / name for root in roots)]
    else:
        candidates = [root / f"{source}.yaml" for root in roots] + [
            base / f"{source}.yaml",
            base / name,
        ]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    hint = one_of(source, space_names(), "shipped")
    raise InputError(
        f"no search space of this name and no such file{hint}", file=shortened(str(source), 200)
    )


def space_names() -> list[str]:
    """Name the spaces of the working folder and of the package, sorted."""
    files = [(root, path) for root in _roots() for path in root.glob("**/*.yaml")]
    return sorted({path.relative_to(root).with_suffix("").as_posix() for root, path in files})


def _roots() -> list[Path]:
    """Return the folders with search spaces, in order."""
    shipped = shipped_folder("search_spaces")
    return [Path("search_spaces"), *([] if shipped is None else [shipped])]


def read_space(definition: object, constants: Mapping[str, float] | None = None) -> Space:
    """Build the space that a definition describes.

    Args:
        definition: the content of a file.
        constants: numbers that take precedence over its own.

    Raises:
        InputError: `key` is the path inside the definition.
    """
    content = _mapping(definition, None)
    for key in content:
        if key not in TOP:
            raise InputError(unknown_key(key, TOP), key=str(key))
    if "hyperparameters" not in content:
        raise InputError("a search space needs `hyperparameters:`")
    parts = parts_of(content)
    texts = parts["conditions"]
    hyperparameters: list[Hyperparameter] = []
    conditions: dict[str, Any] = {}
    for name, entry in parts["hyperparameters"].items():
        made, schedule_conditions = read_hyperparameter(name, entry)
        hyperparameters += made
        helpers = [item.name for item in made if item.name != name]
        inherited = {helper: texts[name] for helper in helpers if name in texts}
        # Hyperparameters of a schedule are active only where the scheduled one is.
        conditions |= {**inherited, **schedule_conditions}
        # Weights are nothing beside the floats that stand for them.
        if len(helpers) == len(made):
            texts = {child: text for child, text in texts.items() if child != name}
    for name, text in texts.items():
        conditions[name] = f"({conditions[name]}) and ({text})" if name in conditions else text
    names = {item.name for item in hyperparameters}
    # A study gives n_envs to every space: one that tunes it has its own.
    outer = {name: value for name, value in (constants or {}).items() if name not in names}
    return define_space(
        hyperparameters,
        conditions=conditions,
        forbidden=parts["forbidden"],
        constraints=parts["constraints"],
        constants={**parts["constants"], **outer},
    )


def read_hyperparameter(
    key: object, definition: object
) -> tuple[list[Hyperparameter], dict[str, str]]:
    """Read an entry under `hyperparameters:`.

    A schedule adds `.shape`, `.end` and a condition; weights are several floats
    (`space/simplex.py`). The type may be left out where `choices` (categorical) or `value`
    (constant) say it, and short forms (`space/short_form.py`) imply it.

    Raises:
        InputError: `key` names the field.
    """
    name = check_name(key)
    path = f"hyperparameters.{name}"
    entry = _mapping(long_form(name, definition), path)
    kind = entry["type"] if "type" in entry else _inferred(entry, path)
    if not isinstance(kind, str) or kind not in KEYS:
        raise InputError(
            f"expected one of {', '.join(KEYS)}, got {shown(kind)}", key=f"{path}.type"
        )
    for field in entry:
        if field not in KEYS[kind]:
            raise InputError(
                f"a hyperparameter of type {kind}: {unknown_key(field, KEYS[kind])}",
                key=f"{path}.{field}",
            )
    if kind == "constant":
        return [Hyperparameter.constant(name, _required(entry, "value", path))], {}
    fields = ("default", "changeable", "prior")
    options = {field: entry[field] for field in fields if field in entry}
    if not isinstance(options.get("changeable", False), bool):
        raise InputError(
            f"expected true or false, got {shown(options['changeable'])}", key=f"{path}.changeable"
        )
    if kind == "simplex":
        return simplex.expand(name, _required(entry, "size", path), **options), {}
    if kind in ("categorical", "ordinal"):
        choices = _required(entry, "choices", path)
        if not isinstance(choices, list | tuple):
            raise InputError(f"expected a list, got {shown(choices)}", key=f"{path}.choices")
        build = Hyperparameter.categorical if kind == "categorical" else Hyperparameter.ordinal
        return [build(name, choices, **options)], {}
    bounds = _required(entry, "lower", path), _required(entry, "upper", path)
    construct = Hyperparameter.real if kind == "float" else Hyperparameter.integer
    built = construct(name, *bounds, scale=entry.get("scale", "linear"), **options)
    if "schedule" not in entry:
        return [built], {}
    shapes = entry["schedule"]
    return expand(built, shapes if isinstance(shapes, list | tuple) else [shapes])


def to_yaml(space: Space) -> str:
    """Write a space as YAML, of which `read_space` makes the same space."""
    # Not sorted: the order of hyperparameters is that of vectors, and in the space's hash.
    text: str = yaml.dump(
        space.to_dict(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110
    )
    return text


class _Dumper(Dumper):
    """Puts innermost mappings and lists on one line."""

    def represent_mapping(
        self, tag: str, mapping: Any, flow_style: bool | None = None
    ) -> yaml.MappingNode:
        long = "type" not in mapping and any(len(str(value)) > 20 for value in mapping.values())
        block = long or any(isinstance(value, Mapping) for value in mapping.values())
        return super().represent_mapping(tag, mapping, flow_style=not block)


def _inferred(entry: Mapping[str, object], path: str) -> str:
    if "choices" in entry and "value" not in entry:
        return "categorical"
    if "value" in entry and "choices" not in entry:
        return "constant"
    raise InputError(
        f"a type is needed: one of {', '.join(KEYS)}; an interval in short: log(1e-5, 1e-2)",
        key=f"{path}.type",
    )


def _required(entry: Mapping[str, object], key: str, path: str) -> Any:
    if key not in entry:
        raise InputError(f"{shown(key)} is missing", key=f"{path}.{key}")
    return entry[key]


def _mapping(value: object, key: str | None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"expected a mapping, got {shown(value)}", key=key)
    return value


def _require_a_space(content: object) -> None:
    """Require the content of a file to be a space.

    Raises:
        InputError: it is none. As it may be any file, nothing of it is shown.
    """
    if content is None:
        raise InputError(
            "the search space is empty: expected `hyperparameters:` and at least one of them"
        )
    if not isinstance(content, Mapping):
        kinds: dict[type, str] = {list: "a list", str: "text"}
        kind = kinds.get(type(content), "a single value")
        raise InputError(
            f"not a search space: expected a mapping with `hyperparameters:`, this is {kind}"
        )
    if not _looks_complete(content):
        raise InputError(f"not a search space: it has none of the keys {', '.join(TOP)}")


def _looks_complete(source: Mapping[str, object]) -> bool:
    """Tell whether a mapping is more than bare hyperparameters."""
    # By likeness: `constrains:` is a misspelt key, no hyperparameter of that name.
    return not source or any(get_close_matches(str(key), TOP, n=1, cutoff=0.8) for key in source)
