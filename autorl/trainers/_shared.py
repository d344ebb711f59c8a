"""What several trainers need: option checking, module look-up, costs, and the rules of a continued segment."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from autorl.plain_text import did_you_mean, listed
from autorl.types import Config, EnvironmentSpec, FrozenMap, InputError, Report, SeedRole, Segment

Change = Literal["apply", "rebuild"]


class Diverged(BaseException):
    """Leaves the training of a user at the first metric that is not finite; no `except Exception` may swallow it."""


@runtime_checkable
class KnowsSeeds(Protocol):
    """A trainer that cannot train with every seed."""

    def check_seeds(self, seeds: Sequence[int], role: SeedRole) -> None:
        """Raise `InputError` if one of these seeds cannot be used. Called before a study."""
        ...


@dataclass(frozen=True)
class FixedValue:
    """A hyperparameter that the options of a trainer fix.

    Attributes:
        place: of the option below `trainer.kwargs`, e.g. `policy_kwargs.net_arch`.
        names: every name a space could search the same hyperparameter by.
        value: what it is fixed to; None where the option does not say it as a value.
        fills_in: whether a configuration that has the hyperparameter replaces this value, so that it stands where a
            condition of the space leaves the hyperparameter out.
    """

    place: str
    names: tuple[str, ...]
    value: Any = None
    fills_in: bool = True


@runtime_checkable
class KnowsFixedValues(Protocol):
    """A trainer whose options can fix hyperparameters."""

    def fixed_values(self) -> Sequence[FixedValue]:
        """Every hyperparameter that the trainer's options fix, nested ones included."""
        ...


@runtime_checkable
class KnowsMetrics(Protocol):
    """A trainer that can say what it will measure."""

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str]:
        """Every metric a run can report, those included that only some runs do. Called before a study."""
        ...


@runtime_checkable
class KnowsObjectives(Protocol):
    """A trainer some of whose metrics are no measure of success."""

    def check_objective(
        self,
        environment: EnvironmentSpec,
        metrics: Sequence[str],
        choices: Mapping[str, Collection[Any]],
    ) -> None:
        """Raise `InputError` if a study should not select by one of these metrics. Called before a study.

        `choices` are the hyperparameters of its space and the values each can take, none for a number.
        """
        ...


@runtime_checkable
class KnowsConfigurations(Protocol):
    """A trainer that can tell which configurations its library refuses."""

    def check_configuration(self, config: Config) -> None:
        """Raise `InputError` if no run could train with a configuration. Called before a study, of some of them."""
        ...


@runtime_checkable
class KnowsData(Protocol):
    """A trainer that reads data of the user's."""

    def data_notes(self, environment: EnvironmentSpec) -> Sequence[str]:
        """What a reader must know of the data, each in a line. Called before a study."""
        ...


class AnyChange(Mapping[str, Change]):
    """The `changes` of a trainer that hands the whole configuration on at each segment: every name may change.

    It cannot be listed (the names are the user's), so ask `name in changes`; iteration yields nothing.
    """

    def __getitem__(self, name: str) -> Change:
        return "apply"

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class ExportedModel:
    """A model written for other programs.

    Attributes:
        path: the file or folder that is the model.
        kind: what reads it, e.g. `stable_baselines3.PPO`.
        beside: other files written, to be loaded with it.
        hyperparameters: where those in the model come from; empty where a model holds none.
        notes: what else somebody who trains it further has to know.
    """

    path: Path
    kind: str
    beside: tuple[Path, ...] = ()
    hyperparameters: str = ""
    notes: tuple[str, ...] = ()


ZIP_IS_A_PROGRAM = "such a file is a program: whoever loads it runs what it says (docs/security.md)"
"""A note of every exported zip: Stable-Baselines3's format holds pickles."""


def zip_target(file: str | Path, *, replace: bool, beside: Sequence[str] = ()) -> Path:
    """The name of a zip to write, its folder made; `beside` are the endings of files written with it.

    Raises:
        InputError: one of the files is there already and may not be replaced.
    """
    target = Path(file)
    target = target if target.suffix == ".zip" else target.with_name(target.name + ".zip")
    for path in (target, *(target.with_suffix(ending) for ending in beside)):
        if os.path.lexists(path) and not replace:
            raise InputError("is there already: give another name, or --replace it", file=str(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=str(target)) from error
    return target


def check_names(given: Iterable[str], allowed: Collection[str], what: str, key: str) -> None:
    """Raise `InputError` for the first of `given` that is not in `allowed`."""
    for name in given:
        if name not in allowed:
            hint = did_you_mean(name, allowed) or f"; allowed: {', '.join(sorted(allowed))}"
            raise InputError(f"unknown {what} {name!r}{hint}", key=key)


def base_name(name: str) -> str:
    """The hyperparameter a schedule part belongs to: `learning_rate` for `learning_rate.end`."""
    for suffix in (".shape", ".end"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def check_continuation(
    parent: Mapping[str, Any], config: Config, changes: Mapping[str, Change]
) -> None:
    """Raise `InputError` if `config` differs from its parent's in a hyperparameter that cannot change in training."""
    for name in sorted({*parent, *config}):
        same = FrozenMap(x=parent.get(name)) == FrozenMap(x=config.get(name)) and (
            name in parent
        ) == (name in config)
        if not same and base_name(name) not in changes:
            raise InputError(
                f"cannot change during training (from {parent.get(name)!r} to {config.get(name)!r}); it is fixed "
                "when the run starts",
                key=name,
            )


def check_start(segment: Segment, resumable: bool = True) -> None:
    """Raise `InputError` if the segment asks to start where this trainer cannot: past 0 without a checkpoint."""
    if segment.parent is not None and not resumable:
        raise InputError(
            f"trainer {segment.trainer.name!r} cannot continue from a checkpoint as configured; train from step 0"
        )
    if segment.parent is None and segment.start:
        raise InputError(
            f"segment {segment.id!r} starts at step {segment.start} without a checkpoint"
        )


def check_rollout(factors: Mapping[str, int], segment: Segment) -> None:
    """Raise `InputError` if one rollout is longer than a whole run: nothing would be trained.

    Args:
        factors: names and values whose product is the length of a rollout in environment steps.
        segment: the segment to be trained.
    """
    length = math.prod(factors.values())
    if length > segment.horizon:
        product = " x ".join(f"{name} {value:,}" for name, value in factors.items())
        raise InputError(
            f"a rollout, {product} = {length:,} steps, is longer than a run, {segment.horizon:,} steps: it would never "
            "train; give a run more steps (fidelity.steps) or a rollout fewer"
        )


class Clock:
    """Wall-clock seconds since it was made, and the cost of a segment."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def cost(self, environment_steps: int) -> dict[str, float]:
        return {
            "environment_steps": environment_steps,
            "wall_seconds": time.perf_counter() - self._began,
        }


def not_finite(report: Report) -> str:
    """Names and values of the metrics of `report` that are NaN or infinite; empty if all are finite."""
    return listed(
        [f"{name} = {value}" for name, value in report.metrics.items() if not math.isfinite(value)]
    )


@contextmanager
def module_path(*folders: str) -> Iterator[None]:
    """`folders` (default: the working folder) at the head of the module search path while the block runs."""
    added = [str(Path(folder).resolve()) for folder in folders or (".",)]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)


def search_folders(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The option `path`: the folder or folders a trainer looks for the user's modules in; empty = working folder."""
    path = kwargs.get("path", ())
    return (path,) if isinstance(path, str) else tuple(path)
