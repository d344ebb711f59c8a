"""Import from ConfigSpace, for spaces people already have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorl.core.types import InputError, freeze
from autorl.space.canonical import frozen
from autorl.space.configspace_rules import ONE_MINUS, read_condition_text, read_forbidden_clause
from autorl.space.define import define_space
from autorl.space.hyperparameter import Hyperparameter, Scale
from autorl.space.space import Space

if TYPE_CHECKING:
    import ConfigSpace

_SCALE: Mapping[bool, Scale] = {False: "linear", True: "log"}  # by ConfigSpace's `log`


def from_configspace(source: ConfigSpace.ConfigurationSpace) -> Space:
    """Make the space a ConfigSpace describes.

    Raises:
        InputError: it has something a search space cannot say: weighted choices, normal or beta
            distributions, a name with other characters than letters, digits and `_ - / .`.
    """
    items = {name: _import_hyperparameter(item) for name, item in source.items()}
    conditions = {
        items[condition.child.name].name: read_condition_text(condition, items)
        for condition in source.conditions
    }
    forbidden: list[Mapping[str, Any]] = []
    constraints: list[str] = []
    for clause in source.forbidden_clauses:
        rule = read_forbidden_clause(clause, items)
        if isinstance(rule, str):
            constraints.append(rule)
        else:
            forbidden.append(rule)
    return define_space(
        items.values(), conditions=conditions, forbidden=forbidden, constraints=constraints
    )


def _import_hyperparameter(item: Any) -> Hyperparameter:
    import ConfigSpace

    meta = item.meta or {}
    default = frozen(item.default_value)
    changeable = bool(meta.get("changeable", False))
    if isinstance(item, ConfigSpace.Constant):
        return Hyperparameter.constant(item.name, _read_json(meta, frozen(item.value)))
    if isinstance(item, ConfigSpace.UniformFloatHyperparameter) and "range" in meta:
        lower, upper, default, scale = meta["range"]  # as they were: ConfigSpace rounds them
        name = item.name.removesuffix(ONE_MINUS)
        return Hyperparameter.real(
            name, lower, upper, scale=scale, default=default, changeable=changeable
        )
    is_float = isinstance(item, ConfigSpace.UniformFloatHyperparameter)
    if is_float or isinstance(item, ConfigSpace.UniformIntegerHyperparameter):
        build = Hyperparameter.real if is_float else Hyperparameter.integer
        return build(
            item.name,
            frozen(item.lower),
            frozen(item.upper),
            scale=_SCALE[bool(item.log)],
            default=default,
            changeable=changeable,
        )
    is_ordinal = isinstance(item, ConfigSpace.OrdinalHyperparameter)
    if is_ordinal or isinstance(item, ConfigSpace.CategoricalHyperparameter):
        # Equal weights are what every choice has without any.
        if not is_ordinal and item.weights is not None and len(set(item.weights)) > 1:
            raise InputError(
                "weighted choices are not supported", key=f"hyperparameters.{item.name}"
            )
        choices = [
            _read_json(meta, frozen(choice))
            for choice in (item.sequence if is_ordinal else item.choices)
        ]
        choose = Hyperparameter.ordinal if is_ordinal else Hyperparameter.categorical
        return choose(item.name, choices, default=_read_json(meta, default), changeable=changeable)
    kind = type(item).__name__
    raise InputError(
        f"{kind} is not supported: give uniform bounds", key=f"hyperparameters.{item.name}"
    )


def _read_json(meta: Mapping[str, Any], value: Any) -> Any:
    return freeze(json.loads(value)) if meta.get("json") else value
