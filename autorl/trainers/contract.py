"""What a trainer may offer beside `autorl.types.Trainer`, for those who ask before a study and after it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from autorl.types import Config, EnvironmentSpec, SeedRole

Change = Literal["apply", "rebuild"]


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
