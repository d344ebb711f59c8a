"""The tree that conditions, forbidden combinations and constraints are read as.

Its leaves compare a hyperparameter with values of its domain, or two computed numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from autorl.core.plain_text import shown
from autorl.space.canonical import canonical_json
from autorl.space.expressions import ORDER, Operator, Values, rename
from autorl.space.hyperparameter import Hyperparameter

Parents: TypeAlias = Mapping[str, Hyperparameter]
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# A number in postfix order: names, numbers and functions of the two numbers before them. It is
# flat, since pickle takes no tree as deep as a long sum.
Formula: TypeAlias = tuple[str | float | Callable[[Any, Any], Any], ...]


@dataclass(frozen=True)
class Comparison:
    """`parent operator value`, or `parent in values`.

    It is false where the parent is inactive.
    """

    parent: Hyperparameter
    operator: Operator
    values: tuple[Any, ...]

    @property
    def names(self) -> frozenset[str]:
        """The name of the parent."""
        return frozenset({self.parent.name})

    def holds(self, values: Values, numbers: Values) -> bool:
        """Tell whether the parent has a value that passes."""
        name = self.parent.name
        return name in values and self.test(values[name])

    def test(self, value: object) -> bool:
        """Tell whether a value of the parent passes.

        Raises:
            InputError: the parent has choices and `value` is not among them.
        """
        values = self.values
        if not self.parent.numeric:
            # By position: that is the order of an ordinal, and to Python True == 1.
            value = self.parent.index(value)
            values = self._positions
        if self.operator in ORDER:
            return _COMPARE[self.operator](value, values[0])
        return (value in values) is (self.operator != "!=")

    def renamed(self, parents: Parents) -> Comparison:
        """Ask the same of another hyperparameter of the same domain."""
        return replace(self, parent=parents[self.parent.name])

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        return tuple(self.parent.index(value) for value in self.values)


@dataclass(frozen=True)
class Relation:
    """Two numbers compared, each computed of hyperparameters and constants."""

    left: Formula
    operator: Operator
    right: Formula

    @property
    def names(self) -> frozenset[str]:
        """The hyperparameters and constants of both sides."""
        return frozenset(step for step in self.left + self.right if isinstance(step, str))

    def holds(self, values: Values, numbers: Values) -> bool:
        """Tell whether the relation holds between two numbers.

        Raises:
            ArithmeticError: a side is not a number, such as 1 / 0.
        """
        left, right = (_computed(side, values, numbers) for side in (self.left, self.right))
        return _COMPARE[self.operator](left, right)

    def renamed(self, parents: Parents) -> Relation:
        """Say the same of hyperparameters of other names."""
        left, right = (
            tuple(
                parents[step].name if isinstance(step, str) and step in parents else step
                for step in side
            )
            for side in (self.left, self.right)
        )
        return Relation(left, self.operator, right)


def _computed(formula: Formula, values: Values, numbers: Values) -> Any:
    stack: list[Any] = []
    for step in formula:
        if isinstance(step, str):
            stack.append(numbers[step] if step in numbers else values[step])
        elif callable(step):
            right = stack.pop()
            stack[-1] = step(stack[-1], right)
        else:
            stack.append(step)
    return stack[0]


@dataclass(frozen=True)
class Junction:
    """All (and), any (or) or none (not) of its parts."""

    kind: Literal["and", "or", "not"]
    parts: tuple[Tree, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names in all parts."""
        return frozenset[str]().union(*(part.names for part in self.parts))

    def holds(self, values: Values, numbers: Values) -> bool:
        """Tell whether as many parts hold as the kind asks for."""
        if self.kind == "and":
            return all(part.holds(values, numbers) for part in self.parts)
        return any(part.holds(values, numbers) for part in self.parts) is (self.kind == "or")

    def renamed(self, parents: Parents) -> Junction:
        """Say the same of hyperparameters of other names."""
        return Junction(self.kind, tuple(part.renamed(parents) for part in self.parts))


Tree: TypeAlias = Comparison | Relation | Junction


@dataclass(frozen=True)
class Rule:
    """A condition or a constraint.

    Attributes:
        text: as the file of the space has it; hashes of spaces are taken over it.
        tree: what has to hold.
        constants: names in the tree that are not hyperparameters.
        numbers: their values, as far as they are known.
    """

    text: str
    tree: Tree
    constants: frozenset[str] = frozenset()
    numbers: Values = field(default_factory=dict)

    @cached_property
    def names(self) -> frozenset[str]:
        """The hyperparameters it is about."""
        return self.tree.names - self.constants

    @property
    def missing(self) -> frozenset[str]:
        """Constants that have no value yet."""
        return self.constants.difference(self.numbers)

    def holds(self, values: Values) -> bool:
        """Tell whether it holds, given the values of active hyperparameters."""
        return self.tree.holds(values, self.numbers)

    def violated(self, config: Values) -> bool:
        """Tell whether `config` breaks it.

        It says nothing where one of its hyperparameters is inactive. Division by zero, overflow and
        roots of negative numbers count as broken.
        """
        if not all(name in config for name in self.names):
            return False
        try:
            return not self.holds(config)
        except ArithmeticError:
            return True

    def renamed(self, parents: Parents) -> Rule:
        """Copy the rule for renamed hyperparameters, looked up by their present names."""
        names = {name: parent.name for name, parent in parents.items()}
        return replace(self, text=rename(self.text, names), tree=self.tree.renamed(parents))

    def describe(self) -> str:
        """Name the rule in a message."""
        return f"constraint {shown(self.text)}"


@dataclass(frozen=True)
class Forbidden:
    """A combination of values no valid configuration has.

    It comes about where all of its comparisons (`in`) hold, so where all their parents are active.
    """

    parts: tuple[Comparison, ...]

    @property
    def names(self) -> frozenset[str]:
        """The hyperparameters it is about."""
        return frozenset(part.parent.name for part in self.parts)

    def violated(self, config: Values) -> bool:
        """Tell whether `config` is a forbidden combination."""
        return all(part.holds(config, {}) for part in self.parts)

    def renamed(self, parents: Parents) -> Forbidden:
        """Forbid the same of other hyperparameters, looked up by the present names."""
        return Forbidden(tuple(part.renamed(parents) for part in self.parts))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a file, where one value needs no list."""
        return {
            part.parent.name: part.values[0] if len(part.values) == 1 else list(part.values)
            for part in self.parts
        }

    def describe(self) -> str:
        """Name the rule in a message."""
        return f"forbidden combination {canonical_json(self.to_dict())}"
