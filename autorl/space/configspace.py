"""Export to ConfigSpace, for SMAC, and its configurations.

Constraints that ConfigSpace cannot say are left out: reject what breaks them. Two things it lacks
are mapped. A `flipped_log` float x becomes the log-scaled float `x.one_minus` = 1 - x. Choices that
are not all strings, all integers, all floats or all booleans (tuples, mixtures) become their JSON
text. ConfigSpace 1.2 rounds floats to 13 decimals, so that six digits of a value of 1e-8 are left
when it comes back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autorl.core.types import Config
from autorl.space.canonical import canonical_json, frozen
from autorl.space.core import SpaceCore
from autorl.space.expressions import FLIPPED
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.tree import Comparison, Junction, Relation, Rule, Tree

if TYPE_CHECKING:
    import ConfigSpace

ONE_MINUS = ".one_minus"
NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
# ConfigSpace has no forbidden `!=`.
FORBIDDEN = {
    "==": "Equals",
    "<": "LessThan",
    "<=": "LessThanEquals",
    ">": "GreaterThan",
    ">=": "GreaterThanEquals",
}


def to_configspace(space: SpaceCore) -> ConfigSpace.ConfigurationSpace:
    """Make the ConfigSpace of a space.

    Values pass through `to_configuration` and `from_configuration`.
    """
    import ConfigSpace

    exported = ConfigSpace.ConfigurationSpace()
    # First: conditions and clauses are made of the ConfigSpace's own hyperparameters.
    exported.add([_export_hyperparameter(item) for item in space.hyperparameters.values()])
    for name, condition in space.conditions.items():
        child = exported[exported_name(space.hyperparameters[name])]
        mapped = _export_condition(exported, child, condition.tree)
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
            values[name] = imported_value(item, configuration[exported_name(item)])
    return Config(values)


def places_of_vectors(
    items: Sequence[Hyperparameter],
    exported: ConfigSpace.ConfigurationSpace,
    vectors: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Convert vectors of its ConfigSpace to places in the unit cube.

    An inactive hyperparameter is at its default.
    """
    names = list(exported)
    columns = []
    for item in items:
        column = vectors[:, names.index(exported_name(item))]
        if item.choices:
            column = (column + 0.5) / item.n_choices
        elif item.scale == "flipped_log":
            column = 1.0 - column
        columns.append(np.where(np.isnan(column), item.to_unit(item.default), column))
    return np.array(columns).T


def exported_name(item: Hyperparameter) -> str:
    """Name a hyperparameter in the ConfigSpace."""
    return item.name + ONE_MINUS if item.scale == "flipped_log" else item.name


def exported_value(item: Hyperparameter, value: Any) -> Any:
    """Convert a value of a hyperparameter to the ConfigSpace."""
    if item.scale == "flipped_log":
        return 1.0 - value
    return value if item.numeric or _is_native(item) else canonical_json(value)


def imported_value(item: Hyperparameter, value: Any) -> Any:
    """Convert a value from the ConfigSpace to one of the hyperparameter."""
    value = frozen(value)
    if item.type == "float":
        # Rounded as our own floats are: 1 - (1 - x) is x but for the last digits.
        return item.tidy(1.0 - value if item.scale == "flipped_log" else float(value))
    return item.canonical(value if item.numeric or _is_native(item) else json.loads(value))


def one_type(item: Hyperparameter) -> bool:
    """Tell whether all choices have one type."""
    return len({type(choice) for choice in item.choices}) == 1


def _is_native(item: Hyperparameter) -> bool:
    """Tell whether ConfigSpace keeps the choices as they are.

    It does if they have one plain type, which NumPy does not change.
    """
    # If types are mixed, ConfigSpace takes 1 and True for one choice, given twice.
    return one_type(item) and isinstance(item.choices[0], str | bool | int | float)


