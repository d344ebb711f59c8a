"""Search spaces inferred from the configurations of a data set.

For data sets that do not bring one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from autorl.core.types import InputError
from autorl.space import Hyperparameter, Space, canonical_json, define_space
from autorl.space.canonical import spelled

_SPAN = 10.0  # values within such a factor look alike on both scales
NOTE = (
    "The search space was inferred: bounds are the smallest and largest recorded value, the "
    f"scale is logarithmic where positive values span a factor of {_SPAN:g} or more and lie "
    "evenly on it."
)
_FOREIGN = re.compile(r"[^A-Za-z0-9_/.-]+")


def clean_name(name: str) -> str:
    """Replace what a hyperparameter's name cannot hold by `_`."""
    clean = re.sub(r"\.{2,}", ".", _FOREIGN.sub("_", name)).strip(".")
    # A hyperparameter's name begins with a letter or an underscore.
    return clean if clean[:1].isalpha() or clean.startswith("_") else f"_{clean}"


def flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested mappings into one, names joined by a dot."""
    flat: dict[str, object] = {}
    for name, value in values.items():
        key = clean_name(f"{prefix}{name}")
        flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return flat


def table_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table without their empty cells.

    A column that is fractional only because of those is of integers.
    """
    # pandas turns a column of integers with an empty cell into floats.
    integers = {name for name, cells in columns.items() if _whole_with_gaps(cells)}
    listed = [
        [int(cell) if name in integers and cell == cell else cell for cell in columns[name]]
        for name in columns
    ]
    return [
        {name: cell for name, cell in zip(columns, cells, strict=True) if cell == cell}
        for cells in zip(*listed, strict=True)
    ]


def numbered(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[int, Mapping[str, Any]], list[int]]:
    """Return the different rows by number, and the number of each row."""
    seen: dict[str, int] = {}
    different: dict[int, Mapping[str, Any]] = {}
    numbers = []
    for row in rows:
        number = seen.setdefault(canonical_json(row), len(seen))
        different.setdefault(number, row)
        numbers.append(number)
    return different, numbers


def _whole_with_gaps(cells: Sequence[object]) -> bool:
    filled = [cell for cell in cells if cell == cell]
    return len(filled) < len(cells) and all(
        isinstance(cell, float) and cell.is_integer() for cell in filled
    )


def infer_space(configs: Sequence[Mapping[str, object]]) -> Space:
    """Find the smallest space of plain ranges and choices with all configurations.

    A hyperparameter that some configurations lack becomes conditional on the first other one whose
    values tell them apart.

    Raises:
        InputError: no configurations, a value that is not finite, or a hyperparameter is missing
            now and then and no other one says when.
    """
    names = list(dict.fromkeys(name for config in configs for name in config))
    if not names:
        raise InputError("no hyperparameters were found in it")
    items = [
        _hyperparameter(name, [config[name] for config in configs if name in config])
        for name in names
    ]
    return define_space(items, conditions=infer_conditions(names, configs))


def infer_conditions(
    names: Sequence[str], configs: Sequence[Mapping[str, object]]
) -> dict[str, str]:
    """Infer a condition for every hyperparameter that some configurations lack.

    Raises:
        InputError: no other hyperparameter says when one is active.
    """
    partial = [name for name in names if any(name not in config for config in configs)]
    return {name: _condition(name, names, configs) for name in partial}


def _hyperparameter(name: str, values: Sequence[Any]) -> Hyperparameter:
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"the value {value} is not a finite number", key=name)
    # By their JSON: lists cannot be keys of a dict, and 1 and True would be one key.
    distinct = list({canonical_json(value): value for value in values}.values())
    # `type`, not `isinstance`: to Python True is an integer, to a space a choice.
    kinds = {type(value) for value in distinct}
    if len(distinct) == 1:
        return Hyperparameter.constant(name, distinct[0])
    if kinds <= {int, float}:
        lower = min(distinct)
        upper = max(distinct)
        build = Hyperparameter.integer if kinds == {int} else Hyperparameter.real
        scale: Literal["log", "linear"] = "log" if _looks_logarithmic(distinct) else "linear"
        return build(name, lower, upper, scale=scale)
    # Sorted, so that the space does not depend on the order of the rows.
    return Hyperparameter.categorical(name, sorted(distinct, key=canonical_json))


def _looks_logarithmic(values: Sequence[float]) -> bool:
    """Tell whether values lie more evenly on the logarithmic scale.

    There the median of the distinct values is nearer to the middle of their range.
    """
    lower = min(values)
    upper = max(values)
    # No logarithm of 0 and below, and over less than a factor of 10 nobody can tell.
    if lower <= 0 or upper / lower < _SPAN:
        return False
    middle = median(values)
    linear = (middle - lower) / (upper - lower)
    logarithmic = math.log(middle / lower) / math.log(upper / lower)
    return abs(logarithmic - 0.5) < abs(linear - 0.5)


def _condition(name: str, names: Sequence[str], configs: Sequence[Mapping[str, object]]) -> str:
    """Return when `name` is active, as an expression over another hyperparameter.

    That one is there wherever `name` is.
    """
    counts = {candidate: sum(candidate in config for config in configs) for candidate in names}
    # More configurations have a parent than a child: so no two depend on each other.
    parents = [candidate for candidate in names if counts[candidate] > counts[name]]
    parents = [
        candidate
        for candidate in parents
        if all(candidate in config for config in configs if name in config)
    ]
    # A choice explains a condition better than a threshold that happens to part two groups.
    for choices_only in (True, False):
        for parent in parents:
            condition = _telling(name, parent, configs, choices_only=choices_only)
            if condition:
                return condition
    missing = len(configs) - counts[name]
    message = (
        f"missing in {missing} of {len(configs)} configurations, "
        "and no other hyperparameter says when"
    )
    raise InputError(message, key=name)


def _telling(
    name: str, parent: str, configs: Sequence[Mapping[str, Any]], *, choices_only: bool
) -> str | None:
    """Return the condition of `name` on `parent`.

    None unless the parent's values tell where `name` is active.
    """
    pairs = [(config[parent], name in config) for config in configs if parent in config]
    active = list(
        {canonical_json(value): value for value, is_active in pairs if is_active}.values()
    )
    without = list(
        {canonical_json(value): value for value, is_active in pairs if not is_active}.values()
    )
    numeric = all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in (*active, *without)
    )
    if numeric and not choices_only and active and without:
        if min(active) > max(without):
            return f"{parent} >= {spelled(min(active))}"
        return f"{parent} <= {spelled(max(active))}" if max(active) < min(without) else None
    if numeric or set(map(canonical_json, active)) & set(map(canonical_json, without)):
        return None
    return f"{parent} in {spelled(active)}"
