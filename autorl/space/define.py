"""A space from conditions and rules as they are written.

All readers (files, ConfigSpace, importers of data sets) end here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autorl.core.plain_text import one_of, shown
from autorl.core.types import InputError
from autorl.space.expressions import keyed
from autorl.space.hierarchy import by_name
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.rules import check_constants, read_condition, read_constraint, read_forbidden
from autorl.space.space import Space
from autorl.space.tree import Rule


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
            names it.
    """
    named = by_name(hyperparameters)
    parsed = _read_conditions(conditions or {}, named)
    numbers = check_constants(constants or {}, named)
    clauses = [
        keyed(f"forbidden[{i}]", read_forbidden, clause, named)
        for i, clause in enumerate(forbidden)
    ]
    rules = [
        keyed(f"constraints[{i}]", read_constraint, text, named, numbers)
        for i, text in enumerate(constraints)
    ]
    return Space(named.values(), parsed, clauses, rules, numbers)


def _read_conditions(
    texts: Mapping[str, object], hyperparameters: Mapping[str, Hyperparameter]
) -> dict[str, Rule]:
    conditions: dict[str, Rule] = {}
    for child, text in texts.items():
        key = f"conditions.{child}"
        if child not in hyperparameters:
            hint = one_of(str(child), hyperparameters, "known")
            raise InputError(f"unknown hyperparameter {shown(child)}{hint}", key=key)
        conditions[child] = keyed(key, read_condition, text, hyperparameters)
    return conditions
