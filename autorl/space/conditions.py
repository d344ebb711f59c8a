"""When a hyperparameter is active: conditions on its parents, as trees of comparisons, which ConfigSpace has too.

`target_update_interval: "use_target_network == true"`, `momentum: "optimizer in [sgd, rmsprop] and depth > 2"`. A
comparison with an inactive parent is false.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from autorl.plain_text import shown
from autorl.space.expressions import Syntax, Values, literal, nearest, parse
from autorl.space.hyperparameter import Hyperparameter
from autorl.types import InputError

Operator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "in"]
_OPERATORS: Mapping[type[ast.cmpop], Operator] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
}
_FLIPPED: Mapping[str, Operator] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MAX_CASES = 200_000


@dataclass(frozen=True)
class Comparison:
    """`parent operator value`, or `parent in values`."""

    parent: Hyperparameter
    operator: Operator
    values: tuple[Any, ...]

    def holds(self, config: Values) -> bool:
        name = self.parent.name
        return name in config and self.test(config[name])

    def test(self, value: Any) -> bool:
        """Whether a value of the parent passes."""
        if self.parent.numeric:
            if self.operator in _ORDER:
                return _ORDER[self.operator](value, self.values[0])
            return (value in self.values) is (self.operator != "!=")
        position = self.parent.index(value)
        if self.operator in _ORDER:
            return _ORDER[self.operator](position, self._positions[0])
        return (position in self._positions) is (self.operator != "!=")

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.parent.index(item) for item in self.values)


@dataclass(frozen=True)
class Junction:
    """All (and) or any (or) of its parts."""

    kind: Literal["and", "or"]
    parts: tuple[Condition, ...]

    def holds(self, config: Values) -> bool:
        combine = all if self.kind == "and" else any
        return combine(part.holds(config) for part in self.parts)


Condition: TypeAlias = Comparison | Junction


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """The comparisons in a condition, left to right."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts:
            yield from comparisons(part)


def parents(condition: Condition) -> frozenset[str]:
    """Names of the hyperparameters a condition looks at."""
    return frozenset(comparison.parent.name for comparison in comparisons(condition))


def read_condition(text: Any, hyperparameters: Mapping[str, Hyperparameter]) -> Condition:
    """Parse a condition.

    Raises:
        InputError: syntax, an unknown name, a value outside the parent's domain.
    """
    syntax = parse(text, hyperparameters)
    return _condition(syntax, syntax.tree, hyperparameters)


def _condition(
    syntax: Syntax, node: ast.AST, hyperparameters: Mapping[str, Hyperparameter]
) -> Condition:
    if isinstance(node, ast.BoolOp):
        kind: Literal["and", "or"] = "and" if isinstance(node.op, ast.And) else "or"
        return Junction(
            kind, tuple(_condition(syntax, part, hyperparameters) for part in node.values)
        )
    if not isinstance(node, ast.Compare):
        allowed = "a condition compares a parent with a value, such as `optimizer in [adam, sgd]`; join with and, or"
        raise InputError(f"{allowed}; got {shown(syntax.text)}")
    sides = [node.left, *node.comparators]
    parts = tuple(
        _comparison(syntax, (left, compare, right), hyperparameters)
        for left, compare, right in zip(sides[:-1], node.ops, sides[1:], strict=True)
    )
    return parts[0] if len(parts) == 1 else Junction("and", parts)


def _comparison(
    syntax: Syntax,
    triple: tuple[ast.AST, ast.cmpop, ast.AST],
    hyperparameters: Mapping[str, Hyperparameter],
) -> Comparison:
    left, compare, right = triple
    sign = _OPERATORS.get(type(compare))
    if sign is None:
        raise InputError(
            f"only ==, !=, <, <=, >, >= and in can be used in a condition, got {shown(syntax.text)}"
        )
    if (
        syntax.word(left) not in hyperparameters
        and syntax.word(right) in hyperparameters
        and sign != "in"
    ):
        left, right, sign = right, left, _FLIPPED[sign]
    word = syntax.word(left)
    if word is None:
        raise InputError(
            f"expected the name of a hyperparameter on one side of {sign} in {shown(syntax.text)}"
        )
    if word not in hyperparameters:
        raise InputError(
            f"unknown name {shown(word)} in {shown(syntax.text)}{nearest(word, hyperparameters)}"
        )
    parent = hyperparameters[word]
    value = literal(syntax, right, hyperparameters)
    if sign == "in" and not (isinstance(value, tuple) and value):
        raise InputError(f"`in` needs a list such as [1, 2] in {shown(syntax.text)}")
    values = value if sign == "in" else (value,)
    return Comparison(parent, sign, tuple(_checked(parent, sign, item, syntax) for item in values))