def _export_hyperparameter(item: Hyperparameter) -> Any:
    import ConfigSpace

    name = exported_name(item)
    entry = item.to_dict()
    marks = ("changeable", "prior")
    meta: dict[Hashable, Any] = {key: entry[key] for key in marks if key in entry}
    if not item.numeric and not _is_native(item):
        meta["json"] = True  # for the way back: the choices are JSON text
    default = exported_value(item, item.default)
    if item.type == "constant":
        return ConfigSpace.Constant(name, default, meta=meta)
    if not item.numeric:
        choices = [exported_value(item, choice) for choice in item.choices]
        kind = getattr(ConfigSpace, f"{item.type.capitalize()}Hyperparameter")
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
    exported: ConfigSpace.ConfigurationSpace, child: Any, condition: Tree
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
    pair = child, exported[exported_name(parent)]
    if parent.numeric and condition.operator not in ("in", "=="):
        return _export_order(pair, parent, condition.operator, condition.values[0])
    listed = parent.numeric or condition.operator == "in"
    values = condition.values if listed else filter(condition.test, parent.choices)
    allowed = [exported_value(parent, value) for value in values]
    if condition.operator == "==":
        return ConfigSpace.EqualsCondition(*pair, allowed[0])
    return ConfigSpace.InCondition(*pair, allowed) if allowed else None


def _export_order(
    pair: tuple[Any, Any], parent: Hyperparameter, sign: str, value: float
) -> Any | None:
    """Return `parent sign value` in ConfigSpace's terms, None if never true.

    The sign is one of != < <= > >=. ConfigSpace compares strictly, and only with values of the
    domain.
    """
    from ConfigSpace import EqualsCondition, GreaterThanCondition, LessThanCondition, OrConjunction

    if sign == "!=":
        # Not NotEqualsCondition: ConfigSpace 1.2 lets it hold for an inactive parent, whose NaN is
        # unequal to everything.
        limit = exported_value(parent, value)
        return OrConjunction(LessThanCondition(*pair, limit), GreaterThanCondition(*pair, limit))
    # `x < 2.5` is `x < 3` of integers, `x >= 2.5` is `x > 2`.
    if parent.type == "int":
        sign, value = {
            "<": ("<", math.ceil(value)),
            "<=": ("<", math.floor(value) + 1),
            ">": (">", math.floor(value)),
            ">=": (">", math.ceil(value) - 1),
        }[sign]
    limit = exported_value(parent, value)
    # Outside the bounds it is true wherever the parent is active (>= its lower bound), or nowhere.
    if not parent.accepts(value):
        if (value > parent.bounds[1]) is not (sign[0] == "<"):
            return None
        sign = ">="
        limit = pair[1].lower
    elif parent.scale == "flipped_log":
        sign = FLIPPED[sign]
    strict = (LessThanCondition if sign[0] == "<" else GreaterThanCondition)(*pair, limit)
    return strict if len(sign) == 1 else OrConjunction(strict, EqualsCondition(*pair, limit))


def _export_forbidden(exported: ConfigSpace.ConfigurationSpace, part: Comparison) -> Any:
    import ConfigSpace

    parent = exported[exported_name(part.parent)]
    values = [exported_value(part.parent, value) for value in part.values]
    if len(values) == 1:
        return ConfigSpace.ForbiddenEqualsClause(parent, values[0])
    return ConfigSpace.ForbiddenInClause(parent, values)


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
    forbidden: list[Any] = [_forbid(space, exported, part, negate=False) for part in parts]
    if None in forbidden:
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
    kind = FORBIDDEN.get(NEGATED[sign] if negate else sign)
    compared = space.hyperparameters.get(first)
    # A flipped logarithm is exported as 1 - x, which is another side of every comparison.
    if kind is None or compared is None or not ordered(compared, sign):
        return None
    if compared.scale == "flipped_log":
        return None
    if isinstance(part, Relation) and second in space.hyperparameters:
        if space.hyperparameters[second].scale == "flipped_log":
            return None
        relation = getattr(ConfigSpace, f"Forbidden{kind}Relation")
        return relation(exported[compared.name], exported[second])
    if not compared.accepts(second) or not isinstance(second, str | bool | int | float):
        return None
    return getattr(ConfigSpace, f"Forbidden{kind}Clause")(exported[compared.name], second)


def ordered(item: Hyperparameter, sign: str) -> bool:
    """Tell whether both libraries mean the same by `sign`.

    They do for numbers; those of an ordinal must ascend.
    """
    if item.numeric or not one_type(item) or sign in ("==", "!="):
        return item.numeric or one_type(item)
    # Ascending, the order by value and the order by position are one.
    return item.type == "ordinal" and list(item.choices) == sorted(item.choices)
