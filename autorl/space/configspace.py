"""Export to ConfigSpace, for SMAC, and its configurations.

Constraints that ConfigSpace cannot say are left out: reject what breaks them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from autorl.core.types import Config
from autorl.space.canonical import frozen
from autorl.space.configspace_rules import (
    export_constraint,
    exported_name,
    exported_value,
    imported_value,
    is_native,
)
from autorl.space.core import SpaceCore
from autorl.space.expressions import FLIPPED
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.tree import Comparison, Junction, Tree

if TYPE_CHECKING:
    import ConfigSpace


def to_configspace(space: SpaceCore) -> ConfigSpace.ConfigurationSpace:
    """Make the ConfigSpace of a space.

    Values pass through `to_configuration` and `from_configuration`.
    """
    import ConfigSpace

    exported = ConfigSpace.ConfigurationSpace()
    # First: conditions and clauses are made of the ConfigSpace's own hyperparameters.
    exported.add([_export_hyperparameter(item) for item in space.hyperparameters.values()])
    for name, condition in space.conditions.items():
        mapped = _export_condition(
            exported, exported_name(space.hyperparameters[name]), condition.tree
        )
        assert mapped is not None, f"{name} can never be active, which the space refuses"
        exported.add(mapped)
    for clause in space.forbidden:
        parts = [_export_forbidden(exported, part) for part in clause.parts]
        exported.add(ConfigSpace.ForbiddenAndConjunction(*parts) if len(parts) > 1 else parts[0])
    for constraint in space.constraints:
        relation = export_constraint(space, constraint, exported)
        if relation is not None:
            exported.add(relation)
    return exported


def to_configuration(
    space: SpaceCore, exported: ConfigSpace.ConfigurationSpace, config: Mapping[str, object]
) -> ConfigSpace.Configuration:
    """Convert a configuration of `space` to one of its ConfigSpace."""
    import ConfigSpace

    values: dict[str, Any] = {}
    for name, value in config.items():
        item = space.hyperparameters[name]
        values[exported_name(item)] = exported_value(item, value)
    return ConfigSpace.Configuration(exported, values=values)


def from_configuration(space: SpaceCore, configuration: Mapping[str, object]) -> Config:
    """Convert a configuration of its ConfigSpace to plain values of `space`."""
    values: dict[str, Any] = {}
    for name, item in space.hyperparameters.items():
        if exported_name(item) in configuration:
            values[name] = imported_value(item, frozen(configuration[exported_name(item)]))
    return Config(values)


def _export_hyperparameter(item: Hyperparameter) -> Any:
    import ConfigSpace

    name = exported_name(item)
    meta: dict[Hashable, Any] = {"changeable": True} if item.changeable else {}
    if not is_native(item) and not item.numeric:
        meta["json"] = True  # for the way back: the choices are JSON text
    default = exported_value(item, item.default)
    if item.type == "constant":
        return ConfigSpace.Constant(name, default, meta=meta)
    if not item.numeric:
        choices = [exported_value(item, choice) for choice in item.choices]
        is_ordinal = item.type == "ordinal"
        kind: Any = (
            ConfigSpace.OrdinalHyperparameter
            if is_ordinal
            else ConfigSpace.CategoricalHyperparameter
        )
        return kind(name, choices, default_value=default, meta=meta)
    lower, upper = item.bounds
    if item.type == "int":
        return ConfigSpace.UniformIntegerHyperparameter(
            name, int(lower), int(upper), log=item.scale == "log", default_value=default, meta=meta
        )
    # ConfigSpace rounds bounds and default to 13 decimals: the way back takes them from here.
    meta["range"] = [lower, upper, item.default, item.scale]
    # x that is uniform in log(1 - x) is 1 - x that is uniform in its logarithm.
    if item.scale == "flipped_log":
        lower, upper = (1.0 - bound for bound in (upper, lower))
    return ConfigSpace.UniformFloatHyperparameter(
        name, lower, upper, log=item.scale != "linear", default_value=default, meta=meta
    )


def _export_condition(
    exported: ConfigSpace.ConfigurationSpace, child: str, condition: Tree
) -> Any | None:
    """Return the condition in ConfigSpace's terms.

    The result is None if it never holds, as a part of an `or` may.
    """
    import ConfigSpace

    if not isinstance(condition, Comparison):
        assert isinstance(condition, Junction), "a condition computes no numbers"
        mapped = [_export_condition(exported, child, part) for part in condition.parts]
        # A part that never holds drops out of an `or` and makes an `and` impossible.
        parts = [part for part in mapped if part is not None]
        if not parts or (condition.kind == "and" and len(parts) < len(mapped)):
            return None
        join = ConfigSpace.AndConjunction if condition.kind == "and" else ConfigSpace.OrConjunction
        return parts[0] if len(parts) == 1 else join(*parts)  # a junction of one is refused
    parent = condition.parent
    pair = exported[child], exported[exported_name(parent)]
    if condition.operator == "in":
        return ConfigSpace.InCondition(
            *pair, [exported_value(parent, value) for value in condition.values]
        )
    if condition.operator == "==":
        return ConfigSpace.EqualsCondition(*pair, exported_value(parent, condition.values[0]))
    if condition.operator == "!=":
        return _export_unequal(pair, parent, condition)
    return _export_order(pair, parent, condition.operator, condition.values[0])


def _export_unequal(
    pair: tuple[Any, Any], parent: Hyperparameter, condition: Comparison
) -> Any | None:
    """Return `parent != value` in ConfigSpace's terms, None if never true."""
    import ConfigSpace

    # Not NotEqualsCondition: ConfigSpace 1.2 lets it hold for an inactive parent, whose NaN is
    # unequal to everything.
    value = exported_value(parent, condition.values[0])
    if parent.numeric:
        below = ConfigSpace.LessThanCondition(*pair, value)
        return ConfigSpace.OrConjunction(below, ConfigSpace.GreaterThanCondition(*pair, value))
    allowed = [
        exported_value(parent, choice) for choice in parent.choices if condition.test(choice)
    ]
    return ConfigSpace.InCondition(*pair, allowed) if allowed else None


