"""The contract of a trainer: `Trainer`.

It has a default for everything a trainer need not know.

A trainer of your own subclasses `Trainer`, defines `check` and `train`, and is named in a study
file as `module:Class` or registered under a name of its own by an entry point of the group
`autorl.trainers`; see `docs/extending.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    SeedRole,
    Segment,
    TrainerSpec,
)
from autorl.trainers.info import TrainerInfo

Change = Literal["apply", "rebuild"]


@dataclass(frozen=True)
class FixedValue:
    """A hyperparameter that the options of a trainer fix.

    Attributes:
        place: of the option below `trainer.kwargs`, e.g. `policy_kwargs.net_arch`.
        names: every name a space could search the same hyperparameter by.
        value: what it is fixed to; None where the option does not say it as a value.
        fills_in: whether a configuration that has the hyperparameter replaces this value, so that
            it stands where a condition of the space leaves the hyperparameter out.
    """

    place: str
    names: tuple[str, ...]
    value: Any = None
    fills_in: bool = True


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


@dataclass(frozen=True)
class ShortRun:
    """A run that shows whether a class can be cut and continued.

    Attributes:
        trainer: its name and options.
        config: hyperparameters by name.
        steps: of the run; half of them is a step it can be cut at.
    """

    trainer: TrainerSpec
    config: Config
    steps: int


class AnyChange(Mapping[str, Change]):
    """The `changes` of a trainer that takes every configuration as it comes.

    Every name may change. It cannot be listed (the names are the user's), so ask `name in changes`:
    iteration yields nothing.
    """

    def __getitem__(self, name: str) -> Change:
        return "apply"

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    # Its length is 0, and an empty mapping says that nothing may change.
    def __bool__(self) -> bool:
        return True


class Trainer:
    """Runs segments. Stateless between calls and safe to build in any process.

    Only `train` must be defined. Everything else has a default: no continued run changes a
    hyperparameter, runs can be cut at every step, nothing is refused before a study, and there are
    no models to export.

    Attributes:
        info: what is asked before a trainer is built, of a class named as `module:Class`.
        model_name: what an exported model can be called, such as `model.zip`. Empty: none is
            written.
    """

    info: ClassVar[TrainerInfo] = TrainerInfo()
    model_name: str = ""

    def __init__(self, spec: TrainerSpec | None = None) -> None:
        """Take the options of the study file, `spec.kwargs`.

        The default takes none.
        """

    @property
    def preload(self) -> Sequence[str]:
        """Return modules worth importing once in a fork server."""
        return ()

    @property
    def resumable(self) -> bool:
        """Tell whether a segment can continue from this trainer's checkpoints."""
        return True

    @property
    def changes(self) -> Mapping[str, Change]:
        """Return hyperparameters a continued segment may change, and how.

        `apply`: set on the restored state. `rebuild`: the model is built anew around the restored
        weights. Others must equal the parent's.
        """
        return FrozenMap()

    def check(self, environment: EnvironmentSpec, hyperparameters: Collection[str]) -> None:
        """Raise `InputError` for an environment or hyperparameter name that cannot be used.

        Called before a study, as all `check_*` are.
        """

    def check_tasks(self, environments: Sequence[EnvironmentSpec]) -> None:
        """Raise `InputError` if one of several tasks would not reach the training."""

    def check_configuration(self, config: Config) -> None:
        """Raise `InputError` if no run could train with a configuration.

        Asked of the default and some random ones of the space, and only where a trainer defines it.
        """

    def check_model(self, environment: EnvironmentSpec, config: Config) -> None:
        """Raise `InputError` if the model of a configuration cannot be built.

        Asked once, of the default configuration.
        """

    def short_run(self, environment: EnvironmentSpec, config: Config) -> ShortRun | None:
        """Describe a run of a configuration that a dry run trains.

        The result is None unless options name the class of an algorithm.
        """
        return None

    def check_objective(
        self,
        environment: EnvironmentSpec,
        metrics: Sequence[str],
        choices: Mapping[str, Collection[object]],
    ) -> None:
        """Check the metrics that a study selects by.

        Raises:
            InputError: it should not select by one of them.

        `choices`: the hyperparameters of its space and the values each can take, none for a number.
        """

    def check_mean(self, hyperparameters: Collection[str]) -> None:
        """Raise `InputError` if weights of two agents cannot be averaged (`Segment.second`)."""
        message = "this trainer makes no mean of two agents: expected copy"
        raise InputError(message, key="optimizer.exploit")

    def check_seeds(self, seeds: Sequence[int], role: SeedRole) -> None:
        """Raise `InputError` if one of these seeds cannot be trained with."""

    def fixed_values(self) -> Sequence[FixedValue]:
        """Return every hyperparameter that the trainer's options fix.

        Nested ones are included.
        """
        return ()

    def reported_metrics(self, environment: EnvironmentSpec) -> Collection[str] | None:
        """Return every metric a run can report, None if that is unknown.

        Metrics that only some runs report are included.
        """
        return None

    def data_notes(self, environment: EnvironmentSpec) -> Sequence[str]:
        """Say what a reader must know of the user's data, in lines."""
        return ()

    def sizes(
        self, environment: EnvironmentSpec, episodes: int, hyperparameters: Collection[str]
    ) -> Mapping[str, str]:
        """Say what a checkpoint takes, and an evaluation of `episodes`."""
        return {}

    def align(self, config: Config, step: int, environment: EnvironmentSpec | None = None) -> int:
        """Return the last step <= `step` at which training can be cut.

        No run therefore trains more than it is charged. The result is 0 where the first rollout
        ends later. Two kinds go on to the first cut >= `step`: those whose steps are updates, and
        those that look recorded runs up, of which nothing is known before their first evaluation.

        Args:
            config: the configuration of the run.
            step: nominal step.
            environment: of the run, whose `n_envs` decides where a rollout ends.
        """
        return step

    def train(self, segment: Segment, report: Callable[[Report], None]) -> Outcome:
        """Run one segment.

        Failures of the training itself may be raised: the executor turns them into an `Outcome`.
        """
        # A class of another package that does not define it was refused by `registry._flaw`.
        raise NotImplementedError

    def export_model(
        self, checkpoint: Checkpoint, target: str | Path, *, replace: bool = False
    ) -> ExportedModel:
        """Write the model of a checkpoint for other programs.

        It is called only where `model_name` is not empty.

        Raises:
            InputError: there are no models, or one of the files is there already.
        """
        raise InputError("this trainer has no models to export", key="trainer")

    def export_adapter(self, checkpoint: Checkpoint, target: str | Path) -> ExportedModel:
        """Write the adapter of a checkpoint alone."""
        raise InputError("this trainer has no adapters to export", key="--adapter")

    def load_model(self, checkpoint: Checkpoint) -> Any:
        """Load the model of a checkpoint.

        It is the object of the library that trained it.
        """
        raise InputError("this trainer has no models to load", key="trainer")
