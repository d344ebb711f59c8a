"""Optimizers by name: which there are, their options, and `make`.

A name is a key of `REGISTRY`, one that another package registered under the entry point group
`autorl.optimizers`, or `module:Class`. The last two are subclasses of `BaseOptimizer` that come
from elsewhere (docs/extending.md). Importing this module imports no optimizer.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from autorl.core.plain_text import one_of
from autorl.core.plugins import Plugins
from autorl.core.types import InputError
from autorl.optimizers.base import BaseOptimizer, Problem, SearchKind, Surroundings

if TYPE_CHECKING:
    from autorl.space import Space

REGISTRY: Mapping[str, str] = {
    "asha": "autorl.optimizers.asha:ASHA",
    "bohb": "autorl.optimizers.bohb:BOHB",
    "cmaes": "autorl.optimizers.cmaes_:CMAES",
    "cost_aware": "autorl.optimizers.cost_aware:CostAware",
    "de": "autorl.optimizers.de:DE",
    "dehb": "autorl.optimizers.dehb:DEHB",
    "gp": "autorl.optimizers.gp:GP",
    "grid": "autorl.optimizers.grid:GridSearch",
    "hyperband": "autorl.optimizers.hyperband:Hyperband",
    "mf_pbt": "autorl.optimizers.mf_pbt:MFPBT",
    "nsga2": "autorl.optimizers.nsga2:NSGA2",
    "optuna": "autorl.optimizers.optuna_:Optuna",
    "pb2": "autorl.optimizers.pb2:PB2",
    "pbt": "autorl.optimizers.pbt:PBT",
    "phases": "autorl.optimizers.phases:Phases",
    "random": "autorl.optimizers.random:RandomSearch",
    "rising_bandits": "autorl.optimizers.rising_bandits:RisingBandits",
    "schedule": "autorl.optimizers.schedule:Schedule",
    "smac": "autorl.optimizers.smac_:SMAC",
    "sobol": "autorl.optimizers.sobol:SobolSearch",
    "successive_halving": "autorl.optimizers.hyperband:SuccessiveHalving",
    "tpe": "autorl.optimizers.tpe:TPE",
    "transfer": "autorl.optimizers.transfer:Transfer",
}
OptionField: TypeAlias = dataclasses.Field[object]
STOPPING: Mapping[str, str] = {
    "learned": "autorl.optimizers.learned_stop:LearnedStop",
    "median": "autorl.optimizers.median_stop:MedianStop",
    "overoptimizing": "autorl.optimizers.overoptimizing_stop:OveroptimizingStop",
}
DEFAULT = "tpe"
"""The optimizer of a study that names none, where nothing is known of its algorithm."""
DEFAULT_WITH_PRIOR = "transfer"
"""That of one whose algorithm a landscape or prior file is of."""
PLAIN = "random"
"""The search that optimizers are measured against."""
GROUP = "autorl.optimizers"
"""Entry points under which other packages register subclasses of `BaseOptimizer`."""


def names() -> tuple[str, ...]:
    """List the optimizers of this and other packages, sorted."""
    return tuple(sorted({*REGISTRY, *_PLUGINS.registered()}))


@dataclasses.dataclass(frozen=True)
class OptionHelp:
    """Describes an option to a reader.

    Attributes:
        allowed: a phrase such as "int >= 2".
    """

    name: str
    default: Any
    allowed: str
    help: str


@dataclasses.dataclass(frozen=True)
class Description:
    """Describes an optimizer: its docstring's first paragraph and its options."""

    name: str
    summary: str
    multi_objective: bool
    options: tuple[OptionHelp, ...]


def describe(name: str, folder: str | None = None) -> Description:
    """Describe an optimizer as `autorl list optimizers` prints it.

    Args:
        name: as in a study file.
        folder: where a class of the user's may lie besides what is installed.

    Raises:
        InputError: no such optimizer.
    """
    cls = find(name, folder)
    summary = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    options = [_option_help(cls, field) for field in option_fields(cls)]
    if not cls.partial:
        allowed = f"null or {' or '.join(STOPPING)}"
        options.append(OptionHelp("stop", None, allowed, "stop runs that fall behind, at rungs"))
        for rule in STOPPING:
            stopping = find_stopping(rule)
            when = f"with stop: {rule}: "
            options += [_option_help(stopping, field, when) for field in option_fields(stopping)]
    return Description(name, summary, cls.multi_objective, tuple(options))


