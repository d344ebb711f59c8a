"""The part of a space where one hyperparameter has one value: a space of its own, to be searched apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from autorl.plain_text import shown
from autorl.plain_values import plain
from autorl.space.algorithms import ALGORITHM
from autorl.space.conditions import Comparison, Condition, Junction, parents
from autorl.space.space import Space
from autorl.types import Config, InputError


def splitting(space: Space, name: str | None = None) -> str | None:
    """The hyperparameter that splits a space: `name`, else `algorithm`, else the first that others depend on; None when
    there is none. It is categorical, unconditional and in no constraint.

    Raises:
        InputError: `name` is not such a hyperparameter.
    """
    constrained = frozenset[str]().union(*(constraint.names for constraint in space.constraints))
    able = [
        key
        for key, item in space.hyperparameters.items()
        if item.type == "categorical" and key not in space.conditions and key not in constrained
    ]
    if name is not None and name not in able:
        what = "an unconditional categorical hyperparameter that no constraint names"
        raise InputError(
            f"expected {what} ({', '.join(able) or 'there is none'}), got {shown(name)}"
        )
    if name is not None or ALGORITHM in able:
        return name or ALGORITHM
    depended = frozenset[str]().union(*map(parents, space.conditions.values()))
    return next((key for key in able if key in depended), None)


def restrict(space: Space, name: str, value: Any) -> Space:
    """`space` where `name` (see `splitting`) has `value`, without `name` and without what is never active there.

    A configuration of `space` with that value, less `name`, is one of the result, and the other way round. A default is
    changed only where the defaults together break a rule.

    Raises:
        InputError: no hyperparameter is left, or the value is forbidden altogether.
    """
    definition = space.to_dict()
    kept: dict[str, Any] = {}
    conditions: dict[str, str] = {}
    for key in space.names:
        if key == name:
            continue
        condition = space.conditions.get(key)
        left = True if condition is None else _decided(condition, {name: value}, kept)
        if left is not False:
            kept[key] = definition["hyperparameters"][key]
        if not isinstance(left, bool):
            conditions[key] = _text(left)
    if not kept:
        raise InputError(f"nothing is left to search where {name} is {shown(value)}", key=name)
    for key, default in _default(space, name, value).items():
        if key != name and kept[key]["type"] != "constant":
            kept[key]["default"] = default
    clauses = []
    for clause in space.forbidden:
        if all(
            part.test(value) if part.parent.name == name else part.parent.name in kept
            for part in clause.parts
        ):
            clauses.append({key: values for key, values in clause.to_dict().items() if key != name})
    return Space.from_dict(
        {
            "hyperparameters": kept,
            "conditions": conditions,
            "forbidden": clauses,
            "constraints": [item.text for item in space.constraints if item.names <= set(kept)],
            "constants": dict(space.constants),
        }
    )


def _default(space: Space, name: str, value: Any) -> Config:
    """The valid configuration with the value that is nearest to the defaults."""
    defaults = {key: item.default for key, item in space.hyperparameters.items()}
    config = space.repair({**defaults, name: value}, np.random.default_rng(0), keep=(name,))
    if config[name] != value:
        raise InputError(f"{shown(value)} is forbidden altogether", key=name)
    return config


def _decided(
    condition: Condition, known: Mapping[str, Any], kept: Collection[str]
) -> Condition | bool:
    """A condition where some values are known, and what is not in `kept` is inactive."""
    if isinstance(condition, Comparison):
        parent = condition.parent.name
        if parent in known:
            return condition.test(known[parent])
        return condition if parent in kept else False
    parts = [_decided(part, known, kept) for part in condition.parts]
    deciding = condition.kind == "or"  # one true part decides an `or`, one false part an `and`
    if deciding in [part for part in parts if isinstance(part, bool)]:
        return deciding
    open_ = tuple(part for part in parts if not isinstance(part, bool))
    if not open_:
        return not deciding
    return open_[0] if len(open_) == 1 else Junction(condition.kind, open_)


def _text(condition: Condition) -> str:
    if isinstance(condition, Comparison):
        values: Any = [plain(value) for value in condition.values]
        return f"{condition.parent.name} {condition.operator} {values if condition.operator == 'in' else values[0]!r}"
    return f" {condition.kind} ".join(f"({_text(part)})" for part in condition.parts)
