"""Conditions, forbidden clauses and constraints between ConfigSpace's objects and our expressions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorl.space.canonical import plain, spelled
from autorl.space.configspace_values import imported_value
from autorl.space.constraints import Constraint
from autorl.space.core import SpaceCore
from autorl.space.expressions import Syntax, literal
from autorl.space.hyperparameter import Hyperparameter
from autorl.types import InputError

if TYPE_CHECKING:
    import ConfigSpace

_SIGNS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FORBIDDEN = {
    "==": "Equals",
    "<": "LessThan",
    "<=": "LessThanEquals",
    ">": "GreaterThan",
    ">=": "GreaterThanEquals",
}
_SIGN_OF = {name: sign for sign, name in _FORBIDDEN.items()}


def export_constraint(
    space: SpaceCore, constraint: Constraint, exported: ConfigSpace.ConfigurationSpace
) -> Any | None:
    """The forbidden clause that says the same as a constraint, or None if ConfigSpace has none.

    It has one for `a <= b`, for `a <= 3` (any of != < <= > >=) and for `not (... and ...)` of such and of ==.
    """
    import ConfigSpace

    syntax = constraint.syntax
    tree = syntax.tree
    if not (isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)):
        return _forbid(space, exported, syntax, tree, negate=True)
    inner = tree.operand
    parts = (
        inner.values if isinstance(inner, ast.BoolOp) and isinstance(inner.op, ast.And) else [inner]
    )
    found = [_forbid(space, exported, syntax, part, negate=False) for part in parts]
    forbidden = [part for part in found if part is not None]
    if len(forbidden) < len(found):
        return None
    return forbidden[0] if len(forbidden) == 1 else ConfigSpace.ForbiddenAndConjunction(*forbidden)


def _forbid(
    space: SpaceCore,
    exported: ConfigSpace.ConfigurationSpace,
    syntax: Syntax,
    node: ast.AST,
    *,
    negate: bool,
) -> Any | None:
    import ConfigSpace

    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in _SIGNS:
        return None
    sign = _SIGNS[type(node.ops[0])]
    left, right = syntax.word(node.left), syntax.word(node.comparators[0])
    if left not in space.hyperparameters:
        left, right, sign = right, left, FLIPPED[sign]
        node = ast.Compare(node.comparators[0], node.ops, [node.left])
    name = _FORBIDDEN.get(_NEGATED[sign] if negate else sign)
    one, other = space.hyperparameters.get(left or ""), space.hyperparameters.get(right or "")
    if name is None or one is None or one.scale == "flipped_log" or not _ordered(one, sign):
        return None
    if other is not None:
        if other.scale == "flipped_log":
            return None
        return getattr(ConfigSpace, f"Forbidden{name}Relation")(
            exported[one.name], exported[other.name]
        )
    if not isinstance(node.comparators[0], ast.Constant) and right is None:
        return None
    value = literal(syntax, node.comparators[0], space.hyperparameters)
    if not one.accepts(value) or not isinstance(value, str | bool | int | float):
        return None
    return getattr(ConfigSpace, f"Forbidden{name}Clause")(exported[one.name], value)


def _ordered(item: Hyperparameter, sign: str) -> bool:
    """Whether both libraries mean the same by `sign`: numbers, which for ordinals must ascend."""
    if item.numeric:
        return True
    plain_type = len({type(choice) for choice in item.choices}) == 1
    if sign in ("==", "!="):
        return plain_type
    return plain_type and item.type == "ordinal" and list(item.choices) == sorted(item.choices)


def read_condition_text(condition: Any, items: Mapping[str, Hyperparameter]) -> str:
    """A ConfigSpace condition or conjunction as an expression."""
    import ConfigSpace

    if isinstance(condition, ConfigSpace.AndConjunction | ConfigSpace.OrConjunction):
        word = " and " if isinstance(condition, ConfigSpace.AndConjunction) else " or "
        return word.join(f"({read_condition_text(part, items)})" for part in condition.components)
    parent = items[condition.parent.name]
    if isinstance(condition, ConfigSpace.InCondition):
        return f"{parent.name} in {spelled([_value(parent, value) for value in condition.values])}"
    signs = {
        ConfigSpace.EqualsCondition: "==",
        ConfigSpace.NotEqualsCondition: "!=",
        ConfigSpace.LessThanCondition: "<",
        ConfigSpace.GreaterThanCondition: ">",
    }
    sign = signs[type(condition)]
    if parent.scale == "flipped_log":
        sign = FLIPPED[sign]
    return f"{parent.name} {sign} {spelled(_value(parent, condition.value))}"


def read_forbidden_clause(
    clause: Any, items: Mapping[str, Hyperparameter]
) -> Mapping[str, Any] | str:
    """A forbidden clause as a combination of values where it is one, otherwise as the text of a constraint."""
    import ConfigSpace

    parts: list[Any] = (
        list(clause.components)
        if isinstance(clause, ConfigSpace.ForbiddenAndConjunction)
        else [clause]
    )
    listed = all(
        isinstance(part, ConfigSpace.ForbiddenEqualsClause | ConfigSpace.ForbiddenInClause)
        for part in parts
    )
    if listed and len({part.hyperparameter.name for part in parts}) == len(parts):
        return {items[part.hyperparameter.name].name: _listed(part, items) for part in parts}
    if len(parts) == 1 and not isinstance(clause, ConfigSpace.ForbiddenOrConjunction):
        left, sign, right = _triple(clause, items)
        return f"{left} {_NEGATED[sign]} {right}"
    return f"not ({_forbidden_text(clause, items)})"


def _listed(part: Any, items: Mapping[str, Hyperparameter]) -> list[Any]:
    import ConfigSpace

    item = items[part.hyperparameter.name]
    values = list(part.values) if isinstance(part, ConfigSpace.ForbiddenInClause) else [part.value]
    return [_value(item, value) for value in values]


def _forbidden_text(clause: Any, items: Mapping[str, Hyperparameter]) -> str:
    import ConfigSpace

    if isinstance(clause, ConfigSpace.ForbiddenAndConjunction | ConfigSpace.ForbiddenOrConjunction):
        word = " and " if isinstance(clause, ConfigSpace.ForbiddenAndConjunction) else " or "
        return word.join(f"({_forbidden_text(part, items)})" for part in clause.components)
    if isinstance(clause, ConfigSpace.ForbiddenInClause):
        item = items[clause.hyperparameter.name]
        return f"{item.name} in {spelled([_value(item, value) for value in clause.values])}"
    return " ".join(_triple(clause, items))


def _triple(clause: Any, items: Mapping[str, Hyperparameter]) -> tuple[str, str, str]:
    """Left side, sign and right side of a clause about one value or of a relation."""
    import ConfigSpace

    kind = type(clause).__name__.removeprefix("Forbidden")
    if isinstance(clause, ConfigSpace.forbidden.ForbiddenRelation):
        names = [items[side.name] for side in (clause.left, clause.right)]
        left, right = (
            f"(1 - {item.name})" if item.scale == "flipped_log" else item.name for item in names
        )
        return left, _SIGN_OF[kind.removesuffix("Relation")], right
    item = items[clause.hyperparameter.name]
    sign = _SIGN_OF[kind.removesuffix("Clause")]
    if item.type == "ordinal" and not _ordered(item, sign):
        raise InputError(
            f"an order of {item.name!r} other than ascending numbers is not supported in forbidden clauses"
        )
    sign = FLIPPED[sign] if item.scale == "flipped_log" else sign
    return item.name, sign, spelled(_value(item, clause.value))


def _value(item: Hyperparameter, value: Any) -> Any:
    """A value in the ConfigSpace as one of `item`."""
    return imported_value(item, plain(value))
