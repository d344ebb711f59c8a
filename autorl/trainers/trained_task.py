"""The task that a configuration trains in.

Its space may change the study's own: `environment.kwargs.NAME` is an argument of the environment,
`environment.wrappers.CLASS.ARGUMENT` that of a wrapper the study names. A run trains in the task
so changed and is evaluated in the study's own, so that configurations can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium as gym

from autorl.core.plain_values import plain
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, freeze
from autorl.trainers.sb3.named_classes import with_arguments
from autorl.trainers.shared import ENVIRONMENT, base_name

_NAME = re.compile(r"environment\.(?:kwargs\.(\w+)|wrappers\.(\w+)\.(\w+))")
_KEY = "environment.wrappers"
SAME_AGENT = "an agent that is evaluated there must be trained on the same"


def of_task(values: Mapping[str, Any]) -> dict[str, Any]:
    """Take what changes the task out of hyperparameters."""
    return {name: value for name, value in values.items() if base_name(name) == ENVIRONMENT}


def beside_task(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of hyperparameters what changes the task."""
    return {name: value for name, value in values.items() if base_name(name) != ENVIRONMENT}


def trained_task(own: EnvironmentSpec, values: Mapping[str, Any]) -> EnvironmentSpec:
    """Return the task that hyperparameters train in.

    Args:
        own: the study's task, which is returned where nothing changes it.
        values: hyperparameters by name.

    Raises:
        InputError: a name is no argument of a task, or the study does not name its wrapper once.
    """
    kwargs = dict(own.kwargs)
    wrappers = [pair for entry in own.wrappers for pair in with_arguments(entry, _KEY)]
    wrapped = False
    for name, value in of_task(values).items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise InputError(
                "expected environment.kwargs.NAME or environment.wrappers.CLASS.ARGUMENT, "
                f"without a schedule, got {name}",
                key="space",
            )
        argument, of_class, of_wrapper = match.groups()
        if argument:
            kwargs[argument] = value
            continue
        fitting = [entry for target, entry in wrappers if target.rpartition(":")[2] == of_class]
        if len(fitting) != 1:
            listed = ", ".join(target for target, _ in wrappers) or "none"
            raise InputError(
                f"{name} needs one wrapper {of_class} in {_KEY}, which has {listed}", key="space"
            )
        fitting[0][of_wrapper] = value
        wrapped = True
    chain = freeze([{target: entry} for target, entry in wrappers]) if wrapped else own.wrappers
    return replace(own, kwargs=FrozenMap(kwargs), wrappers=chain)


def made_of(spec: EnvironmentSpec) -> Any:
    """Return the arguments of an environment, for who reads them back."""
    return plain((spec.kwargs, spec.wrappers))


@contextmanager
def faults_of_space(values: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error of the changed task as one of the space.

    Raises:
        InputError: with the values that change the task.
    """
    try:
        yield
    except InputError as error:
        changes = ", ".join(f"{name} = {value}" for name, value in of_task(values).items())
        raise InputError(f"{changes}: {error.message}", key="space") from error


def check_agent_fits(own: Any, trained: Any) -> None:
    """Check that an agent sees and does the same in two tasks.

    Bounds of what it sees may differ.

    Args:
        own: has the spaces of the study's task.
        trained: has those of the task that hyperparameters train in.

    Raises:
        InputError: the observations or the actions differ.
    """
    for what, alike, space in (
        ("observations", _alike, "observation_space"),
        ("actions", lambda first, second: first == second, "action_space"),
    ):
        first = getattr(own, space)
        second = getattr(trained, space)
        if not alike(first, second):
            message = f"the {what} are {second}, those of the study's own task {first}"
            raise InputError(f"{message}: {SAME_AGENT}", key="space")


def _alike(first: gym.Space[Any], second: gym.Space[Any]) -> bool:
    if isinstance(first, gym.spaces.Dict) and isinstance(second, gym.spaces.Dict):
        if first.spaces.keys() != second.spaces.keys():
            return False
        return all(_alike(part, second[name]) for name, part in first.spaces.items())
    if isinstance(first, gym.spaces.Box) and isinstance(second, gym.spaces.Box):
        return first.shape == second.shape and first.dtype == second.dtype
    return bool(first == second)
