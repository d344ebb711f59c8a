"""Facts about a trainer before one is built: `TrainerInfo`.

No other room knows a trainer by its name. Whatever differs between trainers (what they count as a
step, where their segments run, how their configurations print) is said by an object of this class.
The trainers of the package are described in `autorl.trainers.families`; one of your own sets
`Trainer.info`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from autorl.core.types import (
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Resources,
    StepUnit,
    TrainerSpec,
)

Executor: TypeAlias = Literal["processes", "in_process", "threads"]


@dataclass(frozen=True)
class TrainedRun:
    """A configuration, what trained it and how far.

    Attributes:
        trainer: its name and options.
        config: hyperparameters by name.
        horizon: steps of a full run, over which schedules go.
        end: the step to train to.
        environment: id and options, without what is at its default.
    """

    trainer: TrainerSpec
    config: Mapping[str, Any]
    horizon: int
    end: int
    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Preset:
    """Hyperparameters that others publish for an environment.

    They are in the words of a study file.

    Attributes:
        name: of the entry.
        steps: of a full run.
        values: hyperparameters by name; a schedule as `x`, `x.shape` and `x.end`.
        policy: the option `policy` of the trainer, None where the entry has none.
        environment: `n_envs`, `normalize`, `wrappers` and `kwargs`, as far as the entry has them.
    """

    name: str
    steps: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Arguments:
    """A configuration in the words of the library that trains it.

    Attributes:
        values: arguments by name, to be written as keyword arguments or flags.
        notes: what is no argument, such as a schedule, each in a phrase.
        code: the arguments as Python code where values alone cannot say them; else empty.
    """

    values: Mapping[str, Any]
    notes: Sequence[str] = ()
    code: str = ""


class TrainerInfo:
    """Describes a trainer, or a family of them, without importing its libraries.

    Attributes:
        description: one line for `autorl list trainers`.
        target: of a trainer of this package, the `module:function` that makes it of its options.
        extra: the extra of this package that brings its libraries.
        needs: modules that must be importable.
        step_unit: what it counts as a step; None: that is the user's affair.
        executor: where segments run unless the study file says otherwise: worker processes, the
            driver's process (for trainers that look a value up), or threads (for compiled ones that
            hold no interpreter lock; there the study file can only choose `in_process` instead);
            `executor_for` may say otherwise for some environments.
        of_user: whether it runs the user's code, which is looked for beside the study file.
        replays_landscape: whether it answers from a landscape, its option `landscape`.
        takes_n_envs: whether `n_envs` is a hyperparameter as well as a key of the environment.
        takes_task: whether hyperparameters may change the task trained in (`trained_task`).
        takes_start: whether its runs can begin from a policy, `TrainerSpec.start`.
        estimates_by_training: whether a few runs trained here tell what many cost.
        packages: whose versions a session records beside those every study does.
        default_metric: of an objective that names none.
        most_gpus: that a segment can train on: 0 without code for a GPU, None where the user's code
            decides it.
    """

    description: str = ""
    target: str = ""
    extra: str | None = None
    needs: tuple[str, ...] = ()
    step_unit: StepUnit | None = None
    executor: Executor = "processes"
    of_user: bool = False
    replays_landscape: bool = False
    takes_n_envs: bool = False
    takes_task: bool = False
    takes_start: bool = False
    estimates_by_training: bool = False
    packages: tuple[str, ...] = ()
    default_metric: str | None = None
    most_gpus: float | None = None

    def __init__(self, description: str | None = None) -> None:
        if description is not None:
            self.description = description

    def check_installed(self, name: str) -> None:
        """Raise `InputError` where a module is missing that the trainer `name` needs."""
        # Only looked for, not imported: that takes seconds for torch.
        missing = [module for module in self.needs if importlib.util.find_spec(module) is None]
        if missing:
            how = f': pip install "autorl[{self.extra}]"' if self.extra else ""
            raise InputError(f"trainer {name!r} needs {', '.join(missing)}{how}", key="trainer")

    def default_sections(
        self, names: Collection[str], environment: str | None, kwargs: Mapping[str, object] | None
    ) -> dict[str, Any]:
        """Return sections a study file may leave out, by their key.

        Args:
            names: of the trainers of the study, all of this family.
            environment: its id, where the study file says one.
            kwargs: its options, where the study file gives a mapping.
        """
        return {}

    def executor_for(self, environment: str | None) -> Executor:
        """Say where segments run unless the study file says otherwise.

        Args:
            environment: its id; None where the study has none.
        """
        return self.executor

    def full_id(self, environment: str) -> str:
        """Return an environment's id with its version.

        Args:
            environment: as a study file says it.
        """
        return environment

    def longest_episode(self, environment: EnvironmentSpec) -> int | None:
        """Return the time limit of an episode that Python steps, in steps.

        The result is None if it is unknown, or if compiled code evaluates at next to no cost.
        """
        return None

    def resources(self, trainer: TrainerSpec) -> Resources:
        """Return what a segment needs unless the study file says otherwise.

        Args:
            trainer: its options may decide it.
        """
        return Resources()

    def device(self, needs: Resources) -> str | None:
        """Name what a segment trains on: `cuda` or `cpu`.

        It is the GPU that the segment is given, else the CPU. None: the user's code decides it.
        """
        if self.most_gpus is None:
            return None
        return "cuda" if needs.gpu else "cpu"

    def placed(self, trainer: TrainerSpec, needs: Resources) -> TrainerSpec:
        """Replace the option `device` of a trainer by a device.

        A trainer without the option trains on the CPU. Each of several GPUs has a process.
        """
        device = self.device(needs)
        if device is None:
            return trainer
        kwargs = {name: value for name, value in trainer.kwargs.items() if name != "device"}
        if device == "cuda":
            kwargs["device"] = device
        if device == "cuda" and needs.gpu > 1:
            kwargs.setdefault("processes", int(needs.gpu))
        return replace(trainer, kwargs=FrozenMap(kwargs))

    def check_device(self, trainer: TrainerSpec, needs: Resources) -> None:
        """Check that a trainer can use the GPUs of a segment.

        Args:
            trainer: with the options of the study file.
            needs: of a segment.

        Raises:
            InputError: it cannot, or its option `device` contradicts them.
        """
        device = self.device(needs)
        if device is None:
            return
        stated = trainer.kwargs.get("device", "auto")
        key = "trainer.kwargs.device"
        if self.most_gpus == 0 and (needs.gpu or "device" in trainer.kwargs):
            where = "resources.gpu" if needs.gpu else key
            raise InputError(f"{trainer.name} trains on the CPU alone: leave this out", key=where)
        if needs.gpu > (self.most_gpus or 0):
            message = f"{trainer.name} trains a segment on one GPU, got {needs.gpu:g}"
            raise InputError(message, key="resources.gpu")
        if stated not in ("auto", "cpu", "cuda"):
            raise InputError(f"expected auto, cpu or cuda, got {stated!r}", key=key)
        if stated == "cuda" and device == "cpu":
            raise InputError(
                "`cuda` is for segments with a GPU: add `resources: {gpu: 1}`", key=key
            )
        if stated == "cpu" and device == "cuda":
            raise InputError("`cpu` leaves the GPU of `resources` idle: leave one out", key=key)
        gpus = max(1, int(needs.gpu))
        if needs.gpu and trainer.kwargs.get("processes", gpus) != gpus:
            message = f"each process has a GPU of its own: expected {gpus}"
            raise InputError(message, key="trainer.kwargs.processes")

    def pinned(self, kwargs: Mapping[str, object], folder: str) -> dict[str, Any]:
        """Make what options name below `folder` absolute paths."""
        return dict(kwargs)

    def study_of_space(self, name: str, trainer: str, environment: object) -> dict[str, Any]:
        """Return the study that a search space's bare name stands for.

        Args:
            name: of the space, `sb3/ppo-small`.
            trainer: the name without the suffix of its last part, `sb3/ppo`.
            environment: as given by the user, or None.
        """
        return {
            "name": name.replace("/", "-"),
            "trainer": trainer,
            "space": name,
            "fidelity": {"steps": 100_000},
            "budget": {"runs": 96},
        }

    def relative_cost(
        self,
        trainer: TrainerSpec,
        environment: EnvironmentSpec,
        config: Config,
        start: int,
        until: int,
    ) -> float:
        """Predict the cost of training one seed of a configuration.

        It orders outcomes and is recorded in the study (`autorl.study.open_proposals`), so it
        depends on nothing but these arguments. Only ratios matter, within a study.

        Args:
            trainer: its name and options.
            environment: of the study.
            config: hyperparameters by name, as the trainer is given them.
            start: nominal step to train from.
            until: nominal step to train to, larger than `start`.

        Returns:
            A finite number above 0; the default is the nominal steps.
        """
        return float(until - start)

    def source_hashes(self) -> dict[str, str]:
        """Hash the code of this package that trains, by a short name."""
        return {}

    def user_files(self, trainer: TrainerSpec) -> list[str]:
        """Name files the user's options may mean.

        They are relative to where its code is looked for, and here those of all classes by path.
        """
        modules = modules_of((trainer.name, trainer.kwargs))
        return [file for module in modules for file in module_files(module)]

    def full_configuration(self, trainer: TrainerSpec, config: Config) -> Config:
        """Return every hyperparameter trained with.

        The trainer's own options lie under the configuration's.
        """
        return config

    def total_steps(self, end: int) -> str:
        """Write how its library is told where to end, as code.

        It shall train to step `end`. Empty where that is no argument.
        """
        return ""

    def read_preset(
        self, name: str, file: Path, environment: str | None, entry: str | None
    ) -> Preset:
        """Read hyperparameters from a file of RL Baselines3 Zoo.

        Args:
            name: of the trainer.
            file: in that format.
            environment: of the study, whose entry is read.
            entry: the name of the entry, where it is another.

        Raises:
            InputError: the trainer's library is not Stable-Baselines3, or the file is wrong.
        """
        raise InputError(
            "the format of RL Baselines3 Zoo is for trainers of Stable-Baselines3, "
            f"the trainer is {name}"
        )

    def zoo_entry(self, run: TrainedRun) -> str:
        """Write a configuration in the YAML format of RL Baselines3 Zoo.

        Raises:
            InputError: its library is not Stable-Baselines3, or is not installed.
        """
        raise InputError(
            f"{run.trainer.name} is no trainer of Stable-Baselines3's algorithms, "
            "which this format is of",
            key="--format zoo",
        )

    def arguments(self, run: TrainedRun, *, as_flags: bool) -> Arguments:
        """Write a configuration as the arguments of the trainer's library.

        Args:
            run: what was trained.
            as_flags: whether they are flags of a command, not arguments of a constructor.
        """
        return Arguments(run.config)


def module_of(name: str) -> str:
    """Return `a.b` of `a.b:function`.

    It is empty where no module is named.
    """
    module, separator, _ = name.partition(":")
    return module if separator else ""


def modules_of(options: object) -> list[str]:
    """List the modules of all texts `module:Class` in options, keys included."""
    return re.findall(r"([\w.]+):[^\W\d]", repr(options))


def module_files(module: str) -> list[str]:
    """Return where a module's source can lie below its import folder."""
    if module.endswith(".py"):  # a file instead of a module
        return [module]
    # A module is one file or a package.
    path = module.replace(".", "/")
    return [f"{path}.py", f"{path}/__init__.py"] if path else []
