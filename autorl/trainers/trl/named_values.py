"""The names an argument of TRL can take.

TRL says so only in the middle of training: its configuration classes let any text pass as a loss,
and the trainer compares it with those it knows
when it computes the first one. Those comparisons are read from its source, so that what a newer TRL
knows is known here.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache

from autorl.plain_text import did_you_mean
from autorl.types import InputError

NAMED = ("loss_type", "scale_rewards", "importance_sampling_level", "multi_objective_aggregation")


def check_named(trainer_class: type, config_class: type, name: str, value: object) -> None:
    """Raise `InputError` for a name that TRL's trainer does not know.

    Args:
        trainer_class: of TRL.
        config_class: of TRL.
        name: of the argument.
        value: as the configuration class left it.
    """
    if name not in NAMED or not isinstance(value, str):
        return
    allowed = names_of_argument(trainer_class, config_class, name)
    if allowed and value not in allowed:
        hint = did_you_mean(value, allowed) or f"; it has {', '.join(map(repr, allowed))}"
        raise InputError(f"TRL's {trainer_class.__name__} has no {value!r}{hint}", key=name)


@lru_cache(maxsize=64)
def names_of_argument(trainer_class: type, config_class: type, name: str) -> tuple[str, ...]:
    """Return the texts that TRL's code compares an argument with."""
    # comparisons are inherited too: GMPO's trainer is a subclass of GRPO's
    owners = {owner.__module__ for owner in (*trainer_class.__mro__, *config_class.__mro__)}
    names: set[str] = set()
    for module in sorted(owners):
        if module.partition(".")[0] == "trl":
            names.update(_compared(ast.parse(inspect.getsource(sys.modules[module])), name))
    return tuple(sorted(names))


def _compared(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the texts that `<anything>.name` is compared with."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        if not any(isinstance(side, ast.Attribute) and side.attr == name for side in sides):
            continue
        for side in sides:
            parts = [side]
            if isinstance(side, ast.List | ast.Tuple | ast.Set):
                parts = side.elts
            for part in parts:
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
