"""Export to and import from ConfigSpace, for SMAC and for spaces people already have.

Two things ConfigSpace lacks are mapped. A `flipped_log` float x becomes the log-scaled float `x.one_minus` = 1 - x.
Choices that are not all strings, all integers, all floats or all booleans (tuples, mixtures) become their JSON text.
Constraints it cannot say are listed by `unexpressed` and remain the caller's to check. It rounds floats to nine digits
or so: a configuration that passes through it may come back with a float changed in the last of them.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from autorl.space.canonical import canonical_json, plain
from autorl.space.conditions import Comparison, Condition
from autorl.space.configspace_rules import FLIPPED, export_constraint, read_condition_text, read_forbidden_clause
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
    exported.add([_export_condition(exported, name, condition) for name, condition in space.conditions.items()])
    clauses = [[_export_forbidden(exported, part) for part in clause.parts] for clause in space.forbidden]
    exported.add([parts[0] if len(parts) == 1 else ConfigSpace.ForbiddenAndConjunction(*parts) for parts in clauses])
    for constraint in space.constraints:
        relation = export_constraint(space, constraint, exported)
        if relation is not None:
            exported.add(relation)
    return exported


def unexpressed(space: Space) -> tuple[str, ...]:
    """The constraints of `space` that its ConfigSpace does not hold: reject what breaks them."""
    exported = export_space(space)
    return tuple(
        constraint.text for constraint in space.constraints if export_constraint(space, constraint, exported) is None
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
            values[name] = imported_value(item, plain(configuration[exported_name(item)]))
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
    return len({type(choice) for choice in item.choices}) == 1 and isinstance(item.choices[0], _NATIVE)


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
            return ConfigSpace.OrdinalHyperparameter(name, choices, default_value=default, meta=meta)
        return ConfigSpace.CategoricalHyperparameter(name, choices, default_value=default, meta=meta)
    lower, upper = item.bounds
    if item.type == "int":
        return ConfigSpace.UniformIntegerHyperparameter(
            name, int(lower), int(upper), log=item.scale == "log", default_value=default, meta=meta
        )
    if item.scale == "flipped_log":
        lower, upper = 1.0 - upper, 1.0 - lower
        meta["one_minus"] = [*item.bounds, item.default]
    return ConfigSpace.UniformFloatHyperparameter(
        name, lower, upper, log=item.scale != "linear", default_value=default, meta=meta
    )


def _export_condition(exported: ConfigSpace.ConfigurationSpace, child: str, condition: Condition) -> Any:
    import ConfigSpace

    names = {name.removesuffix(ONE_MINUS): name for name in exported}
    if not isinstance(condition, Comparison):
        parts = [_export_condition(exported, child, part) for part in condition.parts]
        return (ConfigSpace.AndConjunction if condition.kind == "and" else ConfigSpace.OrConjunction)(*parts)
    parent = condition.parent
    values = [exported_value(parent, value) for value in condition.values]
    pair = exported[names[child]], exported[exported_name(parent)]
    sign = FLIPPED.get(condition.operator, "in") if parent.scale == "flipped_log" else condition.operator
    if sign == "in":
        return ConfigSpace.InCondition(*pair, values)
    simple = {"==": ConfigSpace.EqualsCondition, "!=": ConfigSpace.NotEqualsCondition}
    strict = {"<": ConfigSpace.LessThanCondition, ">": ConfigSpace.GreaterThanCondition}
    if sign in simple:
        return simple[sign](*pair, values[0])
    if sign in strict:
        return strict[sign](*pair, values[0])
    return ConfigSpace.OrConjunction(strict[sign[0]](*pair, values[0]), ConfigSpace.EqualsCondition(*pair, values[0]))


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
        items[condition.child.name].name: read_condition_text(condition, items) for condition in source.conditions
    }
    forbidden: list[Mapping[str, Any]] = []
    constraints: list[str] = []
    for clause in source.forbidden_clauses:
        found = read_forbidden_clause(clause, items)
        if isinstance(found, str):
            constraints.append(found)
        else:
            forbidden.append(found)
    return Space(items.values(), conditions=conditions, forbidden=forbidden, constraints=constraints)


def _import_hyperparameter(item: Any) -> Hyperparameter:
    import ConfigSpace

    meta = item.meta or {}
    default = plain(item.default_value)
    changeable = bool(meta.get("changeable", False))
    if isinstance(item, ConfigSpace.Constant):
        return Hyperparameter.constant(item.name, _read_json(meta, plain(item.value)))
    if isinstance(item, ConfigSpace.UniformFloatHyperparameter) and "one_minus" in meta:
        lower, upper, default = meta["one_minus"]
        name = item.name.removesuffix(ONE_MINUS)
        return Hyperparameter.real(name, lower, upper, scale="flipped_log", default=default, changeable=changeable)
    if isinstance(item, ConfigSpace.UniformFloatHyperparameter | ConfigSpace.UniformIntegerHyperparameter):
        build = (
            Hyperparameter.real if isinstance(item, ConfigSpace.UniformFloatHyperparameter) else Hyperparameter.integer
        )
        bounds = plain(item.lower), plain(item.upper)
        return build(item.name, *bounds, scale="log" if item.log else "linear", default=default, changeable=changeable)
    if isinstance(item, ConfigSpace.OrdinalHyperparameter):
        choices = [_read_json(meta, plain(choice)) for choice in item.sequence]
        return Hyperparameter.ordinal(item.name, choices, default=_read_json(meta, default), changeable=changeable)
    if isinstance(item, ConfigSpace.CategoricalHyperparameter):
        if item.weights is not None and len(set(item.weights)) > 1:
            raise InputError("weighted choices are not supported", key=f"hyperparameters.{item.name}")
        choices = [_read_json(meta, plain(choice)) for choice in item.choices]
        return Hyperparameter.categorical(item.name, choices, default=_read_json(meta, default), changeable=changeable)
    kind = type(item).__name__
    raise InputError(f"{kind} is not supported: give uniform bounds", key=f"hyperparameters.{item.name}")


def _read_json(meta: Mapping[str, Any], value: Any) -> Any:
    return freeze(json.loads(value)) if meta.get("json") else value
