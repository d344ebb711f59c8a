"""Which names an argument of TRL can take, where TRL itself says so only in the middle of training.

Its configuration classes let any text pass as a loss; the trainer compares it with those it knows when it computes the
first one. Those comparisons are read from its source, so that what a newer TRL knows is known here.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from autorl.plain_text import did_you_mean
from autorl.types import InputError

NAMED = ("loss_type", "scale_rewards", "importance_sampling_level", "multi_objective_aggregation")


def check_named(trainer_class: Any, config_class: Any, name: str, value: Any) -> None:
    """Raise `InputError` for a name that TRL's trainer does not know; `value` is as the configuration class left it."""
    known = (
        known_names(trainer_class, config_class, name)
        if name in NAMED and isinstance(value, str)
        else ()
    )
    if known and value not in known:
        hint = did_you_mean(value, known) or f"; it has {', '.join(map(repr, known))}"
        raise InputError(f"TRL's {trainer_class.__name__} has no {value!r}{hint}", key=name)


@lru_cache(maxsize=64)
def known_names(trainer_class: Any, config_class: Any, name: str) -> tuple[str, ...]:
    """The texts that TRL's code compares an argument with; empty where it compares it with none."""
    owners = {owner.__module__ for owner in (*trainer_class.__mro__, *config_class.__mro__)}
    found: set[str] = set()
    for module in sorted(owners):
        if module.partition(".")[0] == "trl":
            found.update(_compared(ast.parse(inspect.getsource(sys.modules[module])), name))
    return tuple(sorted(found))


def _compared(tree: ast.AST, name: str) -> Iterator[str]:
    """Texts that `<anything>.name` is compared with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Attribute) and side.attr == name for side in sides):
                yield from (
                    part.value
                    for side in sides
                    for part in (
                        side.elts if isinstance(side, ast.List | ast.Tuple | ast.Set) else [side]
                    )
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