def make(
    name: str,
    space: Space,
    *,
    horizon: int,
    budget: float = math.inf,
    n_objectives: int = 1,
    changeable: Iterable[str] = frozenset(),
    initial: Sequence[Mapping[str, object]] = (),
    **options: object,
) -> BaseOptimizer[Any]:
    """Build an optimizer that is ready for its first `ask`.

    Args:
        name: as in a study file.
        space: the search space.
        horizon: steps of a full-length run.
        budget: full-length runs the study can afford.
        n_objectives: values per score.
        changeable: hyperparameters that may change along a chain of segments.
        initial: warm starts, proposed after the default configuration (which is always proposal 0);
            what they leave out has its default value.
        options: of the optimizer; and `stop`, a stopping rule, with its options for optimizers of
            full-length runs.

    Raises:
        InputError: an unknown name or option, a value that is not allowed, an invalid warm start,
            more objectives than the optimizer understands, or a missing package.
    """
    if horizon < 1:
        raise InputError(f"a run needs at least one step, got {horizon}", key="fidelity.steps")
    # A warm start that equals the default, or another one, is trained once.
    starts = tuple(dict.fromkeys([space.default(), *map(space.config, initial)]))
    problem = Problem(space, horizon, budget, n_objectives, frozenset(changeable), starts)
    surroundings = Surroundings(space)
    return build(name, problem, resolved_options(name, options, surroundings))


def resolved_options(
    name: str, options: Mapping[str, Any], surroundings: Surroundings, folder: str | None = None
) -> Mapping[str, Any]:
    """Resolve what options of an optimizer and its stopping rule name elsewhere.

    Args:
        name: as in a study file.
        options: as for `make`.
        surroundings: of the study.
        folder: where a class of the user's may lie besides what is installed.

    Raises:
        InputError: no such optimizer, or what an option names cannot be used.
    """
    for cls in _classes(name, options.get("stop"), folder):
        options = cls.resolved_options(options, surroundings)
    return options


def resolved_names(name: str, stop: object, folder: str | None = None) -> tuple[str, ...]:
    """List the options that `resolved_options` adds.

    Args:
        name: as in a study file.
        stop: the stopping rule, None without.
        folder: where a class of the user's may lie besides what is installed.

    Raises:
        InputError: no such optimizer.
    """
    return tuple(name for cls in _classes(name, stop, folder) for name in cls.resolved)


def _classes(name: str, stop: object, folder: str | None) -> list[type[BaseOptimizer[Any]]]:
    """List the classes of an optimizer and its stopping rule."""
    classes = [find(name, folder)]
    if isinstance(stop, str) and stop in STOPPING and not classes[0].partial:
        classes.append(find_stopping(stop))
    return classes


def build(
    name: str, problem: Problem, options: Mapping[str, object], folder: str | None = None
) -> BaseOptimizer[Any]:
    """Build an optimizer from its options as a study file says them.

    Unlike arguments of `make`, options can have any name here, so that a wrong one is refused.

    Args:
        name: as in a study file.
        problem: what is to be optimized.
        options: as for `make`.
        folder: where a class of the user's may lie besides what is installed.

    Raises:
        InputError: as for `make`.
    """
    cls = find(name, folder)
    if problem.n_objectives > 1 and not cls.multi_objective:
        able = [entry for entry in sorted(REGISTRY) if find(entry).multi_objective]
        message = f"{name} has one objective, got {problem.n_objectives}; use {', '.join(able)}"
        raise InputError(message, key="optimizer.name")
    rule = options.get("stop")
    options = {key: value for key, value in options.items() if key != "stop"}
    if rule is None:
        return cls(problem, _parse(cls, options, name))
    stopping: Any = find_stopping(rule)  # its constructor takes the optimizer inside as well
    if cls.partial or problem.n_objectives > 1:
        why = (
            "it cuts runs itself" if cls.partial else "a stopping rule ranks runs by one objective"
        )
        raise InputError(f"{name} cannot be used with `stop`: {why}", key="optimizer.stop")
    of_rule = option_names(stopping)
    _refuse_unknown(options, sorted(of_rule | option_names(cls)), name)
    of_optimizer = {key: value for key, value in options.items() if key not in of_rule}
    rules = {key: value for key, value in options.items() if key in of_rule}
    made: BaseOptimizer[Any] = stopping(
        problem, _parse(stopping, rules, name), cls(problem, _parse(cls, of_optimizer, name))
    )
    return made


