"""The rule for a hyperparameter that is named in two places.

It is an error that names both, never a silent winner.

A default (the library's, the trainer's, the task's) gives way to whatever the study file says. What
the options of a trainer fix and the space searches, or fixes to something else, is refused. So are
two options that disagree.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorl.space import Hyperparameter, Space
from autorl.trainers.contract import FixedValue
from autorl.types import FrozenMap, InputError


def check_fixed_values(fixed: Sequence[FixedValue], space: Space, algorithm: str) -> None:
    """Check that no hyperparameter is fixed twice, or fixed and searched.

    Raises:
        InputError: one is fixed and searched, or fixed twice to different values.

    Args:
        fixed: what the trainer's options fix.
        space: the trainer's own, without the prefix of an algorithm.
        algorithm: whose trainer it is; empty where the study has one.
    """
    section = f"algorithms.{algorithm}." if algorithm else ""
    for value in fixed:
        for name in value.names:
            hyperparameter = space.hyperparameters.get(name)
            # Such a value stands where the condition leaves the hyperparameter out.
            conditional = value.fills_in and name in space.conditions
            if hyperparameter is not None and not conditional:
                _check_against_space(
                    value, hyperparameter, f"{section}space.hyperparameters.{name}", section
                )
    _check_among_themselves(fixed, section)


def _check_against_space(
    value: FixedValue, hyperparameter: Hyperparameter, place: str, section: str
) -> None:
    key = f"{section}trainer.kwargs.{value.place}"
    if hyperparameter.type != "constant":
        message = (
            f"is searched by the space as well, as {place}: "
            "take it out here, or fix it there (`{value: ...}`)"
        )
        raise InputError(message, key=key)
    if not value.fills_in or not _same(value.value, hyperparameter.choices[0]):
        message = (
            f"is fixed to {hyperparameter.choices[0]!r} by the space as well, as {place}: "
            "say it in one place"
        )
        raise InputError(message, key=key)


def _check_among_themselves(fixed: Sequence[FixedValue], section: str) -> None:
    seen: dict[str, FixedValue] = {}
    for value in fixed:
        for name in value.names:
            first = seen.setdefault(name, value)
            agree = value.fills_in and first.fills_in and _same(first.value, value.value)
            if first.place != value.place and not agree:
                message = (
                    f"is fixed by {section}trainer.kwargs.{first.place} as well: "
                    "say it in one place"
                )
                raise InputError(message, key=f"{section}trainer.kwargs.{value.place}")


def _same(first: object, second: object) -> bool:
    """Tell whether two values are equal, lists and tuples alike."""
    # A list of YAML and a tuple of Python are the same value, which `FrozenMap` freezes alike.
    return FrozenMap(x=first) == FrozenMap(x=second)
