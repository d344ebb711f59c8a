"""Forbidden combinations of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autorl.plain_text import shown
from autorl.space.canonical import canonical_json
from autorl.space.conditions import Comparison
from autorl.space.expressions import Values, nearest
from autorl.space.hyperparameter import Hyperparameter
from autorl.types import InputError


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
        """Tell whether `config` is such a combination."""
        return all(part.holds(config) for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a file, where one value needs no list."""
        return {
            part.parent.name: part.values[0] if len(part.values) == 1 else list(part.values)
            for part in self.parts
        }

    def with_parents(self, parents: Mapping[str, Hyperparameter]) -> Forbidden:
        """Say the same of other hyperparameters, looked up by the present names."""
        return Forbidden(tuple(part.with_parent(parents[part.parent.name]) for part in self.parts))

    def describe(self) -> str:
        """Name the rule in a message."""
        return f"forbidden combination {canonical_json(self.to_dict())}"


def read_forbidden(clause: object, hyperparameters: Mapping[str, Hyperparameter]) -> Forbidden:
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
                f"unknown hyperparameter {shown(name)}{nearest(str(name), hyperparameters)}"
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
