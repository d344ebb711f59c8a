"""Reads conditions, forbidden combinations and constraints into the one tree.

A condition compares parents with values, like those of ConfigSpace:
`momentum: "optimizer in [sgd, rmsprop] and depth > 2"`. A constraint is a truth such as
`batch_size <= n_steps * n_envs` or `not (optimizer == sgd and momentum > 0.9)`: names, numbers,
`+ - * / // % **`, comparisons, `in [...]`, and/or/not, parentheses.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from autorl.core.plain_text import one_of, shown
from autorl.core.types import InputError
from autorl.space.canonical import is_number
from autorl.space.expressions import FLIPPED, ORDER, SIGNS, Operator, Syntax, keyed, literal, parse
from autorl.space.hyperparameter import Hyperparameter, check_name
from autorl.space.tree import (
    Comparison,
    Forbidden,
    Formula,
    Junction,
    Parents,
    Relation,
    Rule,
    Tree,
)

DEFERRED = ("n_envs", "horizon", "evaluation_interval")  # names whose values a study gives later


def _power(base: float, exponent: float) -> float:
    # Both are a ValueError of `math.pow`, but a broken rule is told by an ArithmeticError. Not
    # `**`: of whole numbers it never overflows, and (-1) ** 0.5 is complex.
    if base < 0 and not float(exponent).is_integer():
        raise ArithmeticError("root of a negative number")
    if base == 0 and exponent < 0:
        raise ZeroDivisionError("zero to a negative power")
    return math.pow(base, exponent)


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def read_condition(text: object, hyperparameters: Parents) -> Rule:
    """Parse a condition.

    Raises:
        InputError: syntax, an unknown name, a value outside the parent's domain.
    """
    syntax = parse(text, hyperparameters)
    return Rule(syntax.text, _Reader(syntax, hyperparameters, None).tree(syntax.tree))


def read_constraint(text: object, hyperparameters: Parents, constants: Mapping[str, float]) -> Rule:
    """Parse a constraint.

    Args:
        text: as in a file.
        hyperparameters: the names it may use.
        constants: numbers known by name.

    Raises:
        InputError: syntax, an unknown name, a word compared with a number, a value that is not a
            choice.
    """
    syntax = parse(text, hyperparameters)
    tree = _Reader(syntax, hyperparameters, (*constants, *DEFERRED)).tree(syntax.tree)
    used = tree.names.difference(hyperparameters)
    if used == tree.names:
        raise InputError(f"the constraint {shown(syntax.text)} names no hyperparameter")
    numbers = {name: constants[name] for name in used if name in constants}
    return Rule(syntax.text, tree, used, numbers)


def read_forbidden(clause: object, hyperparameters: Parents) -> Forbidden:
    """Read `{name: value, other: [value, value]}`.

    A list that is itself a choice is one value.

    Raises:
        InputError: not a mapping, an unknown name, a value outside the domain.
    """
    if not isinstance(clause, Mapping) or not clause:
        raise InputError(
            "expected a mapping such as {batch_size: 128, n_epochs: [19, 20]}, "
            f"got {shown(clause)}"
        )
    parts: list[Comparison] = []
    for name, values in clause.items():
        if name not in hyperparameters:
            raise InputError(
                f"unknown hyperparameter {shown(name)}{one_of(str(name), hyperparameters, 'known')}"
            )
        parent = hyperparameters[name]
        # A choice may itself be a list, such as the layers [64, 64].
        is_list_of_values = isinstance(values, list | tuple) and not parent.accepts(values)
        listed = list(values) if is_list_of_values else [values]
        if not listed:
            raise InputError(f"{name}: an empty list forbids nothing")
        for value in listed:
            problem = parent.problem(value)
            if problem:
                raise InputError(f"{name}: {problem}")
        parts.append(Comparison(parent, "in", tuple(parent.canonical(value) for value in listed)))
    return Forbidden(tuple(parts))


@dataclass(frozen=True)
class _Reader:
    """Makes a tree of a parsed expression, checking names and types.

    Attributes:
        syntax: the expression.
        hyperparameters: the names it may use.
        constants: other names that stand for numbers; None: it is a condition, which computes none.
    """

    syntax: Syntax
    hyperparameters: Parents
    constants: tuple[str, ...] | None

    def tree(self, node: ast.AST) -> Tree:
        """Read a truth."""
        if isinstance(node, ast.BoolOp):
            kind: Literal["and", "or"] = "and" if isinstance(node.op, ast.And) else "or"
            return Junction(kind, tuple(self.tree(part) for part in node.values))
        if isinstance(node, ast.Compare):
            # `1 < depth < 4` is two comparisons, as in Python.
            sides = [node.left, *node.comparators]
            parts = tuple(map(self._pair, sides[:-1], node.ops, sides[1:]))
            return parts[0] if len(parts) == 1 else Junction("and", parts)
        if self.constants is None:
            # No `not` either: ConfigSpace joins comparisons by and and or alone.
            raise self._wrong(
                "a condition compares a parent with a value, such as `optimizer in [adam, sgd]`; "
                "join with and, or; got"
            )
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Junction("not", (self.tree(node.operand),))
        self._number(node)  # what is not a number either has a message of its own
        raise self._wrong("a constraint is a comparison such as `x <= 2 * y`, got")

    def _pair(self, left: ast.AST, compare: ast.cmpop, right: ast.AST) -> Tree:
        if isinstance(compare, ast.NotIn) and self.constants is not None:
            return Junction("not", (self._pair(left, ast.In(), right),))
        sign: Operator | None = "in" if isinstance(compare, ast.In) else SIGNS.get(type(compare))
        if sign is None:
            only = "only ==, !=, <, <=, >, >= and in can be used"
            raise self._wrong(f"{only} to compare, got")
        chosen = self._chosen(left)
        # `3 < depth` says `depth > 3`, and `adam == optimizer` says `optimizer == adam`.
        if chosen is None and sign != "in" and self._chosen(right) is not None:
            chosen = self._chosen(right)
            left, right = right, left
            sign = FLIPPED[sign]
        if sign == "in" and not (isinstance(right, ast.List | ast.Tuple) and right.elts):
            raise self._wrong("`in` needs a list such as [1, 2] in")
        if chosen is not None:
            value = literal(self.syntax, right, self.hyperparameters)
            values = value if sign == "in" else (value,)
            return Comparison(chosen, sign, tuple(self._value(chosen, sign, v) for v in values))
        if self.constants is None:
            word = self.syntax.word(left)
            if word is None:
                raise self._wrong(f"expected the name of a hyperparameter on one side of {sign} in")
            raise self._unknown(word)
        number = self._number(left)
        if isinstance(right, ast.List | ast.Tuple) and sign == "in":
            equal = [Relation(number, "==", self._number(item)) for item in right.elts]
            return Junction("or", tuple(equal))
        return Relation(number, sign, self._number(right))

    def _chosen(self, node: ast.AST) -> Hyperparameter | None:
        """Return the hyperparameter that is compared with values of its domain.

        A number in a constraint is not: it computes.
        """
        item = self.hyperparameters.get(self.syntax.word(node) or "")
        return None if item is None or (self.constants is not None and _is_number(item)) else item

    def _value(self, parent: Hyperparameter, sign: Operator, value: object) -> Any:
        """Return a literal as the parent holds it."""
        ordered = sign in ORDER
        if ordered and parent.type in ("categorical", "constant"):
            raise self._wrong(f"{parent.name!r} has no order: only ==, != and in can be used in")
        if ordered and parent.numeric and is_number(value):
            return value  # it may lie outside the bounds: `x > 0` says something of any x
        problem = parent.problem(value)
        if problem:
            raise self._wrong(f"{parent.name}: {problem}, in")
        return parent.canonical(value)

    def _number(self, node: ast.AST) -> Formula:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return (-1, *self._number(node.operand), operator.mul)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            sides = self._number(node.left) + self._number(node.right)
            return (*sides, _ARITHMETIC[type(node.op)])
        # No bool: `true` is a word. 1e999 is read as infinity.
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int | float)
            and math.isfinite(node.value)
        ):
            return (node.value,)
        if isinstance(node, ast.Compare | ast.BoolOp):
            raise self._wrong("expected a number on each side of an operator in")
        word = self.syntax.word(node)
        if word is None:
            raise self._wrong(f"{shown(ast.unparse(node))} is not allowed in the constraint")
        item = self.hyperparameters.get(word)
        if item is None and word not in (self.constants or ()):
            raise self._unknown(word)
        if item is not None and not _is_number(item):
            raise self._wrong(
                f"{shown(word)} is not a number, and can only be compared with its choices, in"
            )
        return (word,)

    def _unknown(self, word: str) -> InputError:
        names = [*self.hyperparameters, *(self.constants or ())]
        place = f"{shown(self.syntax.text)}{one_of(word, names, 'known')}"
        return InputError(f"unknown name {shown(word)} in {place}")

    def _wrong(self, message: str) -> InputError:
        return InputError(f"{message} {shown(self.syntax.text)}")


def _is_number(hyperparameter: Hyperparameter) -> bool:
    return hyperparameter.numeric or all(map(is_number, hyperparameter.choices))


def check_constants(
    constants: Mapping[str, object], hyperparameters: Mapping[str, Hyperparameter]
) -> dict[str, float]:
    """Return constants as finite numbers under names that no hyperparameter has.

    Raises:
        InputError: a number or a name is wrong; `key` names the constant.
    """
    numbers: dict[str, float] = {}
    for name, value in constants.items():
        key = f"constants.{name}"
        keyed(key, check_name, name)
        if name in hyperparameters:
            raise InputError(f"{shown(name)} is a hyperparameter already", key=key)
        if not is_number(value) or not np.isfinite(value):
            raise InputError(f"expected a finite number, got {shown(value)}", key=key)
        numbers[name] = value
    return numbers
