"""The core of a search space: parts, validity and the unit cube."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from autorl.core.plain_text import one_of, shown
from autorl.core.types import Config, InputError
from autorl.space.canonical import canonical_json, jsonable, sha256
from autorl.space.hierarchy import Hierarchy
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.rules import check_constants
from autorl.space.tree import Forbidden, Rule

MAX_TRIES = 10_000  # of rejection sampling


class SpaceCore:
    """A set of valid configurations, made of parsed parts.

    Immutable, picklable, NumPy only.
    Text, files and ConfigSpace are read by `define_space`, `load_space` and `from_configspace`.

    Args:
        hierarchy: the hyperparameters and when each is active.
        forbidden: combinations of values that are not valid.
        constraints: what every valid configuration satisfies, unless it names an inactive
            hyperparameter.
        constants: numbers that constraints may use by name.

    Attributes:
        names: every hyperparameter, parents before their children, otherwise in the order given:
            the order of vectors.
        hyperparameters: by name, in the same order.
        conditions: of the hyperparameters that have one.
        changeable: hyperparameters that population-based training may alter while a run goes on.

    Raises:
        InputError: the default configuration is not valid. `key` names the rule.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        forbidden: Sequence[Forbidden] = (),
        constraints: Sequence[Rule] = (),
        constants: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.hierarchy = hierarchy
        self.names: tuple[str, ...] = tuple(hierarchy.hyperparameters)
        self.hyperparameters: Mapping[str, Hyperparameter] = MappingProxyType(
            dict(hierarchy.hyperparameters)
        )
        self.conditions: Mapping[str, Rule] = MappingProxyType(dict(hierarchy.conditions))
        self.constants: Mapping[str, float] = MappingProxyType(dict(constants))
        self.forbidden: tuple[Forbidden, ...] = tuple(forbidden)
        self.constraints: tuple[Rule, ...] = tuple(constraints)
        self.changeable: frozenset[str] = frozenset(
            name for name, item in self.hyperparameters.items() if item.changeable
        )
        self._rules: tuple[Forbidden | Rule, ...] = (*self.forbidden, *self.constraints)
        # Sorted: a set of text has another order in every process, and messages name the first.
        self._missing = sorted({name for rule in self.constraints for name in rule.missing})
        # Rules that lack numbers cannot be judged yet: a study gives them, by `with_constants`.
        if not self._missing:
            self._check_default()

    # Configurations

    def default(self) -> Config:
        """Return the default configuration: the default of every hyperparameter that is active."""
        self._require_constants()
        return Config(self.hierarchy.active_part(self._defaults))

    def sample(self, rng: np.random.Generator) -> Config:
        """Draw a valid configuration, uniform in the unit cube, by rejection.

        Raises:
            InputError: none of `MAX_TRIES` draws is valid.
        """
        config = self.try_sample(rng, MAX_TRIES)
        if config is None:
            rules = ", ".join(rule.describe() for rule in self._rules)
            raise InputError(
                f"the space looks empty: none of {MAX_TRIES} random configurations "
                f"is valid under {rules}"
            )
        return config

    def try_sample(self, rng: np.random.Generator, tries: int) -> Config | None:
        """Draw a valid configuration in at most `tries` uniform draws, or None."""
        self._require_constants()
        for _ in range(tries):
            config = self.from_unit(rng.random(len(self.names)))
            if not self.violated(config):
                return config
        return None

    def is_valid(self, config: Mapping[str, object]) -> bool:
        """Tell whether `check` accepts `config`."""
        return self._problem(config) is None

    def check(self, config: Mapping[str, object]) -> None:
        """Require exactly the active hyperparameters, in their domains, and every rule kept.

        Raises:
            InputError: it is not so; `key` names the hyperparameters, the message the rule.
        """
        problem = self._problem(config)
        if problem is not None:
            key, message = problem
            raise InputError(message, key=key)

    def config(self, values: Mapping[str, object]) -> Config:
        """Make a valid configuration of values of any origin.

        They may come from YAML, NumPy or a data base.
        Values are unwrapped, with the types of the space and in its order. An active
        hyperparameter that is not given has its default.

        Raises:
            InputError: an unknown or inactive hyperparameter, a value outside its domain, a broken
                rule.
        """
        self._require_known(values)
        canonical = {
            name: self.hyperparameters[name].canonical(value) for name, value in values.items()
        }
        config = Config(self.hierarchy.active_part(self._defaults | canonical))
        for name in values:
            if name not in config:
                raise InputError(self._inactive(name), key=name)
        self.check(config)
        return config

    def active(self, config: Mapping[str, object]) -> frozenset[str]:
        """Name the hyperparameters that are active, given their parents' values in `config`."""
        return self.hierarchy.active_names(config)

    def is_active(self, name: str, config: Mapping[str, object]) -> bool:
        """Tell whether `name` is active in `config`."""
        return name in self.active(config)

    def violated(self, config: Mapping[str, object]) -> tuple[Forbidden | Rule, ...]:
        """List the forbidden combinations and constraints that `config` breaks."""
        self._require_constants()
        return tuple(rule for rule in self._rules if rule.violated(config))

    # The unit cube

    def to_unit(self, config: Mapping[str, object]) -> NDArray[np.float64]:
        """Map a configuration into the unit cube.

        Returns:
            Shape (n,), in the order of `names`: NaN where inactive, 0.5 for constants.

        Raises:
            InputError: an unknown hyperparameter or choice.
        """
        self._require_known(config)
        vector = np.full(len(self.names), np.nan)
        for position, (name, hyperparameter) in enumerate(self.hyperparameters.items()):
            if name in config:
                vector[position] = hyperparameter.to_unit(config[name])
        return vector

    def from_unit(self, vector: Sequence[float] | NDArray[np.float64]) -> Config:
        """Return the configuration at `vector`, shape (n,), clipped to the cube.

        Inactive hyperparameters are dropped; an active one at NaN has its default. Every value is
        in bounds, of its type and on its scale; together they may break a rule.
        """
        units = np.asarray(vector, dtype=np.float64).tolist()
        assert len(units) == len(self.names), f"expected {len(self.names)} units, got {len(units)}"
        values: dict[str, Any] = {}
        # Parents come first: whether a child is active is decided by then.
        for (name, hyperparameter), unit in zip(self.hyperparameters.items(), units, strict=True):
            condition = self.conditions.get(name)
            if condition is None or condition.holds(values):
                is_nan = unit != unit
                values[name] = hyperparameter.default if is_nan else hyperparameter.from_unit(unit)
        return Config(values)

    # Structure

    @property
    def missing(self) -> tuple[str, ...]:
        """Names in constraints that still need a number: see `with_constants`."""
        return tuple(self._missing)

    def with_constants(self, constants: Mapping[str, float]) -> Self:
        """Give numbers to the names that constraints use, such as `{"n_envs": 8}`.

        Names that no constraint uses are ignored.

        Raises:
            InputError: no finite number, or the default configuration breaks a constraint with it.
        """
        used = {name for constraint in self.constraints for name in constraint.constants}
        added = {name: value for name, value in constants.items() if name in used}
        numbers = {**self.constants, **added}
        check_constants(numbers, self.hyperparameters)
        rules = [
            replace(rule, numbers={name: numbers[name] for name in rule.constants & {*numbers}})
            for rule in self.constraints
        ]
        return type(self)(self.hierarchy, self.forbidden, rules, numbers)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the definition, the order of the hyperparameters included."""
        # JSON for hashes has sorted keys: the order of vectors goes in as a list.
        return sha256({**self.to_dict(), "names": self.names})

    def config_hash(self, config: Mapping[str, object]) -> str:
        """Hash a configuration by SHA-256.

        1 and 1.0 are the same value of a float.
        """
        return sha256(
            {name: self.hyperparameters[name].canonical(value) for name, value in config.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the definition in JSON types, as in a search-space file.

        Schedules are expanded. Hashes are taken over it: what it says of a space never changes.
        """
        definition: dict[str, Any] = {
            "hyperparameters": {
                name: jsonable(item.to_dict()) for name, item in self.hyperparameters.items()
            },
            "conditions": {name: condition.text for name, condition in self.conditions.items()},
            "forbidden": [jsonable(clause.to_dict()) for clause in self.forbidden],
            "constraints": [constraint.text for constraint in self.constraints],
            "constants": dict(self.constants),
        }
        return {
            key: value for key, value in definition.items() if value or key == "hyperparameters"
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpaceCore) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.names)})"

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        parts = (self.hierarchy, self.forbidden, self.constraints, dict(self.constants))
        return type(self), parts

    def __deepcopy__(self, memo: object) -> Self:
        return self  # immutable

    @property
    def _defaults(self) -> dict[str, Any]:
        return {name: item.default for name, item in self.hyperparameters.items()}

    def _problem(self, config: Mapping[str, object]) -> tuple[str, str] | None:
        """Find the first fault of a configuration: (key, message)."""
        try:
            self._require_known(config)
        except InputError as error:
            return str(error.key), error.message
        for name, hyperparameter in self.hyperparameters.items():
            problem = hyperparameter.problem(config[name]) if name in config else None
            if problem:
                return name, problem
        active = self.active(config)
        for name in self.names:
            if name in active and name not in config:
                return name, "no value given"
            if name in config and name not in active:
                return name, self._inactive(name)
        # Last: a rule computes with the values, which are in their domains by now.
        broken = self.violated(config)
        if broken:
            return ", ".join(sorted(broken[0].names)), f"breaks the {broken[0].describe()}"
        return None

    def _inactive(self, name: str) -> str:
        return f"{shown(name)} is inactive here: it needs {self.conditions[name].text}"

    def _require_known(self, names: Mapping[str, object]) -> None:
        for name in names:
            if name not in self.hyperparameters:
                raise InputError(
                    f"unknown hyperparameter{one_of(str(name), self.names, 'known')}", key=str(name)
                )

    def _require_constants(self) -> None:
        if self._missing:
            users = [rule.text for rule in self.constraints if rule.missing]
            raise InputError(
                f"the constraint {shown(users[0])} uses {shown(self._missing[0])}, "
                "which is not a hyperparameter: give it a value under `constants`",
                key="constraints",
            )

    def _check_default(self) -> None:
        config = self.default()
        broken = self.violated(config)
        if not broken:
            return
        rule = broken[0]
        values = canonical_json({name: config[name] for name in self.names if name in rule.names})
        # Two mistakes look alike here. The draws are the same every time, and so is the message.
        if self.try_sample(np.random.default_rng(0), MAX_TRIES) is None:
            message = f"no configuration satisfies the {rule.describe()}: the space is empty"
        else:
            message = (
                f"the default configuration breaks it ({rule.describe()}, defaults {values}): "
                "change a default"
            )
        place = self._rules.index(rule)
        n_forbidden = len(self.forbidden)
        if place < n_forbidden:
            raise InputError(message, key=f"forbidden[{place}]")
        raise InputError(message, key=f"constraints[{place - n_forbidden}]")
