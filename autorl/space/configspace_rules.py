"""Names, values and rules between ConfigSpace's objects and our expressions.

Two things ConfigSpace lacks are mapped. A `flipped_log` float x becomes the log-scaled float
`x.one_minus` = 1 - x. Choices that are not all strings, all integers, all floats or all booleans
(tuples, mixtures) become their JSON text. ConfigSpace 1.2 rounds floats to 13 decimals, so that six
digits of a value of 1e-8 are left when it comes back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autorl.core.types import InputError
from autorl.space.canonical import canonical_json, frozen, spelled
from autorl.space.core import SpaceCore
from autorl.space.expressions import FLIPPED
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.tree import Comparison, Junction, Relation, Rule, Tree

if TYPE_CHECKING:
    import ConfigSpace

ONE_MINUS = ".one_minus"
_NATIVE = (str, bool, int, float)
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
# ConfigSpace has no forbidden `!=`.
_FORBIDDEN = {
    "==": "Equals",
    "<": "LessThan",
    "<=": "LessThanEquals",
    ">": "GreaterThan",
    ">=": "GreaterThanEquals",
}
_SIGN_OF = {name: sign for sign, name in _FORBIDDEN.items()}


def exported_name(item: Hyperparameter) -> str:
    """Name a hyperparameter in the ConfigSpace."""
    return item.name + ONE_MINUS if item.scale == "flipped_log" else item.name


def exported_value(item: Hyperparameter, value: Any) -> Any:
    """Convert a value of a hyperparameter to the ConfigSpace."""
    if item.scale == "flipped_log":
        return 1.0 - value
    return value if item.numeric or is_native(item) else canonical_json(value)


def imported_value(item: Hyperparameter, value: Any) -> Any:
    """Convert a plain value from the ConfigSpace to one of the hyperparameter."""
    if item.scale == "flipped_log":
        # Rounded as our own floats are: 1 - (1 - x) is x but for the last digits.
        return item.tidy(1.0 - value)
    if item.type == "float":
        return item.tidy(float(value))
    if item.numeric or is_native(item):
        return item.canonical(value)
    return item.canonical(json.loads(value))


def is_native(item: Hyperparameter) -> bool:
    """Tell whether ConfigSpace keeps the choices as they are.

    It does if they have one plain type, which NumPy does not change.
    """
    # If types are mixed, ConfigSpace takes 1 and True for one choice, given twice.
    return len({type(choice) for choice in item.choices}) == 1 and isinstance(
        item.choices[0], _NATIVE
    )


def export_constraint(
    space: SpaceCore, constraint: Rule, exported: ConfigSpace.ConfigurationSpace
) -> Any | None:
    """Return ConfigSpace's forbidden clause for a constraint, or None.

    ConfigSpace can say `a <= b`, `a <= 3` (any of != < <= > >=), and `not (... and ...)` of these
    and of ==.
    """
    import ConfigSpace

    # A clause says what is forbidden, a constraint what holds: its opposite is exported, or of
    # `not (...)` the inside.
    tree = constraint.tree
    if not (isinstance(tree, Junction) and tree.kind == "not"):
        return _forbid(space, exported, tree, negate=True)
    (inner,) = tree.parts
    parts = inner.parts if isinstance(inner, Junction) and inner.kind == "and" else (inner,)
    mapped = [_forbid(space, exported, part, negate=False) for part in parts]
    forbidden = [part for part in mapped if part is not None]
    if len(forbidden) < len(mapped):
        return None
    return forbidden[0] if len(forbidden) == 1 else ConfigSpace.ForbiddenAndConjunction(*forbidden)


def _forbid(
    space: SpaceCore, exported: ConfigSpace.ConfigurationSpace, part: Tree, *, negate: bool
) -> Any | None:
    import ConfigSpace

    if isinstance(part, Junction) or part.operator == "in":
        return None
    sign: str = part.operator
    sides: list[Any] = (
        [part.parent.name, part.values[0]]
        if isinstance(part, Comparison)
        else [side[0] if len(side) == 1 else None for side in (part.left, part.right)]
    )
    if sides[0] not in space.hyperparameters:
        sides.reverse()
        sign = FLIPPED[sign]
    first, second = sides
    kind = _FORBIDDEN.get(_NEGATED[sign] if negate else sign)
    left = space.hyperparameters.get(first)
    # A flipped logarithm is exported as 1 - x, which is another side of every comparison.
    if kind is None or left is None or left.scale == "flipped_log" or not _ordered(left, sign):
        return None
    if isinstance(part, Relation) and second in space.hyperparameters:
        if space.hyperparameters[second].scale == "flipped_log":
            return None
        relation = getattr(ConfigSpace, f"Forbidden{kind}Relation")
        return relation(exported[left.name], exported[second])
    if not left.accepts(second) or not isinstance(second, str | bool | int | float):
        return None
    return getattr(ConfigSpace, f"Forbidden{kind}Clause")(exported[left.name], second)


def _ordered(item: Hyperparameter, sign: str) -> bool:
    """Tell whether both libraries mean the same by `sign`.

    They do for numbers; those of an ordinal must ascend.
    """
    if item.numeric:
        return True
    plain_type = len({type(choice) for choice in item.choices}) == 1
    if sign in ("==", "!="):
        return plain_type
    # Ascending, the order by value and the order by position are one.
    return plain_type and item.type == "ordinal" and list(item.choices) == sorted(item.choices)


def read_condition_text(condition: Any, items: Mapping[str, Hyperparameter]) -> str:
    """Write a ConfigSpace condition or conjunction as an expression."""
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
    clause: object, items: Mapping[str, Hyperparameter]
) -> Mapping[str, Any] | str:
    """Read a forbidden clause.

    Returns:
        A combination of values where it is one, otherwise the text of a constraint.
    """
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
    # A combination names each hyperparameter once.
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


def _forbidden_text(clause: object, items: Mapping[str, Hyperparameter]) -> str:
    import ConfigSpace

    if isinstance(clause, ConfigSpace.ForbiddenAndConjunction | ConfigSpace.ForbiddenOrConjunction):
        word = " and " if isinstance(clause, ConfigSpace.ForbiddenAndConjunction) else " or "
        return word.join(f"({_forbidden_text(part, items)})" for part in clause.components)
    if isinstance(clause, ConfigSpace.ForbiddenInClause):
        return f"{items[clause.hyperparameter.name].name} in {spelled(_listed(clause, items))}"
    return " ".join(_triple(clause, items))


def _triple(clause: Any, items: Mapping[str, Hyperparameter]) -> tuple[str, str, str]:
    """Split a comparison or relation into left side, sign and right side."""
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
            f"an order of {item.name!r} other than ascending numbers "
            "is not supported in forbidden clauses"
        )
    sign = FLIPPED[sign] if item.scale == "flipped_log" else sign
    return item.name, sign, spelled(_value(item, clause.value))


def _value(item: Hyperparameter, value: object) -> Any:
    """Convert a value of the ConfigSpace to one of `item`."""
    return imported_value(item, frozen(value))
