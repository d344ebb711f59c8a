"""Hyperparameters and when each is active: parents before their children."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autorl.core.plain_text import shown
from autorl.core.types import InputError
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.tree import Comparison, Junction, Rule, Tree

_MAX_CASES = 200_000  # joint values of ancestors that are tried before a condition is refused


@dataclass(frozen=True)
class Hierarchy:
    """Hyperparameters with the conditions under which they are active.

    Build it with `build`, which orders and checks. A copy by pickle is not checked again.

    Attributes:
        hyperparameters: by name, parents before their children, otherwise in the order given.
        conditions: of the hyperparameters that have one, over hyperparameters of this hierarchy.
    """

    hyperparameters: Mapping[str, Hyperparameter]
    conditions: Mapping[str, Rule]

    @classmethod
    def build(
        cls, hyperparameters: Iterable[Hyperparameter], conditions: Mapping[str, Rule]
    ) -> Hierarchy:
        """Order hyperparameters and check that each can be active.

        Raises:
            InputError: a name twice, no hyperparameter, conditions in a circle, or one that never
                holds. `key` says where.
        """
        named = by_name(hyperparameters)
        names = _parents_first(list(named), conditions)
        hierarchy = cls({name: named[name] for name in names}, dict(conditions))
        for name in names:
            if name in conditions and not hierarchy._can_be_active(name):
                raise InputError(
                    f"{shown(name)} can never be active: "
                    "its condition contradicts itself or its parents' conditions",
                    key=f"conditions.{name}",
                )
        return hierarchy

    def active_part(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Keep the values of active hyperparameters, parents first.

        A parent without a value counts as inactive.
        """
        names = self.active_names(values)
        return {
            name: values[name] for name in self.hyperparameters if name in names & values.keys()
        }

    def active_names(self, values: Mapping[str, object]) -> frozenset[str]:
        """Name the active hyperparameters, with or without a value of their own."""
        parent_values: dict[str, Any] = {}
        names: list[str] = []
        for name in self.hyperparameters:
            condition = self.conditions.get(name)
            if condition is None or condition.holds(parent_values):
                names.append(name)
                if name in values:
                    parent_values[name] = values[name]
        return frozenset(names)

    def ancestors(self, name: str) -> set[str]:
        """Name every hyperparameter that decides whether `name` is active."""
        ancestors: set[str] = set()
        waiting = [name]
        while waiting:
            condition = self.conditions.get(waiting.pop())
            if condition is not None:
                # Sorted: a set of text has another order in every process.
                waiting.extend(sorted(condition.names - ancestors))
                ancestors |= condition.names
        return ancestors

    def _can_be_active(self, name: str) -> bool:
        """Try all joint values of ancestors that some comparison tells apart."""
        ancestors = self.ancestors(name)
        chain = [ancestor for ancestor in self.hyperparameters if ancestor in ancestors]
        tests = [
            test
            for member in (*chain, name)
            if member in self.conditions
            for test in _comparisons(self.conditions[member].tree)
        ]
        cases = [
            _representatives([test for test in tests if test.parent.name == ancestor])
            for ancestor in chain
        ]
        if math.prod(map(len, cases)) > _MAX_CASES:
            raise InputError(
                "the condition hangs on too many others to be checked", key=f"conditions.{name}"
            )
        condition = self.conditions[name]
        above = Hierarchy(
            {member: self.hyperparameters[member] for member in chain}, self.conditions
        )
        return any(
            condition.holds(above.active_part(dict(zip(chain, values, strict=True))))
            for values in itertools.product(*cases)
        )


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


def _parents_first(names: list[str], conditions: Mapping[str, Rule]) -> tuple[str, ...]:
    """Order names by depth-first search, each parent before its children.

    Raises:
        InputError: conditions depend on one another in a circle.
    """
    placed: dict[str, None] = {}

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
            for parent in sorted(conditions[name].names, key=names.index):
                place(parent, (*path, name))
        placed[name] = None

    for name in names:
        place(name, ())
    return tuple(placed)


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