def search_kind(name: str, folder: str | None = None) -> SearchKind:
    """Say what decides the configurations of an optimizer.

    `search` where its class cannot be imported: a study is read where it was not made, and a user's
    own class may not be there.
    """
    try:
        return find(name, folder).search_kind
    except InputError:
        return "search"


def named_of_kind(*kinds: SearchKind) -> tuple[str, ...]:
    """List the optimizers of some kinds that come with the package, sorted."""
    return tuple(name for name in sorted(REGISTRY) if find(name).search_kind in kinds)


def is_slow_to_ask(name: str) -> bool:
    """Say whether an optimizer has a model that is dear to ask."""
    # Only such an optimizer overrides it, so that it can be counted without being asked.
    return find(name).modelled is not BaseOptimizer.modelled


def cuts(
    name: str, horizon: int, folder: str | None = None, /, **options: object
) -> tuple[int, ...]:
    """List the steps where an optimizer or its stopping rule ends segments.

    Args:
        name: as in a study file.
        horizon: steps of a full-length run.
        folder: where a class of the user's may lie besides what is installed.
        options: as for `make`.

    Returns:
        Steps in ascending order; the last is the horizon.

    Raises:
        InputError: an unknown name or stopping rule, or a value that is not allowed.
    """
    cls = find(name, folder)
    rule = options.pop("stop", None)
    if rule is not None and not cls.partial:
        cls = find_stopping(rule)
    # With a rule it alone decides, and options of the optimizer inside are none of its own.
    used = {key: value for key, value in options.items() if key in option_names(cls)}
    return cls.cuts(horizon, _parse(cls, used, name))


def find(name: str, folder: str | None = None) -> type[BaseOptimizer[Any]]:
    """Look up the class behind a name.

    Args:
        name: as in a study file.
        folder: where a class of the user's may lie besides what is installed.

    Raises:
        InputError: no such optimizer, or it cannot be imported.
    """
    if name in REGISTRY:
        return _load(REGISTRY[name])
    cls = _PLUGINS.find(name, folder) if isinstance(name, str) else None
    if cls is None:
        hint = one_of(name, names())
        raise InputError(f"no optimizer {name!r}{hint}", key="optimizer.name")
    return cls


def find_stopping(rule: object) -> type[BaseOptimizer[Any]]:
    """Look up the class of a stopping rule, one of `STOPPING`.

    Raises:
        InputError: no such rule.
    """
    if not isinstance(rule, str) or rule not in STOPPING:
        message = f"no stopping rule {rule!r}; there is {' or '.join(STOPPING)}"
        raise InputError(message, key="optimizer.stop")
    return _load(STOPPING[rule])


def option_names(cls: type[BaseOptimizer[Any]]) -> set[str]:
    """Return the names of a class's options."""
    return {field.name for field in option_fields(cls)}


def _load(target: str) -> type[BaseOptimizer[Any]]:
    """The class of an optimizer or stopping rule of this package, `module:Class`."""
    module, _, attribute = target.partition(":")
    cls: type[BaseOptimizer[Any]] = getattr(importlib.import_module(module), attribute)
    return cls


