"""Export to and import from ConfigSpace, for SMAC and for spaces people already have.

Two things ConfigSpace lacks are mapped. A `flipped_log` float x becomes the log-scaled float `x.one_minus` = 1 - x.
Choices that are not all strings, all integers, all floats or all booleans (tuples, mixtures) become their JSON text.
Constraints it cannot say are listed by `unexpressed` and remain the caller's to check. It rounds floats to nine digits
or so: a configuration that passes through it may come back with a float changed in the last of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from autorl.space.canonical import canonical_json, frozen
from autorl.space.conditions import Comparison, Condition
from autorl.space.configspace_rules import (
    FLIPPED,
    export_constraint,
    read_condition_text,
    read_forbidden_clause,
)
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.space import Space
from autorl.types import Config, InputError, freeze

if TYPE_CHECKING:
    import ConfigSpace

ONE_MINUS = ".one_minus"
_NATIVE = (str, bool, int, float)


def export_space(space: Space) -> ConfigSpace.ConfigurationSpace:
    """The ConfigSpace of `space`. Values pass through `to_configuration` and `from_configuration`."""
    import ConfigSpace

    exported = ConfigSpace.ConfigurationSpace()
    exported.add([_export_hyperparameter(item) for item in space.hyperparameters.values()])
    for name, condition in space.conditions.items():
        mapped = _export_condition(exported, exported_name(space.hyperparameters[name]), condition)
        assert mapped is not None, f"{name} can never be active, which the space refuses"
        exported.add(mapped)
    clauses = [
        [_export_forbidden(exported, part) for part in clause.parts] for clause in space.forbidden
    ]
    exported.add(
        [
            parts[0] if len(parts) == 1 else ConfigSpace.ForbiddenAndConjunction(*parts)
            for parts in clauses
        ]
    )
    for constraint in space.constraints:
        relation = export_constraint(space, constraint, exported)
        if relation is not None:
            exported.add(relation)
    return exported


def unexpressed(space: Space) -> tuple[str, ...]:
    """The constraints of `space` that its ConfigSpace does not hold: reject what breaks them."""
    exported = export_space(space)
    return tuple(
        constraint.text
        for constraint in space.constraints
        if export_constraint(space, constraint, exported) is None
    )


def to_configuration(
    space: Space, exported: ConfigSpace.ConfigurationSpace, config: Mapping[str, Any]
) -> ConfigSpace.Configuration:
    """A configuration of `space` as one of its ConfigSpace."""
    import ConfigSpace

    given = [(space.hyperparameters[name], value) for name, value in config.items()]
    return ConfigSpace.Configuration(
        exported, values={exported_name(item): exported_value(item, value) for item, value in given}
    )


def from_configuration(space: Space, configuration: Mapping[str, Any]) -> Config:
    """A configuration of the ConfigSpace of `space` as one of `space`: plain Python values."""
    values: dict[str, Any] = {}
    for name, item in space.hyperparameters.items():
        if exported_name(item) in configuration:
            values[name] = imported_value(item, frozen(configuration[exported_name(item)]))
    return Config(values)


def exported_name(item: Hyperparameter) -> str:
    """The name of a hyperparameter in the ConfigSpace."""
    return item.name + ONE_MINUS if item.scale == "flipped_log" else item.name


def exported_value(item: Hyperparameter, value: Any) -> Any:
    """A value of a hyperparameter in the ConfigSpace."""
    if item.scale == "flipped_log":
        return 1.0 - value
    return value if item.numeric or _native(item) else canonical_json(value)


def imported_value(item: Hyperparameter, value: Any) -> Any:
    """A plain value from the ConfigSpace as the hyperparameter has it."""
    if item.scale == "flipped_log":
        return item.tidy(1.0 - value)
    if item.type == "float":
        return item.tidy(float(value))
    return item.canonical(value if item.numeric or _native(item) else json.loads(value))


def _native(item: Hyperparameter) -> bool:
    """Whether ConfigSpace keeps the choices as they are: one plain type, which NumPy does not change."""
    return len({type(choice) for choice in item.choices}) == 1 and isinstance(
        item.choices[0], _NATIVE
    )


def _export_hyperparameter(item: Hyperparameter) -> Any:
    import ConfigSpace

    name = exported_name(item)
    meta: dict[Hashable, Any] = {"changeable": True} if item.changeable else {}
    if not _native(item) and not item.numeric:
        meta["json"] = True
    default = exported_value(item, item.default)
    if item.type == "constant":
        return ConfigSpace.Constant(name, default, meta=meta)
    if not item.numeric:
        choices = [exported_value(item, choice) for choice in item.choices]
        if item.type == "ordinal":
            return ConfigSpace.OrdinalHyperparameter(
                name, choices, default_value=default, meta=meta
            )
        return ConfigSpace.CategoricalHyperparameter(
            name, choices, default_value=default, meta=meta
        )
    lower, upper = item.bounds
    if item.type == "int":
        return ConfigSpace.UniformIntegerHyperparameter(
            name, int(lower), int(upper), log=item.scale == "log", default_value=default, meta=meta
        )
    meta["range"] = [lower, upper, item.default, item.scale]
    if item.scale == "flipped_log":
        lower, upper = 1.0 - upper, 1.0 - lower
    return ConfigSpace.UniformFloatHyperparameter(
        name, lower, upper, log=item.scale != "linear", default_value=default, meta=meta
    )


def _export_condition(
    exported: ConfigSpace.ConfigurationSpace, child: str, condition: Condition
) -> Any | None:
    """The condition in ConfigSpace's terms; None if it never holds, as a part of an `or` may."""
    import ConfigSpace

    if not isinstance(condition, Comparison):
        found = [_export_condition(exported, child, part) for part in condition.parts]
        parts = [part for part in found if part is not None]
        if not parts or (condition.kind == "and" and len(parts) < len(found)):
            return None
        join = ConfigSpace.AndConjunction if condition.kind == "and" else ConfigSpace.OrConjunction
        return parts[0] if len(parts) == 1 else join(*parts)
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
    """`parent != value`. Not by NotEqualsCondition, which ConfigSpace 1.2 lets hold for an inactive parent."""
    import ConfigSpace

    value = exported_value(parent, condition.values[0])
    if parent.numeric:
        below = ConfigSpace.LessThanCondition(*pair, value)
        return ConfigSpace.OrConjunction(below, ConfigSpace.GreaterThanCondition(*pair, value))
    others = [exported_value(parent, choice) for choice in parent.choices if condition.test(choice)]
    return ConfigSpace.InCondition(*pair, others) if others else None


