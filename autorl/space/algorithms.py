"""Algorithm choice (CASH, Thornton et al. 2013, arXiv 1208.3719): several spaces compiled to one conditional space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autorl.plain_text import shown
from autorl.space.canonical import frozen
from autorl.space.expressions import rename
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.space import Space
from autorl.types import Config, InputError

ALGORITHM = "algorithm"


def compile_algorithms(spaces: Mapping[str, Space]) -> Space:
    """One space with a categorical `algorithm` (default: the first) and every hyperparameter as `<algorithm>.<name>`,
    active only where its algorithm is chosen. Constants keep their names and are shared.

    Raises:
        InputError: no space, a name with a dot, or one constant with two values.
    """
    if not spaces:
        raise InputError("at least one algorithm is needed", key="algorithms")
    definition: dict[str, Any] = {
        "hyperparameters": {ALGORITHM: Hyperparameter.categorical(ALGORITHM, spaces).to_dict()},
        "conditions": {},
        "forbidden": [],
        "constraints": [],
        "constants": {},
    }
    for algorithm, space in spaces.items():
        if "." in algorithm:
            raise InputError(
                f"the name of an algorithm has no dot, got {shown(algorithm)}",
                key=f"algorithms.{algorithm}",
            )
        _add(definition, algorithm, space)
    return Space.from_dict(definition)


def _add(definition: dict[str, Any], algorithm: str, space: Space) -> None:
    prefixed = {name: f"{algorithm}.{name}" for name in space.names}
    own = space.to_dict()
    for name, entry in own["hyperparameters"].items():
        definition["hyperparameters"][prefixed[name]] = entry
        text = own.get("conditions", {}).get(name)
        chosen = f"{ALGORITHM} == '{algorithm}'"
        definition["conditions"][prefixed[name]] = (
            chosen if text is None else rename(text, prefixed)
        )
    for clause in own.get("forbidden", []):
        definition["forbidden"].append({prefixed[name]: values for name, values in clause.items()})
    definition["constraints"] += [rename(text, prefixed) for text in own.get("constraints", [])]
    for name, value in own.get("constants", {}).items():
        if definition["constants"].setdefault(name, value) != value:
            raise InputError(
                f"the algorithms give {shown(name)} different values", key=f"algorithms.{algorithm}"
            )


def split_algorithm(config: Mapping[str, Any]) -> tuple[str, Config]:
    """The chosen algorithm and its own configuration, without the prefix.

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