def _export_order(
    pair: tuple[Any, Any], parent: Hyperparameter, sign: str, value: float
) -> Any | None:
    """Return `parent sign value` in ConfigSpace's terms, None if never true.

    The sign is one of < <= > >=. ConfigSpace compares strictly, and only with values of the domain.
    """
    import ConfigSpace

    # `x < 2.5` is `x < 3` of integers, `x >= 2.5` is `x > 2`.
    if parent.type == "int":
        integer_bound = {
            "<": math.ceil(value) - 1,
            "<=": math.floor(value),
            ">": math.floor(value) + 1,
            ">=": math.ceil(value),
        }
        sign, value = (
            ("<", integer_bound[sign] + 1)
            if sign in ("<", "<=")
            else (">", integer_bound[sign] - 1)
        )
    # Outside the bounds it is true wherever the parent is active (>= its lower bound), or nowhere.
    if parent.numeric and not parent.accepts(value):
        if (value > parent.bounds[1]) is not (sign[0] == "<"):
            return None
        lowest = pair[1].lower
        return ConfigSpace.OrConjunction(
            ConfigSpace.GreaterThanCondition(*pair, lowest),
            ConfigSpace.EqualsCondition(*pair, lowest),
        )
    sign = FLIPPED[sign] if parent.scale == "flipped_log" else sign
    strict = ConfigSpace.LessThanCondition if sign[0] == "<" else ConfigSpace.GreaterThanCondition
    limit = exported_value(parent, value)
    if len(sign) == 1:
        return strict(*pair, limit)
    return ConfigSpace.OrConjunction(
        strict(*pair, limit), ConfigSpace.EqualsCondition(*pair, limit)
    )


def _export_forbidden(exported: ConfigSpace.ConfigurationSpace, part: Comparison) -> Any:
    import ConfigSpace

    parent = exported[exported_name(part.parent)]
    values = [exported_value(part.parent, value) for value in part.values]
    if len(values) == 1:
        return ConfigSpace.ForbiddenEqualsClause(parent, values[0])
    return ConfigSpace.ForbiddenInClause(parent, values)
