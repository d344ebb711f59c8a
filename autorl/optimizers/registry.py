"""Optimizers by name: which there are, what options they take, and `make`, which builds one.

A name is a key of `REGISTRY`, or `"module:Class"` for an optimizer of your own (a subclass of `BaseOptimizer`).
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any

from autorl.optimizers.base import BaseOptimizer, Problem, SearchKind
from autorl.plain_text import did_you_mean
from autorl.types import InputError

if TYPE_CHECKING:
    from autorl.space import Space

REGISTRY: Mapping[str, str] = {
    "asha": "autorl.optimizers.asha:ASHA",
    "bohb": "autorl.optimizers.bohb:BOHB",
    "cmaes": "autorl.optimizers.cmaes_:CMAES",
    "cost_aware": "autorl.optimizers.cost_aware:CostAware",
    "de": "autorl.optimizers.de:DE",
    "dehb": "autorl.optimizers.dehb:DEHB",
    "gp": "autorl.optimizers.optuna_:GP",
    "grid": "autorl.optimizers.grid:GridSearch",
    "hyperband": "autorl.optimizers.hyperband:Hyperband",
    "nsga2": "autorl.optimizers.optuna_:NSGA2",
    "pb2": "autorl.optimizers.pb2:PB2",
    "pbt": "autorl.optimizers.pbt:PBT",
    "phases": "autorl.optimizers.phases:Phases",
    "random": "autorl.optimizers.random:RandomSearch",
    "rising_bandits": "autorl.optimizers.rising_bandits:RisingBandits",
    "schedule": "autorl.optimizers.schedule:Schedule",
    "smac": "autorl.optimizers.smac_:SMAC",
    "sobol": "autorl.optimizers.sobol:SobolSearch",
    "successive_halving": "autorl.optimizers.hyperband:SuccessiveHalving",
    "tpe": "autorl.optimizers.optuna_:TPE",
}
STOPPING: Mapping[str, str] = {"median": "autorl.optimizers.median_stop:MedianStop"}


def names() -> tuple[str, ...]:
    """The optimizers that come with the package, sorted."""
    return tuple(sorted(REGISTRY))


@dataclasses.dataclass(frozen=True)
class OptionHelp:
    """An option for a reader: `allowed` is a phrase such as "int >= 2"."""

    name: str
    default: Any
    allowed: str
    help: str


@dataclasses.dataclass(frozen=True)
class Description:
    """An optimizer for a reader: the first paragraph of its docstring and its options."""

    name: str
    summary: str
    multi_objective: bool
    options: tuple[OptionHelp, ...]


def describe(name: str) -> Description:
    """What `autorl optimizers` prints about one optimizer.

    Raises:
        InputError: no such optimizer.
    """
    cls = find(name)
    summary = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    options = [
        OptionHelp(f.name, f.default, _allowed(cls, f), f.metadata["help"]) for f in _fields(cls)
    ]
    if not cls.partial:
        options.append(
            OptionHelp(
                "stop", None, f"null or {_one_of(STOPPING)}", "stop runs that fall behind, at rungs"
            )
        )
        for rule in STOPPING.values():
            stopping = _load(rule)
            options += [
                OptionHelp(
                    f.name, f.default, _allowed(stopping, f), f"with stop: {f.metadata['help']}"
                )
                for f in _fields(stopping)
            ]
    return Description(name, summary, cls.multi_objective, tuple(options))


def make(
    name: str,
    space: Space,
    *,
    horizon: int,
    budget: float = math.inf,
    n_objectives: int = 1,
    changeable: Iterable[str] = frozenset(),
    initial: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> BaseOptimizer[Any]:
    """An optimizer ready for its first `ask`.

    Args:
        name: a registered name or `"module:Class"`.
        space: the search space.
        horizon: steps of a full-length run.
        budget: full-length runs the study can afford.
        n_objectives: values per score.
        changeable: hyperparameters that may change along a chain of segments.
        initial: warm starts, proposed after the default configuration (which is always proposal 0); what they leave out
            has its default value.
        options: of the optimizer; and `stop: median` with its options for optimizers of full-length runs.

    Raises:
        InputError: an unknown name or option, a value that is not allowed, an invalid warm start, more objectives than
            the optimizer understands, or a missing package.
    """
    cls = find(name)
    if horizon < 1:
        raise InputError(f"a run needs at least one step, got {horizon}", key="fidelity.steps")
    if n_objectives > 1 and not cls.multi_objective:
        able = [other for other in names() if find(other).multi_objective]
        raise InputError(
            f"{name} has one objective, got {n_objectives}; use {', '.join(able)}",
            key="optimizer.name",
        )
    starts = tuple(dict.fromkeys([space.default(), *map(space.config, initial)]))
    problem = Problem(space, horizon, budget, n_objectives, frozenset(changeable), starts)
    rule = options.pop("stop", None)
    if rule is None:
        return cls(problem, _parse(cls, options, name))
    return _with_stopping(cls, problem, name, rule, options)


def search_kind(name: str) -> SearchKind:
    """Say what decides the configurations of an optimizer; `search` where its class cannot be read.

    A study is read where it was not made, and a user's own class may not be there.
    """
    try:
        return find(name).search_kind
    except InputError:
        return "search"


def named_of_kind(*kinds: SearchKind) -> tuple[str, ...]:
    """List the optimizers of some kinds that come with the package, sorted."""
    return tuple(name for name in names() if find(name).search_kind in kinds)


def is_slow_to_ask(name: str) -> bool:
    """Say whether an optimizer has a model of full-length runs that `StandIn` can stand in for."""
    return find(name).modelled is not BaseOptimizer.modelled


def cuts(name: str, horizon: int, **options: Any) -> tuple[int, ...]:
    """Steps at which an optimizer, or its stopping rule, ends segments of runs; ascending, the last is the horizon.

    Raises:
        InputError: an unknown name or option, or a value that is not allowed.
    """
    cls, rule = find(name), options.pop("stop", None)
    if rule is not None and not cls.partial:
        cls = _load(STOPPING[rule])
    own = {field.name for field in _fields(cls)}
    return cls.cuts(
        horizon, _parse(cls, {key: value for key, value in options.items() if key in own}, name)
    )


def find(name: str) -> type[BaseOptimizer[Any]]:
    """The class behind a name.

    Raises:
        InputError: no such optimizer.
    """
    target = REGISTRY.get(name, name if isinstance(name, str) and ":" in name else None)
    if target is None:
        hint = did_you_mean(name, names(), f"there are {', '.join(names())}")
        raise InputError(f"no optimizer {name!r}{hint}", key="optimizer.name")
    return _load(target)


def _load(target: str) -> type[BaseOptimizer[Any]]:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        message = f"{target} is not available: the module {error.name!r} cannot be imported"
        raise InputError(message, key="optimizer.name") from error
    if not (isinstance(found, type) and issubclass(found, BaseOptimizer)):
        raise InputError(
            f"{target} is not a subclass of autorl.optimizers.BaseOptimizer", key="optimizer.name"
        )
    return found


def _with_stopping(
    cls: type[BaseOptimizer[Any]],
    problem: Problem,
    name: str,
    rule: Any,
    options: Mapping[str, Any],
) -> BaseOptimizer[Any]:
    if rule not in STOPPING:
        raise InputError(
            f"no stopping rule {rule!r}; there is {_one_of(STOPPING)}", key="optimizer.stop"
        )
    if cls.partial or problem.n_objectives > 1:
        why = (
            "it cuts runs itself" if cls.partial else "a stopping rule ranks runs by one objective"
        )
        raise InputError(f"{name} cannot be used with `stop`: {why}", key="optimizer.stop")
    stopping: Any = _load(STOPPING[rule])
    own = {field.name for field in _fields(stopping)}
    known = tuple(sorted(own | {field.name for field in _fields(cls)}))
    _refuse_unknown(options, known, name)
    inner = cls(
        problem, _parse(cls, {key: value for key, value in options.items() if key not in own}, name)
    )
    optimizer = stopping(
        problem, _parse(stopping, {key: options[key] for key in options if key in own}, name), inner
    )
    assert isinstance(optimizer, BaseOptimizer)
    return optimizer


def _parse(cls: type[BaseOptimizer[Any]], options: Mapping[str, Any], name: str) -> Any:
    """The options dataclass of `cls`, each value checked against its field."""
    fields = {field.name: field for field in _fields(cls)}
    _refuse_unknown(options, (*fields, *(() if cls.partial else ("stop",))), name)
    for key, value in options.items():
        if not _fits(cls, fields[key], value):
            raise InputError(
                f"expected {_allowed(cls, fields[key])}, got {value!r}", key=f"optimizer.{key}"
            )
    return cls.Options(**options)


def _refuse_unknown(options: Iterable[str], known: Sequence[str], name: str) -> None:
    for key in options:
        if key not in known:
            allowed = (
                f"the options of {name} are {', '.join(known)}"
                if known
                else f"{name} has no options"
            )
            raise InputError(
                f"unknown option{did_you_mean(key, known, allowed)}", key=f"optimizer.{key}"
            )


def _one_of(choices: Iterable[str]) -> str:
    return " or ".join(choices)


def _fields(cls: type[BaseOptimizer[Any]]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls.Options)


def _types(cls: type[BaseOptimizer[Any]], field: dataclasses.Field[Any]) -> tuple[type, ...]:
    hint = typing.get_type_hints(cls.Options)[field.name]
    return tuple(typing.get_origin(part) or part for part in typing.get_args(hint) or (hint,))


def _fits(cls: type[BaseOptimizer[Any]], field: dataclasses.Field[Any], value: Any) -> bool:
    types = _types(cls, field)
    if value is None:
        return NoneType in types
    if isinstance(value, bool) and bool not in types:
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        minimum, maximum = field.metadata["minimum"], field.metadata["maximum"]
        inside = (minimum is None or value >= minimum) and (maximum is None or value <= maximum)
        return (
            inside
            and math.isfinite(value)
            and (float in types or (int in types and isinstance(value, int)))
        )
    return isinstance(value, types) and value in (field.metadata["choices"] or (value,))


def _allowed(cls: type[BaseOptimizer[Any]], field: dataclasses.Field[Any]) -> str:
    """A phrase for what `_fits` accepts."""
    if field.metadata["choices"]:
        return _one_of(field.metadata["choices"])
    words: dict[type, str] = {NoneType: "null", Mapping: "mapping"}
    text = " or ".join(words.get(kind, kind.__name__) for kind in _types(cls, field))
    minimum, maximum = field.metadata["minimum"], field.metadata["maximum"]
    bounds = (
        f" in [{minimum}, {maximum}]"
        if maximum is not None
        else f" >= {minimum}"
        if minimum is not None
        else ""
    )
    return text + bounds
