"""When each hyperparameter is active, and the order of parents first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autorl.core.plain_text import shown
from autorl.core.types import InputError
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.tree import Comparison, Junction, Rule, Tree

_MAX_CASES = 200_000  # joint values of ancestors that are tried before a condition is refused


def active_part(
    names: Iterable[str], conditions: Mapping[str, Rule], values: Mapping[str, object]
) -> dict[str, Any]:
    """Keep the values of active hyperparameters.

    A parent without a value counts as inactive.

    Args:
        names: of hyperparameters, parents first.
        conditions: of those that have one.
        values: by name.
    """
    part: dict[str, Any] = {}
    for name in names:
        if name in values:
            condition = conditions.get(name)
            if condition is None or condition.holds(part):
                part[name] = values[name]
    return part


def ancestors_of(name: str, conditions: Mapping[str, Rule]) -> set[str]:
    """Name every hyperparameter that decides whether `name` is active."""
    ancestors: set[str] = set()
    waiting = [name]
    while waiting:
        condition = conditions.get(waiting.pop())
        if condition is not None:
            waiting.extend(condition.names - ancestors)
            ancestors |= condition.names
    return ancestors


def by_name(hyperparameters: Iterable[Hyperparameter]) -> dict[str, Hyperparameter]:
    """Map names to hyperparameters.

    Raises:
        InputError: a name twice, or none at all.
    """
    named: dict[str, Hyperparameter] = {}
    for hyperparameter in hyperparameters:
        if hyperparameter.name in named:
            raise InputError("defined twice", key=f"hyperparameters.{hyperparameter.name}")
        named[hyperparameter.name] = hyperparameter
    if not named:
        raise InputError("a search space needs at least one hyperparameter", key="hyperparameters")
    return named


def parents_first(
    hyperparameters: Iterable[Hyperparameter], conditions: Mapping[str, Rule]
) -> dict[str, Hyperparameter]:
    """Map names to hyperparameters, each parent before its children.

    Otherwise they stay in the order given.

    Raises:
        InputError: a name twice, no hyperparameter, conditions in a circle, or one that never
            holds. `key` says where.
    """
    named = by_name(hyperparameters)
    order = list(named)
    placed: dict[str, Hyperparameter] = {}

    def place(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise InputError(
                f"conditions depend on each other in a circle: {circle}", key=f"conditions.{name}"
            )
        if name in placed:
            return
        if name in conditions:
            # In the order of the file, not of the set: hashes and vectors follow this order.
            for parent in sorted(conditions[name].names, key=order.index):
                place(parent, (*path, name))
        placed[name] = named[name]

    for name in order:
        place(name, ())
    for name in placed:
        if name in conditions and not _can_be_active(name, list(placed), conditions):
            raise InputError(
                f"{shown(name)} can never be active: "
                "its condition contradicts itself or its parents' conditions",
                key=f"conditions.{name}",
            )
    return placed


def _can_be_active(name: str, names: list[str], conditions: Mapping[str, Rule]) -> bool:
    """Try all joint values of ancestors that some comparison tells apart."""
    ancestors = ancestors_of(name, conditions)
    chain = [ancestor for ancestor in names if ancestor in ancestors]
    tests = [
        test
        for member in (*chain, name)
        if member in conditions
        for test in _comparisons(conditions[member].tree)
    ]
    cases = [
        _representatives([test for test in tests if test.parent.name == ancestor])
        for ancestor in chain
    ]
    if math.prod(map(len, cases)) > _MAX_CASES:
        raise InputError(
            "the condition hangs on too many others to be checked", key=f"conditions.{name}"
        )
    return any(
        conditions[name].holds(
            active_part(chain, conditions, dict(zip(chain, values, strict=True)))
        )
        for values in itertools.product(*cases)
    )


def _comparisons(tree: Tree) -> Iterator[Comparison]:
    """Yield the comparisons of a condition, left to right."""
    if isinstance(tree, Comparison):
        yield tree
    if isinstance(tree, Junction):
        for part in tree.parts:
            yield from _comparisons(part)


def _representatives(tests: list[Comparison]) -> list[Any]:
    """Pick one value for each joint outcome of a parent's tests."""
    parent = tests[0].parent
    # Few: values that pass the same tests are one case, whatever the size of the domain.
    value_of_outcome: dict[tuple[bool, ...], Any] = {}
    for value in _candidates(parent, [literal for test in tests for literal in test.values]):
        outcome = tuple(test.test(value) for test in tests)
        value_of_outcome.setdefault(outcome, value)
    return list(value_of_outcome.values())


def _candidates(parent: Hyperparameter, literals: list[float]) -> Iterator[Any]:
    """Yield every choice, or values at, next to and between the literals."""
    if not parent.numeric:
        yield from parent.choices
        return
    lower, upper = parent.bounds
    cuts = sorted({lower, upper, *(number for number in literals if lower <= number <= upper)})
    if parent.type == "int":
        neighbors = {math.floor(cut) + shift for cut in cuts for shift in (-1, 0, 1)}
        yield from sorted(int(number) for number in neighbors if lower <= number <= upper)
        return
    yield from cuts
    # Not (low + high) / 2, whose sum may overflow.
    yield from (low + (high - low) / 2 for low, high in itertools.pairwise(cuts))
