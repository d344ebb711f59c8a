"""The core of a search space: parts, validity and the unit cube."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from autorl.core.plain_text import one_of, shown
from autorl.core.types import Config, InputError
from autorl.space.canonical import canonical_json, jsonable, sha256
from autorl.space.hierarchy import active_part, parents_first
from autorl.space.hyperparameter import Hyperparameter
from autorl.space.prior import believed_place
from autorl.space.rules import check_constants
from autorl.space.tree import Forbidden, Rule

MAX_TRIES = 10_000  # of rejection sampling


class SpaceCore:
    """A set of valid configurations, made of parsed parts.

    Immutable, picklable, NumPy only.
    Text, files and ConfigSpace are read by `define_space`, `load_space` and `from_configspace`.

    Args:
        hyperparameters: in the order of vectors, but that parents come before their children.
        conditions: of the hyperparameters that are not always active.
        forbidden: combinations of values that are not valid.
        constraints: what every valid configuration satisfies, unless it names an inactive
            hyperparameter.
        constants: numbers that constraints may use by name.

    Attributes:
        names: every hyperparameter, in the order of vectors.
        hyperparameters: by name, in the same order.
        has_priors: whether any hyperparameter has a prior.
        changeable: hyperparameters that population-based training may alter while a run goes on.
        missing: names in constraints that still need a number: see `with_constants`.

    Raises:
        InputError: a condition in a circle or that never holds, or a default configuration that is
            not valid. `key` names the rule.
    """

    def __init__(
        self,
        hyperparameters: Iterable[Hyperparameter],
        conditions: Mapping[str, Rule],
        forbidden: Sequence[Forbidden] = (),
        constraints: Sequence[Rule] = (),
        constants: Mapping[str, float] | None = None,
    ) -> None:
        self.hyperparameters: Mapping[str, Hyperparameter]
        self.hyperparameters = parents_first(hyperparameters, conditions)
        self.names: tuple[str, ...] = tuple(self.hyperparameters)
        self.conditions: Mapping[str, Rule] = dict(conditions)
        self.forbidden: tuple[Forbidden, ...] = tuple(forbidden)
        self.has_priors = any(item.prior is not None for item in self.hyperparameters.values())
        self.changeable: frozenset[str] = frozenset(
            name for name, item in self.hyperparameters.items() if item.changeable
        )
        self._constrain(constraints, constants or {})

    def _constrain(self, constraints: Sequence[Rule], constants: Mapping[str, float]) -> None:
        """Take on constraints, as far as their numbers are known."""
        self.constraints: tuple[Rule, ...] = tuple(constraints)
        self.constants: Mapping[str, float] = dict(constants)
        self._rules: Mapping[str, Forbidden | Rule] = {
            **{f"forbidden[{place}]": rule for place, rule in enumerate(self.forbidden)},
            **{f"constraints[{place}]": rule for place, rule in enumerate(self.constraints)},
        }
        # Sorted: a set of text has another order in every process, and messages name the first.
        self.missing = tuple(sorted({name for rule in self.constraints for name in rule.missing}))
        # Rules that lack numbers cannot be judged yet: a study gives them, by `with_constants`.
        if not self.missing:
            self._check_default()

    # Configurations

    def default(self) -> Config:
        """Return the default configuration: the default of every hyperparameter that is active."""
        self._require_constants()
        return self.active_part(self.defaults)

    def sample(self, rng: np.random.Generator) -> Config:
        """Draw a valid configuration, at a place of `draw_place`, by rejection.

        Raises:
            InputError: none of `MAX_TRIES` draws is valid.
        """
        config = self.try_sample(rng, MAX_TRIES)
        if config is None:
            rules = ", ".join(rule.describe() for rule in self._rules.values())
            raise InputError(
                f"the space looks empty: none of {MAX_TRIES} random configurations "
                f"is valid under {rules}"
            )
        return config

    def try_sample(self, rng: np.random.Generator, tries: int) -> Config | None:
        """Draw a valid configuration in at most `tries` draws, or None."""
        self._require_constants()
        for _ in range(tries):
            config = self.from_unit(self.draw_place(rng))
            if not self.violated(config):
                return config
        return None

    def draw_place(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw a place in the unit cube, shape (n,).

        It is uniform; with priors every second one is drawn by them, and a search that they
        mislead needs at most twice the draws.
        """
        units = rng.random(len(self.names))
        if self.has_priors and rng.random() < 0.5:
            items = self.hyperparameters.values()
            pairs = zip(items, units.tolist(), strict=True)
            units = np.array([believed_place(item, unit) for item, unit in pairs])
        return units

    def is_valid(self, config: Mapping[str, object]) -> bool:
        """Tell whether `check` accepts `config`."""
        self._require_constants()
        try:
            self.check(config)
        except InputError:
            return False
        return True

    def check(self, config: Mapping[str, object]) -> None:
        """Require exactly the active hyperparameters, in their domains, and every rule kept.

        Raises:
            InputError: it is not so; `key` names the hyperparameters, the message the rule.
        """
        self.require_known(config)
        for name, hyperparameter in self.hyperparameters.items():
            problem = hyperparameter.problem(config[name]) if name in config else None
            if problem:
                raise InputError(problem, key=name)
        active = self.active(config)
        for name in self.names:
            if name in active and name not in config:
                raise InputError("no value given", key=name)
            if name in config and name not in active:
                raise InputError(self._inactive(name), key=name)
        # Last: a rule computes with the values, which are in their domains by now.
        for rule in self.violated(config):
            raise InputError(f"breaks the {rule.describe()}", key=", ".join(sorted(rule.names)))

    def config(self, values: Mapping[str, object]) -> Config:
        """Make a valid configuration of values of any origin.

        They may come from YAML, NumPy or a data base.
        Values are unwrapped, with the types of the space and in its order. An active
        hyperparameter that is not given has its default.

        Raises:
            InputError: an unknown or inactive hyperparameter, a value outside its domain, a broken
                rule.
        """
        self.require_known(values)
        canonical = {
            name: self.hyperparameters[name].canonical(value) for name, value in values.items()
        }
        config = self.active_part(self.defaults | canonical)
        for name in values:
            if name not in config:
                raise InputError(self._inactive(name), key=name)
        self.check(config)
        return config

    def active(self, config: Mapping[str, object]) -> frozenset[str]:
        """Name the hyperparameters that are active, given their parents' values in `config`."""
        part = self.active_part(config)
        return frozenset(
            name
            for name in self.names
            if name not in self.conditions or self.conditions[name].holds(part)
        )

    def active_part(self, values: Mapping[str, object]) -> Config:
        """Keep the values of active hyperparameters, in the order of vectors."""
        return Config(active_part(self.names, self.conditions, values))

    def violated(self, config: Mapping[str, object]) -> tuple[Forbidden | Rule, ...]:
        """List the forbidden combinations and constraints that `config` breaks."""
        self._require_constants()
        return tuple(rule for rule in self._rules.values() if rule.violated(config))

    # The unit cube

    def to_unit(self, config: Mapping[str, object]) -> NDArray[np.float64]:
        """Map a configuration into the unit cube.

        Returns:
            Shape (n,), in the order of `names`: NaN where inactive, 0.5 for constants.

        Raises:
            InputError: an unknown hyperparameter or choice.
        """
        self.require_known(config)
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
        space = copy.copy(self)
        vars(space).pop("hash", None)
        space._constrain(rules, numbers)
        return space

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

    def __deepcopy__(self, memo: object) -> Self:
        return self  # immutable

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of every hyperparameter, active or not."""
        return {name: item.default for name, item in self.hyperparameters.items()}

    def _inactive(self, name: str) -> str:
        return f"{shown(name)} is inactive here: it needs {self.conditions[name].text}"

    def require_known(self, names: Iterable[str]) -> None:
        """Raise `InputError` for a name that no hyperparameter has."""
        for name in names:
            if name not in self.hyperparameters:
                raise InputError(
                    f"unknown hyperparameter{one_of(str(name), self.names, 'known')}", key=str(name)
                )

    def _require_constants(self) -> None:
        if self.missing:
            users = [rule.text for rule in self.constraints if rule.missing]
            raise InputError(
                f"the constraint {shown(users[0])} uses {shown(self.missing[0])}, "
                "which is not a hyperparameter: give it a value under `constants`",
                key="constraints",
            )

    def _check_default(self) -> None:
        config = self.default()
        for key, rule in self._rules.items():
            if not rule.violated(config):
                continue
            values = {name: config[name] for name in self.names if name in rule.names}
            message = (
                f"the default configuration breaks it ({rule.describe()}, defaults "
                f"{canonical_json(values)}): change a default"
            )
            # Two mistakes look alike here. The draws, and so the message, are always the same.
            if self.try_sample(np.random.default_rng(0), MAX_TRIES) is None:
                message = f"no configuration satisfies the {rule.describe()}: the space is empty"
            raise InputError(message, key=key)
