"""Import from ConfigSpace, for spaces people already have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorl.core.types import InputError, freeze
from autorl.space.canonical import frozen, spelled
from autorl.space.configspace import FORBIDDEN, NEGATED, ONE_MINUS, imported_value, ordered
from autorl.space.define import define_space
from autorl.space.expressions import FLIPPED
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.space import Space

if TYPE_CHECKING:
    import ConfigSpace

_SIGNS = {**{name: sign for sign, name in FORBIDDEN.items()}, "NotEquals": "!=", "In": "in"}


def from_configspace(source: ConfigSpace.ConfigurationSpace) -> Space:
    """Make the space a ConfigSpace describes.

    Raises:
        InputError: it has something a search space cannot say: weighted choices, normal or beta
            distributions, a name with other characters than letters, digits and `_ - / .`.
    """
    items = {name: _import_hyperparameter(item) for name, item in source.items()}
    rules = [_forbidden_rule(clause, items) for clause in source.forbidden_clauses]
    return define_space(
        items.values(),
        conditions={
            items[condition.child.name].name: _condition_text(condition, items)
            for condition in source.conditions
        },
        forbidden=[rule for rule in rules if not isinstance(rule, str)],
        constraints=[rule for rule in rules if isinstance(rule, str)],
    )


def _import_hyperparameter(item: Any) -> Hyperparameter:
    kind = type(item).__name__
    meta = item.meta or {}
    options: dict[str, Any] = {name: meta.get(name) for name in ("changeable", "prior")}
    options |= {"default": frozen(item.default_value), "changeable": bool(options["changeable"])}

    def read(value: object) -> Any:
        value = frozen(value)
        return freeze(json.loads(value)) if meta.get("json") else value  # type: ignore[arg-type]

    if kind == "Constant":
        return Hyperparameter.constant(item.name, read(item.value))
    if kind == "UniformFloatHyperparameter" and "range" in meta:
        # As they were: ConfigSpace rounds them.
        lower, upper, options["default"], scale = meta["range"]
        name = item.name.removesuffix(ONE_MINUS)
        return Hyperparameter.real(name, lower, upper, scale=scale, **options)
    if kind in ("UniformFloatHyperparameter", "UniformIntegerHyperparameter"):
        build = Hyperparameter.real if "Float" in kind else Hyperparameter.integer
        bounds = frozen(item.lower), frozen(item.upper)
        return build(item.name, *bounds, scale="log" if item.log else "linear", **options)
    options["default"] = read(item.default_value)
    if kind == "OrdinalHyperparameter":
        return Hyperparameter.ordinal(item.name, map(read, item.sequence), **options)
    if kind == "CategoricalHyperparameter":
        # Equal weights are what every choice has without any.
        if item.weights is not None and len(set(item.weights)) > 1:
            raise InputError(
                "weighted choices are not supported", key=f"hyperparameters.{item.name}"
            )
        return Hyperparameter.categorical(item.name, map(read, item.choices), **options)
    raise InputError(
        f"{kind} is not supported: give uniform bounds", key=f"hyperparameters.{item.name}"
    )


def _joined(rule: Any, write: Any) -> str:
    """Write the parts of a conjunction, joined by `and` or `or`."""
    word = " and " if type(rule).__name__.endswith("AndConjunction") else " or "
    return word.join(f"({write(part)})" for part in rule.components)


def _condition_text(condition: Any, items: Mapping[str, Hyperparameter]) -> str:
    """Write a ConfigSpace condition or conjunction as an expression."""
    if hasattr(condition, "components"):
        return _joined(condition, lambda part: _condition_text(part, items))
    parent = items[condition.parent.name]
    sign = _SIGNS[type(condition).__name__.removesuffix("Condition")]
    if sign == "in":
        values: Any = [imported_value(parent, value) for value in condition.values]
    else:
        values = imported_value(parent, condition.value)
    if parent.scale == "flipped_log":
        sign = FLIPPED.get(sign, sign)
    return f"{parent.name} {sign} {spelled(values)}"


def _forbidden_rule(clause: Any, items: Mapping[str, Hyperparameter]) -> Mapping[str, Any] | str:
    """Read a forbidden clause.

    Returns:
        A combination of values where it is one, otherwise the text of a constraint.
    """
    kind = type(clause).__name__
    parts = clause.components if kind == "ForbiddenAndConjunction" else [clause]
    listed = {type(part).__name__ for part in parts} <= {
        "ForbiddenEqualsClause",
        "ForbiddenInClause",
    }
    # A combination names each hyperparameter once.
    if listed and len({part.hyperparameter.name for part in parts}) == len(parts):
        return {items[part.hyperparameter.name].name: _listed(part, items) for part in parts}
    if hasattr(clause, "components"):
        return f"not ({_forbidden_text(clause, items)})"
    left, sign, right = _triple(clause, items)
    return f"{left} {NEGATED[sign]} {right}"


def _listed(part: Any, items: Mapping[str, Hyperparameter]) -> list[Any]:
    values = list(part.values) if hasattr(part, "values") else [part.value]
    return [imported_value(items[part.hyperparameter.name], value) for value in values]


def _forbidden_text(clause: Any, items: Mapping[str, Hyperparameter]) -> str:
    if hasattr(clause, "components"):
        return _joined(clause, lambda part: _forbidden_text(part, items))
    return " ".join(_triple(clause, items))


def _triple(clause: Any, items: Mapping[str, Hyperparameter]) -> tuple[str, str, str]:
    """Split a comparison or relation into left side, sign and right side."""
    kind = type(clause).__name__.removeprefix("Forbidden")
    if kind.endswith("Relation"):
        left, right = (
            f"(1 - {item.name})" if item.scale == "flipped_log" else item.name
            for item in (items[clause.left.name], items[clause.right.name])
        )
        return left, _SIGNS[kind.removesuffix("Relation")], right
    item = items[clause.hyperparameter.name]
    sign = _SIGNS[kind.removesuffix("Clause")]
    if sign == "in":
        return item.name, sign, spelled(_listed(clause, items))
    if item.type == "ordinal" and not ordered(item, sign):
        raise InputError(
            f"an order of {item.name!r} other than ascending numbers "
            "is not supported in forbidden clauses"
        )
    sign = FLIPPED[sign] if item.scale == "flipped_log" else sign
    return item.name, sign, spelled(imported_value(item, clause.value))