def _flaw(cls: type[BaseOptimizer[Any]]) -> str:
    """Say why another package's class cannot be used."""
    if not dataclasses.is_dataclass(cls.Options):
        return "needs a frozen dataclass of fields made by `option` as its `Options`"
    for field in option_fields(cls):
        if "help" not in field.metadata:
            return f"has an option {field.name!r} that is not made by `autorl.optimizers.option`"
        # Types are texts until they are looked up, which fails where they were imported for a type
        # checker alone. Defaults are stored with every study, as JSON.
        try:
            typing.get_type_hints(cls.Options)
            json.dumps(field.default)
        except (NameError, TypeError) as error:
            return f"has an option {field.name!r} that cannot be read as data: {error}"
    kinds = typing.get_args(SearchKind)
    if cls.search_kind not in kinds:
        return f"has the search_kind {cls.search_kind!r}: expected {' or '.join(kinds)}"
    if cls.search_kind == "phased_design" and not issubclass(cls, find("phases")):
        return "has the search_kind 'phased_design' and is no subclass of Phases"
    return ""


_PLUGINS: Plugins[BaseOptimizer[Any]] = Plugins(
    GROUP,
    BaseOptimizer,  # type: ignore[type-abstract]  # only subclasses of it are built
    ("optimizer", "autorl.optimizers.BaseOptimizer"),
    key="optimizer.name",
    reserved=lambda name: name in REGISTRY,
    flaw=_flaw,
)


def _parse(cls: type[BaseOptimizer[Any]], options: Mapping[str, object], name: str) -> Any:
    """Make the options dataclass of `cls`, each value checked against its field."""
    fields = {field.name: field for field in option_fields(cls)}
    allowed = [*fields]
    if not cls.partial:
        allowed.append("stop")
    _refuse_unknown(options, allowed, name)
    for key, value in options.items():
        if not _fits(cls, fields[key], value):
            message = f"expected {_allowed(cls, fields[key])}, got {value!r}"
            raise InputError(message, key=f"optimizer.{key}")
    return cls.Options(**options)


def _refuse_unknown(options: Iterable[str], allowed: Sequence[str], name: str) -> None:
    for key in options:
        if key not in allowed:
            hint = one_of(key, allowed, f"the options of {name}")
            raise InputError(f"unknown option{hint}", key=f"optimizer.{key}")


def _option_help(cls: type[BaseOptimizer[Any]], field: OptionField, when: str = "") -> OptionHelp:
    text = when + field.metadata["help"]
    return OptionHelp(field.name, field.default, _allowed(cls, field), text)


def option_fields(cls: type[BaseOptimizer[Any]]) -> tuple[OptionField, ...]:
    return dataclasses.fields(cls.Options)


def option_types(cls: type[BaseOptimizer[Any]], field: OptionField) -> tuple[type, ...]:
    """List the types that an option may have."""
    hint = typing.get_type_hints(cls.Options)[field.name]
    # `isinstance` refuses `Mapping[str, int]`, so of that only `Mapping` is checked here.
    return tuple(typing.get_origin(part) or part for part in typing.get_args(hint) or (hint,))


def _fits(cls: type[BaseOptimizer[Any]], field: OptionField, value: object) -> bool:
    """Tell whether an option can have a value of a study file."""
    types = option_types(cls, field)
    if value is None:
        return NoneType in types
    if isinstance(value, bool):  # a number in Python, but not in a study file
        return bool in types
    if isinstance(value, int | float):
        # People write 1 where a float is expected, so whole numbers are floats too.
        right_type = float in types or (int in types and isinstance(value, int))
        minimum = field.metadata["minimum"]
        maximum = field.metadata["maximum"]
        low = -math.inf if minimum is None else minimum
        high = math.inf if maximum is None else maximum
        return right_type and math.isfinite(value) and low <= value <= high
    return isinstance(value, types) and value in (field.metadata["choices"] or (value,))


def _allowed(cls: type[BaseOptimizer[Any]], field: OptionField) -> str:
    """Phrase what `_fits` accepts."""
    if field.metadata["choices"]:
        return " or ".join(field.metadata["choices"])
    words: dict[type, str] = {NoneType: "null", Mapping: "mapping", Sequence: "list"}
    text = " or ".join(words.get(kind, kind.__name__) for kind in option_types(cls, field))
    minimum = field.metadata["minimum"]
    maximum = field.metadata["maximum"]
    if maximum is not None:
        return f"{text} in [{minimum}, {maximum}]"
    return text if minimum is None else f"{text} >= {minimum}"
