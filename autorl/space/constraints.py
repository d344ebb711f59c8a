"""Constraints between hyperparameters, compiled from text to functions of the values.

A constraint is a truth such as `batch_size <= n_steps * n_envs` or
`not (optimizer == sgd and momentum > 0.9)`: names, numbers, `+ - * / // % **`, comparisons,
`in [...]`, and/or/not, parentheses.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from autorl.plain_text import shown
from autorl.space.canonical import is_number
from autorl.space.expressions import (
    COMPARE,
    FLIPPED,
    SIGNS,
    Operator,
    Syntax,
    Values,
    keyed,
    literal,
    nearest,
    parse,
)
from autorl.space.hyperparameter import Hyperparameter, check_name
from autorl.types import InputError

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


@dataclass(frozen=True)
class Term:
    """A compiled part: a function of the values, and what it yields."""

    kind: Literal["number", "truth"]
    evaluate: Callable[[Values], Any]


@dataclass(frozen=True)
class Constraint:
    """A truth every valid configuration satisfies.

    Where one of its hyperparameters is inactive it says nothing.

    Attributes:
        syntax: as it was parsed, to be compiled again with other constants or names.
        names: the hyperparameters it is about.
        constants: the other names it uses.
        missing: those of them that have no value yet.
    """

    syntax: Syntax
    names: frozenset[str]
    constants: frozenset[str]
    missing: frozenset[str]
    evaluate: Callable[[Values], bool]

    @property
    def text(self) -> str:
        """The constraint as it is written."""
        return self.syntax.text

    def violated(self, config: Values) -> bool:
        """Tell whether `config` breaks it.

        Division by zero, overflow and roots of negative numbers count as broken.
        """
        # An inactive hyperparameter has no value a rule could be about.
        if not all(name in config for name in self.names):
            return False
        try:
            return not self.evaluate(config)
        except ArithmeticError:
            return True

    def describe(self) -> str:
        """Name the rule in a message."""
        return f"constraint {shown(self.text)}"


class Compiler:
    """Compiles constraints to functions of the values, checking names and types.

    Attributes:
        hyperparameters: the names a constraint may use.
        constants: numbers known by name (`n_envs`).
        deferred: names whose values a study gives later.
    """

    def __init__(
        self,
        hyperparameters: Mapping[str, Hyperparameter],
        constants: Mapping[str, float],
        deferred: Collection[str] = DEFERRED,
    ) -> None:
        self.hyperparameters = hyperparameters
        self.constants = constants
        self.deferred = deferred

    def read(self, text: object) -> Constraint:
        """Parse and compile a constraint.

        Raises:
            InputError: no expression, or as for `compile`.
        """
        return self.compile(parse(text, self.hyperparameters))

    def compile(self, syntax: Syntax) -> Constraint:
        """Compile a parsed constraint.

        Raises:
            InputError: an unknown name, a word compared with a number, a value that is no choice.
        """
        term = self._term(syntax, syntax.tree)
        if term.kind != "truth":
            raise InputError(
                f"a constraint is a comparison such as `x <= 2 * y`, got {shown(syntax.text)}"
            )
        names = frozenset(word for word in syntax.words if word in self.hyperparameters)
        if not names:
            raise InputError(f"the constraint {shown(syntax.text)} names no hyperparameter")
        constants = frozenset(
            word
            for word in syntax.words
            if word not in names and (word in self.constants or word in self.deferred)
        )
        return Constraint(syntax, names, constants, constants - set(self.constants), term.evaluate)

    def _term(self, syntax: Syntax, node: ast.AST) -> Term:
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(syntax, node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._of_kind("truth", syntax, node.operand)
            return Term("truth", lambda values: not inner(values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self._of_kind("number", syntax, node.operand)
            return Term("number", lambda values: -inner(values))
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return self._arithmetic(syntax, node, _ARITHMETIC[type(node.op)])
        if isinstance(node, ast.Compare):
            return self._comparison(syntax, node)
        # No bool: `true` is a word. 1e999 is read as infinity.
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int | float)
            and math.isfinite(node.value)
        ):
            number = node.value
            return Term("number", lambda values: number)
        word = syntax.word(node)
        if word is not None:
            return self._name(syntax, word)
        raise InputError(
            f"{shown(ast.unparse(node))} is not allowed in the constraint {shown(syntax.text)}"
        )

    def _name(self, syntax: Syntax, word: str) -> Term:
        hyperparameter = self.hyperparameters.get(word)
        if hyperparameter is not None:
            if not _is_number(hyperparameter):
                raise InputError(
                    f"{shown(word)} is not a number: in {shown(syntax.text)} "
                    "it can only be compared with its choices"
                )
            return Term("number", operator.itemgetter(word))
        if word in self.constants:
            number = self.constants[word]
            return Term("number", lambda values: number)
        # Never called without: a space judges nothing before each name has a value.
        if word in self.deferred:
            return Term("number", operator.itemgetter(word))
        raise InputError(
            f"unknown name {shown(word)} in {shown(syntax.text)}{nearest(word, self._known)}"
        )

    @property
    def _known(self) -> list[str]:
        return [*self.hyperparameters, *self.constants, *self.deferred]

    def _of_kind(
        self, kind: Literal["number", "truth"], syntax: Syntax, node: ast.AST
    ) -> Callable[[Values], Any]:
        term = self._term(syntax, node)
        if term.kind != kind:
            expected = "a comparison" if kind == "truth" else "a number"
            raise InputError(
                f"expected {expected} on each side of an operator in {shown(syntax.text)}"
            )
        return term.evaluate

    def _all_or_any(self, syntax: Syntax, node: ast.BoolOp) -> Term:
        parts = [self._of_kind("truth", syntax, value) for value in node.values]
        if isinstance(node.op, ast.And):
            return Term("truth", lambda values: all(part(values) for part in parts))
        return Term("truth", lambda values: any(part(values) for part in parts))

    def _arithmetic(
        self, syntax: Syntax, node: ast.BinOp, function: Callable[[object, object], object]
    ) -> Term:
        left, right = (self._of_kind("number", syntax, side) for side in (node.left, node.right))
        return Term("number", lambda values: function(left(values), right(values)))

    def _comparison(self, syntax: Syntax, node: ast.Compare) -> Term:
        sides = [node.left, *node.comparators]
        parts = [
            self._pair(syntax, left, compare, right)
            for left, compare, right in zip(sides[:-1], node.ops, sides[1:], strict=True)
        ]
        return Term("truth", lambda values: all(part(values) for part in parts))

    def _pair(
        self, syntax: Syntax, left: ast.AST, compare: ast.cmpop, right: ast.AST
    ) -> Callable[[Values], bool]:
        chosen = self._choice(syntax, left)
        chosen_right = self._choice(syntax, right)
        if isinstance(compare, ast.In | ast.NotIn):
            return self._membership(syntax, left, right, negate=isinstance(compare, ast.NotIn))
        sign = SIGNS.get(type(compare))
        if sign is None:
            raise InputError(f"`is` is not allowed in {shown(syntax.text)}: use == or !=")
        # `adam == optimizer` is `optimizer == adam`.
        if chosen is None and chosen_right is not None:
            chosen = chosen_right
            left, right = right, left
            sign = FLIPPED[sign]
        if chosen is None:
            left_number = self._of_kind("number", syntax, left)
            right_number = self._of_kind("number", syntax, right)
            function = COMPARE[sign]
            return lambda values: function(left_number(values), right_number(values))
        position = self._position(syntax, chosen, literal(syntax, right, self.hyperparameters))
        return _choice_test(chosen, sign, position, syntax)

    def _choice(self, syntax: Syntax, node: ast.AST) -> Hyperparameter | None:
        """Return the hyperparameter `node` names, if its choices are not all numbers."""
        item = self.hyperparameters.get(syntax.word(node) or "")
        return None if item is None or _is_number(item) else item

    def _position(self, syntax: Syntax, chosen: Hyperparameter, value: object) -> int:
        try:
            return chosen.index(value)
        except InputError as error:
            raise InputError(
                f"{error.message} of {chosen.name!r}, in {shown(syntax.text)}"
            ) from None

    def _membership(
        self, syntax: Syntax, left: ast.AST, right: ast.AST, negate: bool
    ) -> Callable[[Values], bool]:
        if not isinstance(right, ast.List | ast.Tuple):
            raise InputError(f"`in` needs a list such as [1, 2] in {shown(syntax.text)}")
        chosen = self._choice(syntax, left)
        if chosen is None:
            number = self._of_kind("number", syntax, left)
            allowed = [self._of_kind("number", syntax, item) for item in right.elts]
            return lambda values: (
                (number(values) in [item(values) for item in allowed]) is not negate
            )
        # By position: a choice may be a list, and True is not 1.
        positions = frozenset(
            self._position(syntax, chosen, literal(syntax, item, self.hyperparameters))
            for item in right.elts
        )
        return lambda values: (chosen.index(values[chosen.name]) in positions) is not negate


def _choice_test(
    chosen: Hyperparameter, sign: Operator, position: int, syntax: Syntax
) -> Callable[[Values], bool]:
    if chosen.type != "ordinal" and sign not in ("==", "!="):
        raise InputError(
            f"{chosen.name!r} has no order: in {shown(syntax.text)} only ==, != and in can be used"
        )
    function = COMPARE[sign]
    return lambda values: function(chosen.index(values[chosen.name]), position)


def _is_number(hyperparameter: Hyperparameter) -> bool:
    return hyperparameter.numeric or all(map(is_number, hyperparameter.choices))


def check_constants(
    constants: Mapping[str, object], hyperparameters: Mapping[str, Hyperparameter]
) -> dict[str, float]:
    """Return them as finite numbers under names that no hyperparameter has.

    Raises:
        InputError: it is not so; `key` names the constant.
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