def _checked(parent: Hyperparameter, sign: Operator, value: Any, syntax: Syntax) -> Any:
    ordered = sign in _ORDER
    if ordered and parent.type in ("categorical", "constant"):
        raise InputError(
            f"{parent.name!r} has no order: only ==, != and in can be used in {shown(syntax.text)}"
        )
    if (
        ordered
        and parent.numeric
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ):
        return value
    problem = parent.problem(value)
    if problem:
        raise InputError(f"{parent.name}: {problem}, in {shown(syntax.text)}")
    return parent.canonical(value)


def order(names: list[str], conditions: Mapping[str, Condition]) -> tuple[str, ...]:
    """`names` in their order, but each parent before its children.

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
            for parent in sorted(parents(conditions[name]), key=names.index):
                place(parent, (*path, name))
        placed[name] = None

    for name in names:
        place(name, ())
    return tuple(placed)


def check_satisfiable(names: tuple[str, ...], conditions: Mapping[str, Condition]) -> None:
    """Raise `InputError` for the first hyperparameter (parents first) that no configuration activates."""
    for name in names:
        if name in conditions and not _can_be_active(name, names, conditions):
            raise InputError(
                f"{shown(name)} can never be active: its condition contradicts itself or its parents' conditions",
                key=f"conditions.{name}",
            )


def _can_be_active(name: str, names: tuple[str, ...], conditions: Mapping[str, Condition]) -> bool:
    """Exhaustive over the values of all ancestors, of which only those that some comparison tells apart are tried."""
    above = ancestors(name, conditions)
    chain = [item for item in names if item in above]
    tests = [
        test
        for item in (*chain, name)
        if item in conditions
        for test in comparisons(conditions[item])
    ]
    cases = [
        _representatives([test for test in tests if test.parent.name == item]) for item in chain
    ]
    if math.prod(map(len, cases)) > _MAX_CASES:
        raise InputError(
            "the condition hangs on too many others to be checked", key=f"conditions.{name}"
        )
    for values in itertools.product(*cases):
        config: dict[str, Any] = {}
        for item, value in zip(chain, values, strict=True):
            if item not in conditions or conditions[item].holds(config):
                config[item] = value
        if conditions[name].holds(config):
            return True
    return False


def ancestors(name: str, conditions: Mapping[str, Condition]) -> set[str]:
    """Every hyperparameter the activity of `name` hangs on, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        condition = conditions.get(waiting.pop())
        new = parents(condition) - found if condition is not None else frozenset()
        found |= new
        waiting.extend(sorted(new))
    return found


def _representatives(tests: list[Comparison]) -> list[Any]:
    """One value of the tests' common parent for each outcome the tests together can have."""
    parent = tests[0].parent
    found: dict[tuple[bool, ...], Any] = {}
    for value in _candidates(parent, [item for test in tests for item in test.values]):
        found.setdefault(tuple(test.test(value) for test in tests), value)
    return list(found.values())


def _candidates(parent: Hyperparameter, literals: list[Any]) -> Iterator[Any]:
    if not parent.numeric:
        yield from parent.choices
        return
    lower, upper = parent.bounds
    cuts = sorted({lower, upper, *(item for item in literals if lower <= item <= upper)})
    if parent.type == "int":
        near = {math.floor(cut) + shift for cut in cuts for shift in (-1, 0, 1)}
        yield from sorted(int(item) for item in near if lower <= item <= upper)
        return
    yield from cuts
    yield from (low + (high - low) / 2 for low, high in itertools.pairwise(cuts))
