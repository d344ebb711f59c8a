"""The part of a space where a hyperparameter has one value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from autorl.core.plain_text import shown
from autorl.core.types import Config, InputError
from autorl.space.algorithms import ALGORITHM
from autorl.space.canonical import spelled
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.space import Space
from autorl.space.tree import Comparison, Forbidden, Junction, Rule, Tree


def splitting(space: Space, name: str | None = None) -> str | None:
    """Choose the hyperparameter that splits a space.

    It is categorical, unconditional and in no constraint: `name`, else `algorithm`, else the first
    that others depend on.

    Returns:
        Its name; None when there is none.

    Raises:
        InputError: `name` is not such a hyperparameter.
    """
    constrained = frozenset[str]().union(*(rule.names for rule in space.constraints))
    candidates = [
        key
        for key, hyperparameter in space.hyperparameters.items()
        if hyperparameter.type == "categorical"
        and key not in space.conditions
        and key not in constrained
    ]
    if name is not None and name not in candidates:
        raise InputError(
            "expected an unconditional categorical hyperparameter that no constraint names "
            f"({', '.join(candidates) or 'there is none'}), got {shown(name)}"
        )
    if name is not None or ALGORITHM in candidates:
        return name or ALGORITHM
    parents = frozenset[str]().union(*(rule.names for rule in space.conditions.values()))
    return next((key for key in candidates if key in parents), None)


def restrict(space: Space, name: str, value: object) -> Space:
    """Fix the hyperparameter `name` (see `splitting`) and leave it out.

    Hyperparameters that are never active where it has `value` are left out with it. A configuration
    of `space` with that value, less `name`, is one of the result, and the other way round. A
    default is changed only where the defaults together break a rule.

    Raises:
        InputError: no hyperparameter is left, or the value is forbidden altogether.
    """
    remaining: dict[str, Hyperparameter] = {}
    trees: dict[str, Tree] = {}
    for key, hyperparameter in space.hyperparameters.items():
        if key == name:
            continue
        condition = space.conditions.get(key)
        tree = True if condition is None else _decided(condition.tree, {name: value}, remaining)
        if tree is not False:
            remaining[key] = hyperparameter
        if not isinstance(tree, bool):
            trees[key] = tree
    if not remaining:
        raise InputError(f"nothing is left to search where {name} is {shown(value)}", key=name)
    for key, default in _default(space, name, value).items():
        if key != name and remaining[key].type != "constant":
            remaining[key] = replace(remaining[key], default=default)
    conditions = {key: Rule(_text(tree), tree.renamed(remaining)) for key, tree in trees.items()}
    possible = [_possible(clause, name, value, remaining) for clause in space.forbidden]
    return Space(
        remaining.values(),
        conditions,
        [clause for clause in possible if clause is not None],
        # A rule about a hyperparameter that is never active says nothing.
        [rule for rule in space.constraints if rule.names <= set(remaining)],
        space.constants,
    )


def _possible(
    clause: Forbidden, name: str, value: object, remaining: Mapping[str, Hyperparameter]
) -> Forbidden | None:
    """Leave `name` out of a combination, None if that has become impossible."""
    parts: list[Comparison] = []
    for part in clause.parts:
        if part.parent.name == name:
            if not part.test(value):
                return None
        elif part.parent.name in remaining:
            parts.append(part)
        else:
            return None
    return Forbidden(tuple(parts)).renamed(remaining)


def _default(space: Space, name: str, value: object) -> Config:
    """Find the valid configuration with the value nearest to the defaults."""
    # A generator of its own: the part of a space is the same in every study.
    config = space.repair({**space.defaults, name: value}, np.random.default_rng(0), keep=(name,))
    if config[name] != value:
        raise InputError(f"{shown(value)} is forbidden altogether", key=name)
    return config


def _decided(tree: Tree, values: Mapping[str, object], remaining: Collection[str]) -> Tree | bool:
    """Simplify a condition where some values are fixed.

    A hyperparameter that does not remain is inactive. True and False are conditions that are
    decided.
    """
    if isinstance(tree, Comparison):
        parent = tree.parent.name
        if parent in values:
            return tree.test(values[parent])
        return tree if parent in remaining else False
    assert isinstance(tree, Junction), "a condition computes no numbers"
    parts = [_decided(part, values, remaining) for part in tree.parts]
    deciding = tree.kind == "or"  # one true part decides an `or`, one false part an `and`
    if deciding in [part for part in parts if isinstance(part, bool)]:
        return deciding
    undecided = tuple(part for part in parts if not isinstance(part, bool))
    if not undecided:
        return not deciding
    return undecided[0] if len(undecided) == 1 else Junction(tree.kind, undecided)


def _text(tree: Tree) -> str:
    """Write a condition."""
    if isinstance(tree, Junction):
        return f" {tree.kind} ".join(f"({_text(part)})" for part in tree.parts)
    assert isinstance(tree, Comparison), "a condition computes no numbers"
    literal = tree.values if tree.operator == "in" else tree.values[0]
    return f"{tree.parent.name} {tree.operator} {spelled(literal)}"
