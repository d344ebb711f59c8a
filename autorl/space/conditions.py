"""Conditions on parents, as trees of comparisons like those of ConfigSpace.

`target_update_interval: "use_target_network == true"`,
`momentum: "optimizer in [sgd, rmsprop] and depth > 2"`. A comparison with an inactive parent is
false.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from autorl.plain_text import shown
from autorl.space.canonical import is_number
from autorl.space.expressions import (
    COMPARE,
    FLIPPED,
    ORDER,
    SIGNS,
    Operator,
    Syntax,
    Values,
    literal,
    nearest,
    parse,
    rename,
)
from autorl.space.hyperparameter import Hyperparameter
from autorl.types import InputError


@dataclass(frozen=True)
class Comparison:
    """`parent operator value`, or `parent in values`."""

    parent: Hyperparameter
    operator: Operator
    values: tuple[Any, ...]

    def holds(self, config: Values) -> bool:
        """Tell whether the parent has a value in `config` that passes."""
        name = self.parent.name
        return name in config and self.test(config[name])

    def test(self, value: object) -> bool:
        """Tell whether a value of the parent passes.

        Raises:
            InputError: the parent has choices and `value` is not among them.
        """
        if self.parent.numeric:
            if self.operator in ORDER:
                return COMPARE[self.operator](value, self.values[0])
            return (value in self.values) is (self.operator != "!=")
        # By position: that is the order of an ordinal, and to Python True == 1.
        position = self.parent.index(value)
        if self.operator in ORDER:
            return COMPARE[self.operator](position, self._positions[0])
        return (position in self._positions) is (self.operator != "!=")

    def with_parent(self, parent: Hyperparameter) -> Comparison:
        """Ask the same of another hyperparameter of the same domain."""
        return Comparison(parent, self.operator, self.values)

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.parent.index(value) for value in self.values)


@dataclass(frozen=True)
class Junction:
    """All (and) or any (or) of its parts."""

    kind: Literal["and", "or"]
    parts: tuple[Tree, ...]

    def holds(self, config: Values) -> bool:
        """Tell whether all or any of the parts hold in `config`."""
        combine = all if self.kind == "and" else any
        return combine(part.holds(config) for part in self.parts)


Tree: TypeAlias = Comparison | Junction


@dataclass(frozen=True)
class Condition:
    """A condition as it is written, and the comparisons it means.

    Attributes:
        text: as the file of the space has it; hashes of spaces are taken over it.
        tree: what the text says.
    """

    text: str
    tree: Tree

    def holds(self, config: Values) -> bool:
        """Tell whether the condition holds, given the active parents' values in `config`."""
        return self.tree.holds(config)

    @cached_property
    def parents(self) -> frozenset[str]:
        """The hyperparameters the condition looks at."""
        return frozenset(comparison.parent.name for comparison in comparisons(self.tree))

    def renamed(self, parents: Mapping[str, Hyperparameter]) -> Condition:
        """Say the same of renamed parents, looked up by their present names."""
        names = {name: parent.name for name, parent in parents.items()}
        return Condition(rename(self.text, names), with_parents(self.tree, parents))


def comparisons(tree: Tree) -> Iterator[Comparison]:
    """Yield the comparisons of a tree, left to right."""
    if isinstance(tree, Comparison):
        yield tree
    else:
        for part in tree.parts:
            yield from comparisons(part)


def with_parents(tree: Tree, parents: Mapping[str, Hyperparameter]) -> Tree:
    """Replace the parent of every comparison, looked up by its present name."""
    if isinstance(tree, Comparison):
        return tree.with_parent(parents[tree.parent.name])
    return Junction(tree.kind, tuple(with_parents(part, parents) for part in tree.parts))


def read_condition(text: object, hyperparameters: Mapping[str, Hyperparameter]) -> Condition:
    """Parse a condition.

    Raises:
        InputError: syntax, an unknown name, a value outside the parent's domain.
    """
    syntax = parse(text, hyperparameters)
    return Condition(syntax.text, _tree(syntax, syntax.tree, hyperparameters))


def _tree(syntax: Syntax, node: ast.AST, hyperparameters: Mapping[str, Hyperparameter]) -> Tree:
    if isinstance(node, ast.BoolOp):
        kind: Literal["and", "or"] = "and" if isinstance(node.op, ast.And) else "or"
        return Junction(kind, tuple(_tree(syntax, part, hyperparameters) for part in node.values))
    if not isinstance(node, ast.Compare):
        # No `not` either: ConfigSpace joins comparisons by and and or alone.
        raise InputError(
            "a condition compares a parent with a value, such as `optimizer in [adam, sgd]`; "
            f"join with and, or; got {shown(syntax.text)}"
        )
    # `1 < depth < 4` is two comparisons, as in Python.
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
    sign: Operator | None = "in" if isinstance(compare, ast.In) else SIGNS.get(type(compare))
    if sign is None:
        raise InputError(
            f"only ==, !=, <, <=, >, >= and in can be used in a condition, got {shown(syntax.text)}"
        )
    left_is_name = syntax.word(left) in hyperparameters
    right_is_name = syntax.word(right) in hyperparameters
    # `3 < depth` says `depth > 3`; of two names the right one is refused by `literal`.
    if right_is_name and not left_is_name and sign != "in":
        left, right = right, left
        sign = FLIPPED[sign]
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


def _checked(parent: Hyperparameter, sign: Operator, value: object, syntax: Syntax) -> Any:
    """Return a literal as the parent holds it.

    Raises:
        InputError: the parent has no order where `sign` needs one, or `value` is not in its domain.
    """
    ordered = sign in ORDER
    if ordered and parent.type in ("categorical", "constant"):
        raise InputError(
            f"{parent.name!r} has no order: only ==, != and in can be used in {shown(syntax.text)}"
        )
    if ordered and parent.numeric and is_number(value):
        return value  # it may lie outside the bounds: `x > 0` says something of any x
    problem = parent.problem(value)
    if problem:
        raise InputError(f"{parent.name}: {problem}, in {shown(syntax.text)}")
    return parent.canonical(value)
