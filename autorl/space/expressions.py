"""The small expression language of search spaces: reading it, and compiling constraints between hyperparameters.

A constraint is a truth such as `batch_size <= n_steps * n_envs` or `not (optimizer == sgd and momentum > 0.9)`: names,
numbers, `+ - * / // % **`, comparisons, `in [...]`, and/or/not, parentheses. Names may contain dots (`ppo.batch_size`).
Words that are not names are choices of the hyperparameter they are compared with (`optimizer == adam`).
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from autorl.space.canonical import canonical_json
from autorl.space.hyperparameter import Hyperparameter
from autorl.types import InputError

Values: TypeAlias = Mapping[str, Any]
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_KEYWORDS = frozenset({"and", "or", "not", "in"})
_TOKEN = r"(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>{names}[^\W\d]\w*(?:\.\w+)*)"
_MARK = "_name_"


@dataclass(frozen=True)
class Syntax:
    """A parsed expression: the tree, in which the i-th word of `words` stands as the name `_name_i`."""

    text: str
    tree: ast.expr
    words: tuple[str, ...]

    def word(self, node: ast.AST) -> str | None:
        """The word `node` is, if it is one."""
        return self.words[int(node.id[len(_MARK) :])] if isinstance(node, ast.Name) else None


def parse(text: Any, names: Collection[str]) -> Syntax:
    """Read an expression in which `names` (longest first) and other words may stand.

    Raises:
        InputError: it is not a string or not an expression.
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"expected an expression such as `x <= 2 * y`, got {text!r}")
    words: list[str] = []

    def mark(match: re.Match[str]) -> str:
        word = match["name"]
        if word is None or word in _KEYWORDS:
            return match[0]
        words.append(word)
        return f"{_MARK}{len(words) - 1}"

    try:
        tree = ast.parse(_tokens(names).sub(mark, text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        raise InputError(f"cannot read the expression {text!r}") from None
    return Syntax(text, tree.body, tuple(words))


def rename(text: str, names: Mapping[str, str]) -> str:
    """`text` with every name in `names` replaced by its new name; quoted words are left alone."""
    return _tokens(names).sub(lambda match: names.get(match[0], match[0]) if match["name"] else match[0], text)


def _tokens(names: Collection[str]) -> re.Pattern[str]:
    unusual = sorted((name for name in names if re.search(r"[/-]", name)), key=len, reverse=True)
    return re.compile(_TOKEN.format(names="".join(rf"{re.escape(name)}(?![\w/.-])|" for name in unusual)))


def nearest(word: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` for the closest of `known`, or an empty string."""
    close = get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def literal(syntax: Syntax, node: ast.AST, known: Collection[str]) -> Any:
    """The value `node` spells: a number, a word or quoted text, or a list of those (as a tuple).

    Raises:
        InputError: it is an expression, or the name of a hyperparameter.
    """
    word = syntax.word(node)
    if word is not None:
        if word in known:
            raise InputError(f"expected a value in {syntax.text!r}, got the hyperparameter {word!r}")
        return _WORDS.get(word.lower(), word)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(literal(syntax, item, known) for item in node.elts)
    raise InputError(f"expected a value such as 3, adam or [1, 2] in {syntax.text!r}")


def _power(base: float, exponent: float) -> float:
    result = float(base) ** float(exponent)
    if isinstance(result, complex):
        raise ArithmeticError("root of a negative number")
    return result


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FLIPPED: Mapping[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.Gt(),
    ast.LtE: ast.GtE(),
    ast.Gt: ast.Lt(),
    ast.GtE: ast.LtE(),
    ast.Eq: ast.Eq(),
    ast.NotEq: ast.NotEq(),
}


@dataclass(frozen=True)
class Term:
    """A compiled part: a function of the values, and whether it yields a number or a truth."""

    kind: Literal["number", "truth"]
    evaluate: Callable[[Values], Any]


@dataclass(frozen=True)
class Constraint:
    """A truth every valid configuration satisfies, unless one of its hyperparameters is inactive.

    Attributes:
        names: the hyperparameters it is about.
        missing: names it needs that are neither hyperparameters nor given constants.
    """

    text: str
    names: frozenset[str]
    missing: frozenset[str]
    evaluate: Callable[[Values], bool]

    def violated(self, config: Values) -> bool:
        """Whether `config` breaks it. Division by zero, overflow and roots of negative numbers count as broken."""
        if not all(name in config for name in self.names):
            return False
        try:
            return not self.evaluate(config)
        except ArithmeticError:
            return True

    def describe(self) -> str:
        return f"constraint {self.text!r}"


class ConstraintCompiler:
    """Turns the text of a constraint into a function of the values, checking names and types on the way.

    Attributes:
        hyperparameters: the names a constraint may use.
        constants: numbers known by name (`n_envs`).
        deferred: names whose values a study gives later.
    """

    def __init__(
        self,
        hyperparameters: Mapping[str, Hyperparameter],
        constants: Mapping[str, float],
        deferred: Collection[str],
    ) -> None:
        self.hyperparameters, self.constants, self.deferred = hyperparameters, constants, deferred

    def compile(self, text: Any) -> Constraint:
        """Compile one constraint.

        Raises:
            InputError: syntax, an unknown name, a word compared with a number, a value that is not a choice.
        """
        syntax = parse(text, self.hyperparameters)
        term = self._term(syntax, syntax.tree)
        if term.kind != "truth":
            raise InputError(f"a constraint is a comparison such as `x <= 2 * y`, got {text!r}")
        names = frozenset(word for word in syntax.words if word in self.hyperparameters)
        if not names:
            raise InputError(f"the constraint {text!r} names no hyperparameter")
        others = frozenset(word for word in syntax.words if word in self.deferred)
        return Constraint(syntax.text, names, others - set(self.constants) - names, term.evaluate)

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
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and math.isfinite(node.value):
            number = node.value
            return Term("number", lambda values: number)
        word = syntax.word(node)
        if word is not None:
            return self._name(syntax, word)
        raise InputError(f"{ast.unparse(node)!r} is not allowed in the constraint {syntax.text!r}")

    def _name(self, syntax: Syntax, word: str) -> Term:
        hyperparameter = self.hyperparameters.get(word)
        if hyperparameter is not None:
            if not _is_number(hyperparameter):
                raise InputError(
                    f"{word!r} is not a number: in {syntax.text!r} it can only be compared with its choices"
                )
            return Term("number", operator.itemgetter(word))
        if word in self.constants:
            number = self.constants[word]
            return Term("number", lambda values: number)
        if word in self.deferred:
            return Term("number", operator.itemgetter(word))
        raise InputError(f"unknown name {word!r} in {syntax.text!r}{nearest(word, self._known)}")

    @property
    def _known(self) -> list[str]:
        return [*self.hyperparameters, *self.constants, *self.deferred]

    def _of_kind(self, kind: Literal["number", "truth"], syntax: Syntax, node: ast.AST) -> Callable[[Values], Any]:
        term = self._term(syntax, node)
        if term.kind != kind:
            wanted = "a comparison" if kind == "truth" else "a number"
            raise InputError(f"expected {wanted} on each side of an operator in {syntax.text!r}")
        return term.evaluate

    def _all_or_any(self, syntax: Syntax, node: ast.BoolOp) -> Term:
        parts = [self._of_kind("truth", syntax, value) for value in node.values]
        if isinstance(node.op, ast.And):
            return Term("truth", lambda values: all(part(values) for part in parts))
        return Term("truth", lambda values: any(part(values) for part in parts))

    def _arithmetic(self, syntax: Syntax, node: ast.BinOp, function: Callable[[Any, Any], Any]) -> Term:
        left, right = (self._of_kind("number", syntax, side) for side in (node.left, node.right))
        return Term("number", lambda values: function(left(values), right(values)))

    def _comparison(self, syntax: Syntax, node: ast.Compare) -> Term:
        sides = [node.left, *node.comparators]
        parts = [
            self._pair(syntax, left, compare, right)
            for left, compare, right in zip(sides[:-1], node.ops, sides[1:], strict=True)
        ]
        return Term("truth", lambda values: all(part(values) for part in parts))

    def _pair(self, syntax: Syntax, left: ast.AST, compare: ast.cmpop, right: ast.AST) -> Callable[[Values], bool]:
        chosen, other = self._choice(syntax, left), self._choice(syntax, right)
        if isinstance(compare, ast.In | ast.NotIn):
            return self._membership(syntax, left, right, negate=isinstance(compare, ast.NotIn))
        if type(compare) not in _ORDER:
            raise InputError(f"`is` is not allowed in {syntax.text!r}: use == or !=")
        if chosen is None and other is not None:
            chosen, left, right, compare = other, right, left, _FLIPPED[type(compare)]
        if chosen is None:
            first, second = (self._of_kind("number", syntax, side) for side in (left, right))
            function = _ORDER[type(compare)]
            return lambda values: function(first(values), second(values))
        position = self._position(syntax, chosen, literal(syntax, right, self.hyperparameters))
        return _choice_test(chosen, compare, position, syntax)

    def _choice(self, syntax: Syntax, node: ast.AST) -> Hyperparameter | None:
        """The hyperparameter `node` names, if its choices are not all numbers."""
        found = self.hyperparameters.get(syntax.word(node) or "")
        return None if found is None or _is_number(found) else found

    def _position(self, syntax: Syntax, chosen: Hyperparameter, value: Any) -> int:
        try:
            return chosen.index(value)
        except InputError as error:
            raise InputError(f"{error.message} of {chosen.name!r}, in {syntax.text!r}") from None

    def _membership(self, syntax: Syntax, left: ast.AST, right: ast.AST, negate: bool) -> Callable[[Values], bool]:
        if not isinstance(right, ast.List | ast.Tuple):
            raise InputError(f"`in` needs a list such as [1, 2] in {syntax.text!r}")
        chosen = self._choice(syntax, left)
        if chosen is None:
            number = self._of_kind("number", syntax, left)
            allowed = [self._of_kind("number", syntax, item) for item in right.elts]
            return lambda values: (number(values) in [item(values) for item in allowed]) is not negate
        picked = frozenset(
            self._position(syntax, chosen, literal(syntax, item, self.hyperparameters)) for item in right.elts
        )
        return lambda values: (chosen.index(values[chosen.name]) in picked) is not negate


def _choice_test(chosen: Hyperparameter, compare: ast.cmpop, position: int, syntax: Syntax) -> Callable[[Values], bool]:
    if chosen.type != "ordinal" and not isinstance(compare, ast.Eq | ast.NotEq):
        raise InputError(f"{chosen.name!r} has no order: in {syntax.text!r} only ==, != and in can be used")
    function, name = _ORDER[type(compare)], chosen.name
    return lambda values: function(chosen.index(values[name]), position)


def _is_number(hyperparameter: Hyperparameter) -> bool:
    return hyperparameter.numeric or all(
        isinstance(choice, int | float) and not isinstance(choice, bool) for choice in hyperparameter.choices
    )


@dataclass(frozen=True)
class Forbidden:
    """A combination no valid configuration has: each named hyperparameter at one of the listed values."""

    clause: Mapping[str, tuple[Any, ...]]
    keys: Mapping[str, frozenset[Any]]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.clause)

    def violated(self, config: Values) -> bool:
        return all(name in config and _value_key(config[name]) in keys for name, keys in self.keys.items())

    def describe(self) -> str:
        inner = {name: list(values) if len(values) > 1 else values[0] for name, values in self.clause.items()}
        return f"forbidden combination {canonical_json(inner)}"

    @classmethod
    def read(cls, clause: Any, hyperparameters: Mapping[str, Hyperparameter]) -> Forbidden:
        """Read `{name: value, other: [value, value]}`. A list that is itself a choice is one value.

        Raises:
            InputError: not a mapping, an unknown name, a value outside the domain.
        """
        if not isinstance(clause, Mapping) or not clause:
            raise InputError(f"expected a mapping such as {{batch_size: 128, n_epochs: [19, 20]}}, got {clause!r}")
        read: dict[str, tuple[Any, ...]] = {}
        for name, values in clause.items():
            if name not in hyperparameters:
                raise InputError(f"unknown hyperparameter {name!r}{nearest(str(name), hyperparameters)}")
            hyperparameter = hyperparameters[name]
            several = isinstance(values, list | tuple) and not hyperparameter.accepts(values)
            read[name] = tuple(_canonical(hyperparameter, value) for value in (values if several else [values]))
            if not read[name]:
                raise InputError(f"{name}: an empty list forbids nothing")
        return cls(read, {name: frozenset(map(_value_key, values)) for name, values in read.items()})


def _canonical(hyperparameter: Hyperparameter, value: Any) -> Any:
    problem = hyperparameter.problem(value)
    if problem:
        raise InputError(f"{hyperparameter.name}: {problem}")
    return value if hyperparameter.numeric else hyperparameter.choices[hyperparameter.index(value)]


def _value_key(value: Any) -> Any:
    return (isinstance(value, bool), value) if not isinstance(value, tuple | Mapping) else canonical_json(value)
