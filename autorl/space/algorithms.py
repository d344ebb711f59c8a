"""Algorithm choice: several spaces compiled to one conditional space.

This is the CASH problem of Thornton et al. (2013, arXiv 1208.3719).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autorl.core.plain_text import shown
from autorl.core.types import Config, InputError
from autorl.space.canonical import frozen
from autorl.space.hierarchy import by_name
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.rules import check_constants
from autorl.space.space import Space
from autorl.space.tree import Comparison, Forbidden, Rule

ALGORITHM = "algorithm"


def compile_algorithms(spaces: Mapping[str, Space]) -> Space:
    """Join several spaces under a categorical `algorithm`.

    Its default is the first of them. Every hyperparameter becomes `<algorithm>.<name>`, active only
    where its algorithm is chosen. Constants keep their names and are shared.

    Raises:
        InputError: no space, a name with a dot, or one constant with two values.
    """
    if not spaces:
        raise InputError("at least one algorithm is needed", key="algorithms")
    choice = Hyperparameter.categorical(ALGORITHM, spaces)
    constants = _shared_constants(spaces)
    hyperparameters = [choice]
    conditions: dict[str, Rule] = {}
    forbidden: list[Forbidden] = []
    constraints: list[Rule] = []
    for algorithm, space in spaces.items():
        prefixed = {
            name: replace(hyperparameter, name=f"{algorithm}.{name}")
            for name, hyperparameter in space.hyperparameters.items()
        }
        chosen = Rule(f"{ALGORITHM} == '{algorithm}'", Comparison(choice, "==", (algorithm,)))
        for name, hyperparameter in prefixed.items():
            # A condition needs no `and algorithm == ...`: elsewhere its parents are inactive, so it
            # is false.
            condition = space.conditions.get(name)
            conditions[hyperparameter.name] = (
                chosen if condition is None else condition.renamed(prefixed)
            )
        hyperparameters += prefixed.values()
        forbidden += [clause.renamed(prefixed) for clause in space.forbidden]
        constraints += [rule.renamed(prefixed) for rule in space.constraints]
    check_constants(constants, by_name(hyperparameters))
    return Space(hyperparameters, conditions, forbidden, constraints, constants)


def _shared_constants(spaces: Mapping[str, Space]) -> dict[str, float]:
    """Collect the constants of all spaces.

    Raises:
        InputError: a name of an algorithm with a dot, or one constant with two values.
    """
    constants: dict[str, float] = {}
    for algorithm, space in spaces.items():
        key = f"algorithms.{algorithm}"
        # Names of `a` and of `a.b` would both begin with `a.`.
        if "." in algorithm:
            raise InputError(
                f"the name of an algorithm has no dot, got {shown(algorithm)}", key=key
            )
        for name, value in space.constants.items():
            if constants.setdefault(name, value) != value:
                raise InputError(f"the algorithms give {shown(name)} different values", key=key)
    return constants


def split_algorithm(config: Mapping[str, object]) -> tuple[str, Config]:
    """Return the chosen algorithm and its own configuration, without the prefix.

    Raises:
        InputError: `config` names no algorithm.
    """
    algorithm = frozen(config.get(ALGORITHM))
    if not isinstance(algorithm, str):
        raise InputError("expected the name of an algorithm", key=ALGORITHM)
    prefix = f"{algorithm}."
    return algorithm, Config(
        {name[len(prefix) :]: value for name, value in config.items() if name.startswith(prefix)}
    )