def _export_order(
    pair: tuple[Any, Any], parent: Hyperparameter, sign: str, value: Any
) -> Any | None:
    """`parent sign value` for one of < <= > >=. ConfigSpace compares strictly, and only with values of the domain."""
    import ConfigSpace

    if parent.type == "int":
        whole = {
            "<": math.ceil(value) - 1,
            "<=": math.floor(value),
            ">": math.floor(value) + 1,
            ">=": math.ceil(value),
        }
        sign, value = ("<", whole[sign] + 1) if sign in ("<", "<=") else (">", whole[sign] - 1)
    if parent.numeric and not parent.accepts(value):
        always = (value > parent.bounds[1]) is (sign[0] == "<")
        return _always(pair) if always else None
    sign = FLIPPED[sign] if parent.scale == "flipped_log" else sign
    strict = ConfigSpace.LessThanCondition if sign[0] == "<" else ConfigSpace.GreaterThanCondition
    limit = exported_value(parent, value)
    if len(sign) == 1:
        return strict(*pair, limit)
    return ConfigSpace.OrConjunction(
        strict(*pair, limit), ConfigSpace.EqualsCondition(*pair, limit)
    )


def _always(pair: tuple[Any, Any]) -> Any:
    """Holds wherever the parent is active."""
    import ConfigSpace

    above = ConfigSpace.GreaterThanCondition(*pair, pair[1].lower)
    return ConfigSpace.OrConjunction(above, ConfigSpace.EqualsCondition(*pair, pair[1].lower))


def _export_forbidden(exported: ConfigSpace.ConfigurationSpace, part: Comparison) -> Any:
    import ConfigSpace

    parent = exported[exported_name(part.parent)]
    values = [exported_value(part.parent, value) for value in part.values]
    if len(values) == 1:
        return ConfigSpace.ForbiddenEqualsClause(parent, values[0])
    return ConfigSpace.ForbiddenInClause(parent, values)


def import_space(source: ConfigSpace.ConfigurationSpace) -> Space:
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
    return Space(
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
    if isinstance(
        item, ConfigSpace.UniformFloatHyperparameter | ConfigSpace.UniformIntegerHyperparameter
    ):
        build = (
            Hyperparameter.real
            if isinstance(item, ConfigSpace.UniformFloatHyperparameter)
            else Hyperparameter.integer
        )
        bounds = frozen(item.lower), frozen(item.upper)
        return build(
            item.name,
            *bounds,
            scale="log" if item.log else "linear",
            default=default,
            changeable=changeable,
        )
    if isinstance(item, ConfigSpace.OrdinalHyperparameter):
        choices = [_read_json(meta, frozen(choice)) for choice in item.sequence]
        return Hyperparameter.ordinal(
            item.name, choices, default=_read_json(meta, default), changeable=changeable
        )
    if isinstance(item, ConfigSpace.CategoricalHyperparameter):
        if item.weights is not None and len(set(item.weights)) > 1:
            raise InputError(
                "weighted choices are not supported", key=f"hyperparameters.{item.name}"
            )
        choices = [_read_json(meta, frozen(choice)) for choice in item.choices]
        return Hyperparameter.categorical(
            item.name, choices, default=_read_json(meta, default), changeable=changeable
        )
    kind = type(item).__name__
    raise InputError(
        f"{kind} is not supported: give uniform bounds", key=f"hyperparameters.{item.name}"
    )


def _read_json(meta: Mapping[str, Any], value: Any) -> Any:
    return freeze(json.loads(value)) if meta.get("json") else value
