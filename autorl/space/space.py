"""The search space: hyperparameters, when each is active, and which combinations are valid."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autorl.plain_text import shown
from autorl.space import moves
from autorl.space.canonical import canonical_json, jsonable, sha256
from autorl.space.conditions import Condition, check_satisfiable, order, read_condition
from autorl.space.constraints import Compiler, Constraint
from autorl.space.expressions import nearest
from autorl.space.forbidden import Forbidden, read_forbidden
from autorl.space.hyperparameter import Hyperparameter, check_name
from autorl.types import Config, InputError

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace

Rule = Forbidden | Constraint
DEFERRED = (
    "n_envs",
    "horizon",
    "evaluation_interval",
)  # what a study knows and a search space may refer to
MAX_TRIES = 10_000  # of rejection sampling


class Space:
    """A set of valid configurations. Immutable, picklable, NumPy only.

    Args:
        hyperparameters: in the order of the file.
        conditions: child -> expression over its parents; the child is active only where it holds.
        forbidden: combinations `{name: value or list of values}` that are not valid.
        constraints: expressions every valid configuration satisfies (unless they name an inactive hyperparameter).
        constants: numbers that constraints may use by name.

    Attributes:
        names: every hyperparameter, parents before their children, otherwise in the order given. The order of vectors.

    Raises:
        InputError: an inconsistent definition, or a default configuration that is not valid. `key` says where.
    """

    def __init__(
        self,
        hyperparameters: Iterable[Hyperparameter],
        *,
        conditions: Mapping[str, str] | None = None,
        forbidden: Sequence[Mapping[str, Any]] = (),
        constraints: Sequence[str] = (),
        constants: Mapping[str, float] | None = None,
    ) -> None:
        given = _by_name(hyperparameters)
        self._condition_texts = dict(conditions or {})
        self._conditions = _read_conditions(self._condition_texts, given)
        self.names: tuple[str, ...] = order(list(given), self._conditions)
        check_satisfiable(self.names, self._conditions)
        self.hyperparameters: Mapping[str, Hyperparameter] = MappingProxyType(
            {name: given[name] for name in self.names}
        )
        self.constants: Mapping[str, float] = MappingProxyType(
            _read_constants(constants or {}, given)
        )
        self.forbidden: tuple[Forbidden, ...] = tuple(
            _keyed(f"forbidden[{i}]", read_forbidden, clause, given)
            for i, clause in enumerate(forbidden)
        )
        compiler = Compiler(given, self.constants, DEFERRED)
        self.constraints: tuple[Constraint, ...] = tuple(
            _keyed(f"constraints[{i}]", compiler.compile, text)
            for i, text in enumerate(constraints)
        )
        self._rules: tuple[Rule, ...] = (*self.forbidden, *self.constraints)
        self._missing = sorted(frozenset[str]().union(*(rule.missing for rule in self.constraints)))
        self.changeable: frozenset[str] = frozenset(
            name for name in given if given[name].changeable
        )
        if not self._missing:
            self._check_default()

    # Configurations

    def default(self) -> Config:
        """The default configuration: the default of every hyperparameter that is active."""
        self._require_constants()
        return self._active_part(
            {name: hyperparameter.default for name, hyperparameter in self.hyperparameters.items()}
        )

    def sample(self, rng: np.random.Generator) -> Config:
        """A valid configuration, uniform in the unit cube (rejection).

        Raises:
            InputError: none of `MAX_TRIES` draws is valid.
        """
        found = self.try_sample(rng, MAX_TRIES)
        if found is None:
            rules = ", ".join(rule.describe() for rule in self._rules)
            raise InputError(
                f"the space looks empty: none of {MAX_TRIES} random configurations is valid under {rules}"
            )
        return found

    def try_sample(self, rng: np.random.Generator, tries: int) -> Config | None:
        """A valid configuration from at most `tries` uniform draws, or None."""
        self._require_constants()
        for _ in range(tries):
            config = self.from_unit(rng.random(len(self.names)))
            if not self.violated(config):
                return config
        return None

    def is_valid(self, config: Mapping[str, Any]) -> bool:
        """Whether exactly the active hyperparameters are there, each in its domain, and no rule is broken."""
        return self._problem(config) is None

    def check(self, config: Mapping[str, Any]) -> None:
        """Raise `InputError` naming the hyperparameter and the rule, unless `config` is valid."""
        problem = self._problem(config)
        if problem is not None:
            raise InputError(problem[1], key=problem[0])

    def config(self, values: Mapping[str, Any]) -> Config:
        """A valid configuration from values of any origin (YAML, NumPy, a data base): unwrapped, with the types of the
        space, in its order, and with the default wherever an active hyperparameter is not given.

        Raises:
            InputError: an unknown or inactive hyperparameter, a value outside its domain, a broken rule.
        """
        self._require_known(values)
        merged = {
            name: hyperparameter.default for name, hyperparameter in self.hyperparameters.items()
        }
        merged |= {
            name: self.hyperparameters[name].canonical(value) for name, value in values.items()
        }
        config = self._active_part(merged)
        inactive = [name for name in values if name not in config]
        if inactive:
            raise InputError(self._inactive(inactive[0]), key=inactive[0])
        self.check(config)
        return config

    def active(self, config: Mapping[str, Any]) -> frozenset[str]:
        """The hyperparameters that are active given the values of their parents in `config`."""
        seen: dict[str, Any] = {}
        names: list[str] = []
        for name in self.names:
            condition = self._conditions.get(name)
            if condition is None or condition.holds(seen):
                names.append(name)
                if name in config:
                    seen[name] = config[name]
        return frozenset(names)

    def is_active(self, name: str, config: Mapping[str, Any]) -> bool:
        """Whether `name` is active in `config`."""
        return name in self.active(config)

    def violated(self, config: Mapping[str, Any]) -> tuple[Rule, ...]:
        """The forbidden clauses and constraints that `config` breaks."""
        self._require_constants()
        return tuple(rule for rule in self._rules if rule.violated(config))

    # The unit cube

    def to_unit(self, config: Mapping[str, Any]) -> NDArray[np.float64]:
        """Shape (n,): the configuration in the unit cube; NaN where inactive, 0.5 for constants.

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
        """The configuration at `vector`, shape (n,), clipped to the cube.

        Inactive hyperparameters are dropped; an active one at NaN has its default. Every value is in bounds, of its
        type and on its scale; together they may break a forbidden clause or constraint.
        """
        units = np.asarray(vector, dtype=np.float64).tolist()
        assert len(units) == len(self.names), f"expected {len(self.names)} units, got {len(units)}"
        values: dict[str, Any] = {}
        for (name, hyperparameter), unit in zip(self.hyperparameters.items(), units, strict=True):
            condition = self._conditions.get(name)
            if condition is None or condition.holds(values):
                values[name] = (
                    hyperparameter.default if unit != unit else hyperparameter.from_unit(unit)
                )
        return Config(values)

    def decode(
        self, vector: Sequence[float] | NDArray[np.float64], rng: np.random.Generator
    ) -> Config:
        """The valid configuration nearest to `from_unit(vector)`."""
        config = self.from_unit(vector)
        return moves.repair(self, config, rng) if self.violated(config) else config

    def repair(
        self, config: Mapping[str, Any], rng: np.random.Generator, keep: Collection[str] = ()
    ) -> Config:
        """A valid configuration near `config`; see `moves.repair`."""
        self._require_known(config)
        self._require_constants()
        return moves.repair(self, config, rng, keep)

    def perturb(
        self,
        config: Mapping[str, Any],
        rng: np.random.Generator,
        names: Collection[str] | None = None,
        step: float = 0.2,
        resample: float = 0.25,
        factor: float | None = None,
    ) -> Config:
        """A valid neighbour of `config`; only `names` (default: `changeable`) move; see `moves.perturb`."""
        names = self.changeable if names is None else names
        self._require_known(dict.fromkeys(names))
        self._require_known(config)
        self._require_constants()
        return moves.perturb(
            self, config, rng, frozenset(names), step=step, resample=resample, factor=factor
        )

    def place(
        self,
        config: Config,
        values: Mapping[str, Any],
        rng: np.random.Generator,
        names: Collection[str],
    ) -> Config | None:
        """The valid `config` with `values` for some of `names`; None if that breaks a rule; see `moves.place`."""
        return moves.place(self, config, values, rng, frozenset(names))

    # Structure

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """The condition of each hyperparameter that has one."""
        return MappingProxyType(self._conditions)

    @property
    def condition_texts(self) -> Mapping[str, str]:
        """The same as text."""
        return MappingProxyType(self._condition_texts)

    @property
    def has_conditions(self) -> bool:
        return bool(self._conditions)

    @property
    def has_constraints(self) -> bool:
        """Whether there are constraints or forbidden clauses."""
        return bool(self._rules)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names that constraints use and nobody has given yet; see `with_constants`."""
        return tuple(self._missing)

    def with_constants(self, constants: Mapping[str, float]) -> Space:
        """The same space with these numbers for the names that constraints use, such as `{"n_envs": 8}`.

        Names that no constraint uses are ignored.

        Raises:
            InputError: the default configuration breaks a constraint with these numbers.
        """
        used = frozenset[str]().union(*(constraint.constants for constraint in self.constraints))
        new = {name: value for name, value in constants.items() if name in used}
        return Space.from_dict({**self.to_dict(), "constants": {**self.constants, **new}})

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the definition, the order of the hyperparameters included."""
        return sha256({**self.to_dict(), "names": self.names})

    def config_hash(self, config: Mapping[str, Any]) -> str:
        """SHA-256 of a configuration; 1 and 1.0 are the same value of a float."""
        return sha256(
            {name: self.hyperparameters[name].canonical(value) for name, value in config.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """The definition in JSON types, as in a search-space file, schedules expanded."""
        definition: dict[str, Any] = {
            "hyperparameters": {
                name: jsonable(item.to_dict()) for name, item in self.hyperparameters.items()
            },
            "conditions": dict(self._condition_texts),
            "forbidden": [jsonable(clause.to_dict()) for clause in self.forbidden],
            "constraints": [constraint.text for constraint in self.constraints],
            "constants": dict(self.constants),
        }
        return {
            key: value for key, value in definition.items() if value or key == "hyperparameters"
        }

    @classmethod
    def from_dict(cls, definition: Mapping[str, Any]) -> Space:
        """The space a definition describes; the inverse of `to_dict`, and what a search-space file holds.

        Raises:
            InputError: the definition is wrong; `key` says where.
        """
        from autorl.space.yaml_format import read_space

        return read_space(definition)

    def to_yaml(self) -> str:
        """The definition as a search-space file."""
        from autorl.space.yaml_format import write_space

        return write_space(self)

    def to_configspace(self) -> ConfigurationSpace:
        """The same space for libraries that speak ConfigSpace; see `configspace.export_space`."""
        from autorl.space.configspace import export_space

        return export_space(self)

    @classmethod
    def from_configspace(cls, source: ConfigurationSpace) -> Space:
        """The space a ConfigSpace describes; see `configspace.import_space`."""
        from autorl.space.configspace import import_space

        return import_space(source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Space({', '.join(self.names)})"

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return Space.from_dict, (self.to_dict(),)

    def _active_part(self, values: Mapping[str, Any]) -> Config:
        kept: dict[str, Any] = {}
        for name in self.names:
            condition = self._conditions.get(name)
            if name in values and (condition is None or condition.holds(kept)):
                kept[name] = values[name]
        return Config(kept)

    def _problem(self, config: Mapping[str, Any]) -> tuple[str, str] | None:
        for name in config:
            if name not in self.hyperparameters:
                return str(name), f"unknown hyperparameter{nearest(str(name), self.names)}"
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
        broken = self.violated(config)
        return (
            (", ".join(sorted(broken[0].names)), f"breaks the {broken[0].describe()}")
            if broken
            else None
        )

    def _inactive(self, name: str) -> str:
        return f"{shown(name)} is inactive here: it needs {self._condition_texts[name]}"

    def _require_known(self, names: Mapping[str, Any]) -> None:
        for name in names:
            if name not in self.hyperparameters:
                raise InputError(
                    f"unknown hyperparameter{nearest(str(name), self.names)}", key=str(name)
                )

    def _require_constants(self) -> None:
        if self._missing:
            users = [rule.text for rule in self.constraints if rule.missing]
            raise InputError(
                f"the constraint {shown(users[0])} uses {shown(self._missing[0])}, which is not a hyperparameter: "
                f"give it a value under `constants`",
                key="constraints",
            )

    def _check_default(self) -> None:
        config = self.default()
        broken = self.violated(config)
        if not broken:
            return
        values = canonical_json(
            {name: config[name] for name in self.names if name in broken[0].names}
        )
        if self.try_sample(np.random.default_rng(0), MAX_TRIES) is None:
            message = f"no configuration satisfies the {broken[0].describe()}: the space is empty"
        else:
            message = f"the default configuration breaks it ({broken[0].describe()}, defaults {values}): change a default"
        index = self._rules.index(broken[0])
        n_forbidden = len(self.forbidden)
        key = (
            f"forbidden[{index}]" if index < n_forbidden else f"constraints[{index - n_forbidden}]"
        )
        raise InputError(message, key=key)


def _by_name(hyperparameters: Iterable[Hyperparameter]) -> dict[str, Hyperparameter]:
    given: dict[str, Hyperparameter] = {}
    for item in hyperparameters:
        if item.name in given:
            raise InputError("defined twice", key=f"hyperparameters.{item.name}")
        given[item.name] = item
    if not given:
        raise InputError("a search space needs at least one hyperparameter", key="hyperparameters")
    return given


def _read_conditions(
    texts: Mapping[str, str], given: Mapping[str, Hyperparameter]
) -> dict[str, Condition]:
    conditions: dict[str, Condition] = {}
    for child, text in texts.items():
        key = f"conditions.{child}"
        if child not in given:
            raise InputError(
                f"unknown hyperparameter {shown(child)}{nearest(str(child), given)}", key=key
            )
        conditions[child] = _keyed(key, read_condition, text, given)
    return conditions


def _read_constants(
    constants: Mapping[str, Any], given: Mapping[str, Hyperparameter]
) -> dict[str, float]:
    for name, value in constants.items():
        key = f"constants.{name}"
        _keyed(key, check_name, name)
        if name in given:
            raise InputError(f"{shown(name)} is a hyperparameter already", key=key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise InputError(f"expected a finite number, got {shown(value)}", key=key)
    return dict(constants)


def _keyed(key: str, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except InputError as error:
        raise InputError(error.message, key=key) from None
    except RecursionError:
        raise InputError("nested too deeply", key=key) from None
