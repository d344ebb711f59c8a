"""Families of tasks: named, reproducible draws of variants of one environment.

    name: cartpole-physics
    environment: CartPole-v1
    purpose: prior              # or examination
    seed: 0
    count: 20
    parameters:                 # hyperparameters of a search space, of `variants.PARAMETERS`
      gravity: {type: float, lower: 5, upper: 20, scale: log}
      length: {type: float, lower: 0.25, upper: 1}

Variant i is a function of name, purpose, seed, i and the parameters: a larger count adds variants
and changes none, and families of other names or purposes draw others. Tasks that build priors and
tasks that judge them must share no variant; `TaskFamily.check_apart` holds that by their hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from autorl.core.numbers import check_number
from autorl.core.plain_text import did_you_mean, listed, one_of, shown
from autorl.core.plain_values import plain
from autorl.core.seeds import digest
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError
from autorl.population.variants import PARAMETERS, Variant, variant
from autorl.space import Space, load_space
from autorl.space.document import read_document

FamilyPurpose: TypeAlias = Literal["prior", "examination"]
PURPOSES = get_args(FamilyPurpose)
_KEYS = ("name", "environment", "purpose", "seed", "count", "parameters")
_ATTEMPTS = 100  # draws for one variant that differs from those before it
_MOST = 100_000


@dataclass(frozen=True)
class TaskFamily:
    """A draw of variants of one environment.

    Attributes:
        name: letters, digits, `.`, `_` and `-`.
        environment: id of an environment of the engine.
        purpose: whether priors are built from it, or they are examined on it.
        seed: of the draw.
        count: how many variants there are, all different.
        space: the parameters and what they are drawn from.
    """

    name: str
    environment: str
    purpose: FamilyPurpose
    seed: int
    count: int
    space: Space

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The variants, in the order they are drawn.

        Raises:
            InputError: a drawn value is not allowed, or there are not `count` different variants.
        """
        drawn: dict[str, Variant] = {}
        for index in range(self.count):
            for attempt in range(_ATTEMPTS):
                candidate = self._drawn(index, attempt)
                # The environment itself is in no family: it is a task of its own.
                if candidate.parameters and candidate.hash not in drawn:
                    drawn[candidate.hash] = candidate
                    break
            else:
                message = f"the parameters have {len(drawn)} different variants, not {self.count}"
                raise InputError(message, key="count")
        return tuple(drawn.values())

    def _drawn(self, index: int, attempt: int) -> Variant:
        key = digest(self.seed, "task family", self.name, self.purpose, index, attempt)
        config = self.space.sample(np.random.Generator(np.random.PCG64(key)))
        return variant(self.environment, config)

    def environments(self, base: EnvironmentSpec | None = None) -> list[EnvironmentSpec]:
        """Return the environments of the variants, otherwise built like `base`."""
        base = base or EnvironmentSpec()
        return [
            replace(base, id=item.id, kwargs=FrozenMap({**base.kwargs, **item.parameters}))
            for item in self.variants
        ]

    @property
    def hash(self) -> str:
        """16 hexadecimal digits, of all that decides the variants but their number."""
        content = [self.name, self.environment, self.purpose, self.seed]
        text = json.dumps([*content, self.space.hash])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def about(self) -> dict[str, Any]:
        """Description of the family in a landscape of one of its variants."""
        return {"name": self.name, "purpose": self.purpose, "seed": self.seed, "hash": self.hash}

    def check_apart(self, hashes: Collection[str], what: str) -> None:
        """Raise `InputError` if a variant is among those with these hashes.

        `what` says whose they are.
        """
        shared = [item.text for item in self.variants if item.hash in hashes]
        if shared:
            raise InputError(
                f"{len(shared)} of its {self.count} variants are among those of {what} "
                f"({listed(shared, 2)}): choose another name or seed",
                key=self.name,
            )


def read_task_family(source: str | Path | Mapping[str, object]) -> TaskFamily:
    """Read a family of tasks from a file or a mapping.

    Raises:
        InputError: a key is missing, unknown or wrong.
    """
    if isinstance(source, Mapping):
        return _family(source)
    document = read_document(source)
    try:
        return _family(document.data)
    except InputError as error:
        raise document.located(error) from None


def _family(data: object) -> TaskFamily:
    if not isinstance(data, Mapping):
        raise InputError(f"expected a mapping with {', '.join(_KEYS)}, got {shown(data)}")
    for key in data:
        if key not in _KEYS:
            raise InputError(f"unknown key{did_you_mean(key, _KEYS)}", key=str(key))
    missing = [key for key in _KEYS if key not in data and key != "seed"]
    if missing:
        raise InputError("is missing", key=missing[0])
    name = data["name"]
    environment = data["environment"]
    purpose = data["purpose"]
    if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"expected letters, digits, _ and -, got {shown(name)}", key="name")
    if environment not in PARAMETERS:
        hint = did_you_mean(environment, PARAMETERS)
        raise InputError(
            f"no environment of the engine{hint} ({', '.join(PARAMETERS)})", key="environment"
        )
    if purpose not in PURPOSES:
        raise InputError(f"expected {' or '.join(PURPOSES)}, got {shown(purpose)}", key="purpose")
    seed = data.get("seed", 0)
    check_number(seed, "seed", 0, 2**63 - 1, whole=True)
    check_number(data["count"], "count", 1, _MOST, whole=True)
    return TaskFamily(
        name=name,
        environment=environment,
        purpose=purpose,
        seed=seed,
        count=data["count"],
        space=_space(environment, data["parameters"]),
    )


def _space(environment: str, definition: object) -> Space:
    """Read the parameters, and check the ends of their ranges."""
    if not isinstance(definition, Mapping) or not definition:
        raise InputError(f"expected a mapping, got {shown(definition)}", key="parameters")
    try:
        space = load_space(plain(definition))
    except InputError as error:
        key = f"parameters.{error.key}" if error.key else "parameters"
        raise InputError(error.message, key=key) from None
    table = PARAMETERS[environment]
    for name, hyperparameter in space.hyperparameters.items():
        key = f"parameters.{name}"
        if name not in table:
            hint = one_of(name, table, f"those of {environment}")
            raise InputError(f"unknown parameter{hint}", key=key)
        for value in hyperparameter.choices or (hyperparameter.lower, hyperparameter.upper):
            table[name].checked(value, key)
    return space
