"""Keyword arguments of `autorl.tune` and `autorl.Tuner` as keys of the study file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from autorl.core.seeds import SeedPlan
from autorl.core.types import InputError
from autorl.space import Space, unknown_key
from autorl.space.foreign import foreign_space
from autorl.study.spec.spec import Spec

_SHORT = {
    "env": "environment",
    "runs": "budget.runs",
    "steps": "fidelity.steps",
    "direction": "objective.direction",
    "workers": "executor.workers",
    "stop": "optimizer.stop",
    "rungs": "optimizer.rungs",
}
_OF_OTHERS = {
    "n_trials": "`runs`, or `budget={'configurations': N}`",
    "num_samples": "`runs`, or `budget={'configurations': N}`",
    "n_jobs": "`workers`",
    "timeout": "`budget={'hours': H}`",
    "maximize": "`direction='maximize'`",
    "minimize": "`direction='minimize'`",
    "sampler": "`optimizer`",
    "search_alg": "`optimizer`",
    "pruner": "`stop='median'`",
    "scheduler": "`optimizer` or `stop`",
    "storage_path": "`out`",
    "study_name": "`name`",
}
"""What arguments of Optuna and Ray Tune are called here."""


def study_overrides(options: Mapping[str, object]) -> dict[str, Any]:
    """Read arguments of `tune` as values by dotted key.

    Raises:
        InputError: one is neither an option of `tune` nor a key of the study file.
    """
    check_options(options, {*Spec.model_fields, *_SHORT})
    check_direction(options.get("direction"))
    overrides: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, SeedPlan):
            value = {"tuning": list(value.tuning), "test": list(value.test)}
        key = _SHORT.get(name, name.replace("__", "."))
        # `executor="threads"` beside `workers=4`, which is a key of the same section.
        if name == "executor" and isinstance(value, str):
            key = "executor.name"
        overrides[key] = optimizer_by_name(value) if name == "optimizer" else value
    # A section before the keys in it, which it would replace.
    return dict(sorted(overrides.items(), key=lambda pair: pair[0].count(".")))


def check_options(options: Collection[str], allowed: Collection[str]) -> None:
    """Raise `InputError` for an argument whose first part is not allowed."""
    for name in options:
        # `fidelity__episodes`: Python has no keyword with a dot.
        if name.replace("__", ".").partition(".")[0] in allowed:
            continue
        if name in _OF_OTHERS:
            raise InputError(f"unknown key {name!r}; here it is {_OF_OTHERS[name]}", key=name)
        raise InputError(unknown_key(name, allowed), key=name)


def check_direction(direction: object) -> None:
    """Raise `InputError` for a list of directions.

    It says how several objectives are given.
    """
    if isinstance(direction, list | tuple):
        example = (
            'objective=[{"metric": "a", "direction": "maximize"}, '
            '{"metric": "b", "direction": "minimize"}]'
        )
        raise InputError(
            f"one direction is expected; several objectives are {example}", key="direction"
        )


def space_definition(space: object) -> str | dict[str, Any]:
    """Give a space as a study file holds it.

    Args:
        space: a `Space`, an inline definition, the name of a search space, a
            `ConfigSpace.ConfigurationSpace`, or distributions of Optuna by name.

    Raises:
        InputError: it is none of these, or has something that a search space cannot say.
    """
    foreign = foreign_space(space)
    if foreign is not None:
        return foreign.to_dict()
    if isinstance(space, Space):
        return space.to_dict()
    if isinstance(space, str):
        return space
    if isinstance(space, Mapping):
        _refuse_tuples(space)
        return dict(space)
    raise InputError(
        f"expected a Space, a mapping, a name, a ConfigurationSpace or distributions of Optuna by "
        f"name, got {type(space).__name__}",
        key="space",
    )


def _refuse_tuples(space: Mapping[str, Any]) -> None:
    """Refuse a tuple in the place of a hyperparameter.

    It is bounds to some and choices to others, and a study file would hold it as a list: choices.

    Raises:
        InputError: naming the hyperparameter.
    """
    entries = space.get("hyperparameters", space)
    for name, entry in entries.items() if isinstance(entries, Mapping) else ():
        if isinstance(entry, tuple):
            message = (
                f"{entry!r} is a tuple: write [a, b, ...] for choices, and 'uniform(a, b)', "
                "'log(a, b)' or 'int(a, b)' for bounds"
            )
            raise InputError(message, key=f"space.{name}")


def optimizer_by_name(optimizer: object) -> object:
    """Name an optimizer as a study file does.

    A class becomes its module and name, anything else stays.

    Raises:
        InputError: its module is the program itself, or it is no class of a module.
    """
    if not isinstance(optimizer, type):
        return optimizer
    name = optimizer.__qualname__
    if optimizer.__module__ == "__main__" or not name.isidentifier():
        message = (
            f"the class {name} cannot be found by whoever resumes the study: put it into a "
            "module, and give the class or 'module:Class'"
        )
        raise InputError(message, key="optimizer")
    return f"{optimizer.__module__}:{name}"
