"""Spaces of other libraries, recognised without importing any."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from autorl.core.types import InputError
from autorl.space.configspace_import import from_configspace
from autorl.space.optuna_import import from_optuna
from autorl.space.space import Space


def foreign_space(space: object) -> Space | None:
    """Make a space of a `ConfigurationSpace`, or of Optuna's distributions by name.

    The result is None for anything else. Neither library is imported here: a program with such a
    space has imported it.

    Raises:
        InputError: our search spaces cannot express it.
    """
    configspace = sys.modules.get("ConfigSpace")
    if configspace is not None and isinstance(space, configspace.ConfigurationSpace):
        return from_configspace(space)
    distributions = sys.modules.get("optuna.distributions")
    if distributions is None or not isinstance(space, Mapping):
        return None
    base = distributions.BaseDistribution
    unfit = [name for name, value in space.items() if not isinstance(value, base)]
    if len(unfit) == len(space):
        return None
    if unfit:
        kind = type(space[unfit[0]]).__name__
        raise InputError(
            f"expected a distribution of Optuna like the others, got {kind}", key=str(unfit[0])
        )
    return from_optuna(space)
