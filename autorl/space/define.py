"""A space from conditions and rules as they are written.

All readers (files, ConfigSpace, importers of data sets) end here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autorl.plain_text import shown
from autorl.space.conditions import Condition, read_condition
from autorl.space.constraints import Compiler, check_constants
from autorl.space.expressions import keyed, nearest
from autorl.space.forbidden import read_forbidden
from autorl.space.hierarchy import Hierarchy, by_name
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.space import Space
from autorl.types import InputError


def define_space(
    hyperparameters: Iterable[Hyperparameter],
    *,
    conditions: Mapping[str, object] | None = None,
    forbidden: Sequence[object] = (),
    constraints: Sequence[object] = (),
    constants: Mapping[str, object] | None = None,
) -> Space:
    """Parse conditions and rules and build the space.

    Args:
        hyperparameters: in the order of the file.
        conditions: child -> expression over its parents; the child is active only where it holds.
        forbidden: combinations `{name: value or list of values}` that are not valid.
        constraints: expressions every valid configuration satisfies, unless they name an inactive
            hyperparameter.
        constants: numbers that constraints may use by name.

    Raises:
        InputError: an inconsistent definition, or a default configuration that is not valid. `key`
            says where. Of several errors, those of conditions come first, then those of constants,
            forbidden combinations, constraints and the default.
    """
    named = by_name(hyperparameters)
    hierarchy = Hierarchy.build(named.values(), _read_conditions(conditions or {}, named))
    numbers = check_constants(constants or {}, named)
    clauses = [
        keyed(f"forbidden[{i}]", read_forbidden, clause, named)
        for i, clause in enumerate(forbidden)
    ]
    compiler = Compiler(named, numbers)
    compiled = [
        keyed(f"constraints[{i}]", compiler.read, text) for i, text in enumerate(constraints)
    ]
    return Space(hierarchy, clauses, compiled, numbers)


def _read_conditions(
    texts: Mapping[str, object], hyperparameters: Mapping[str, Hyperparameter]
) -> dict[str, Condition]:
    conditions: dict[str, Condition] = {}
    for child, text in texts.items():
        key = f"conditions.{child}"
        if child not in hyperparameters:
            hint = nearest(str(child), hyperparameters)
            raise InputError(f"unknown hyperparameter {shown(child)}{hint}", key=key)
        conditions[child] = keyed(key, read_condition, text, hyperparameters)
    return conditions
