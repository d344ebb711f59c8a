"""Import from ConfigSpace, for spaces people already have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorl.space.canonical import plain
from autorl.space.configspace_rules import read_condition_text, read_forbidden_clause
from autorl.space.configspace_values import ONE_MINUS
from autorl.space.define import define_space
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.space import Space
from autorl.types import InputError, freeze

if TYPE_CHECKING:
    import ConfigSpace


def from_configspace(source: ConfigSpace.ConfigurationSpace) -> Space:
    """The space a ConfigSpace describes.

    Raises:
        InputError: it has something a search space cannot say: weighted choices, normal or beta distributions, a name
            with other characters than letters, digits and `_ - / .`.
    """
    items = {name: _import_hyperparameter(item) for name, item in source.items()}
    conditions = {
        items[condition.child.name].name: read_condition_text(condition, items)
        for condition in source.conditions
    }
    forbidden: list[Mapping[str, Any]] = []
    constraints: list[str] = []
    for clause in source.forbidden_clauses:
        found = read_forbidden_clause(clause, items)
        if isinstance(found, str):
            constraints.append(found)
        else:
            forbidden.append(found)
    return define_space(
        items.values(), conditions=conditions, forbidden=forbidden, constraints=constraints
    )


def _import_hyperparameter(item: Any) -> Hyperparameter:
    import ConfigSpace

    meta = item.meta or {}
    default = plain(item.default_value)
    changeable = bool(meta.get("changeable", False))
    if isinstance(item, ConfigSpace.Constant):
        return Hyperparameter.constant(item.name, _read_json(meta, plain(item.value)))
    if isinstance(item, ConfigSpace.UniformFloatHyperparameter) and "range" in meta:
        lower, upper, default, scale = meta["range"]  # as they were: ConfigSpace rounds them
        name = item.name.removesuffix(ONE_MINUS)
        return Hyperparameter.real(
            name, lower, upper, scale=scale, default=default, changeable=changeable
        )
    if isinstance(
        item, ConfigSpace.UniformFloatHyperparameter | ConfigSpace.UniformIntegerHyperparameter
    ):
        build = (
            Hyperparameter.real
            if isinstance(item, ConfigSpace.UniformFloatHyperparameter)
            else Hyperparameter.integer
        )
        bounds = plain(item.lower), plain(item.upper)
        return build(
            item.name,
            *bounds,
            scale="log" if item.log else "linear",
            default=default,
            changeable=changeable,
        )
    if isinstance(item, ConfigSpace.OrdinalHyperparameter):
        choices = [_read_json(meta, plain(choice)) for choice in item.sequence]
        return Hyperparameter.ordinal(
            item.name, choices, default=_read_json(meta, default), changeable=changeable
        )
    if isinstance(item, ConfigSpace.CategoricalHyperparameter):
        if item.weights is not None and len(set(item.weights)) > 1:
            raise InputError(
                "weighted choices are not supported", key=f"hyperparameters.{item.name}"
            )
        choices = [_read_json(meta, plain(choice)) for choice in item.choices]
        return Hyperparameter.categorical(
            item.name, choices, default=_read_json(meta, default), changeable=changeable
        )
    kind = type(item).__name__
    raise InputError(
        f"{kind} is not supported: give uniform bounds", key=f"hyperparameters.{item.name}"
    )


def _read_json(meta: Mapping[str, Any], value: Any) -> Any:
    return freeze(json.loads(value)) if meta.get("json") else value
