"""The trainers of this package, one class for each family.

They are described in the words of `TrainerInfo`.

Nothing here imports a trainer or its libraries before it is asked something only they know: whoever
names a trainer imports this module, whatever of its libraries is installed.
"""

from __future__ import annotations

import importlib
import math
import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import autorl
from autorl.core.masking import masked
from autorl.core.shipped import shipped_folder
from autorl.core.source_code import code_hash
from autorl.core.types import Config, EnvironmentSpec, InputError, StepUnit, TrainerSpec
from autorl.population.variants import is_outside
from autorl.trainers.costs import COMPILED, PYTHON, Machinery, agent_cost, language_model_cost
from autorl.trainers.info import (
    Arguments,
    Executor,
    Preset,
    TrainedRun,
    TrainerInfo,
    module_files,
    module_of,
)
from autorl.trainers.language.tasks import task, tasks
from autorl.trainers.sb3.algorithms import ALGORITHMS, OPTIONS
from autorl.trainers.sb3.suites import Suite, suite_of

FUNCTION_PREFIX = "python:"


class AgentInfo(TrainerInfo):
    """Trainers of agents, whose hyperparameters and models are those of Stable-Baselines3."""

    step_unit: StepUnit | None = "environment_steps"
    takes_n_envs = True
    takes_task = True
    takes_start = True
    machinery: Machinery = PYTHON

    def relative_cost(
        self,
        trainer: TrainerSpec,
        environment: EnvironmentSpec,
        config: Config,
        start: int,
        until: int,
    ) -> float:
        """Predict multiply-adds by networks, updates and what else a step costs."""
        algorithm = trainer.name.rpartition("/")[2]
        policy = trainer.kwargs.get("policy_kwargs") or {}
        values = {**policy, **trainer.kwargs, **config}
        return agent_cost(algorithm, values, environment.n_envs, start, until, self.machinery)

    def full_id(self, environment: str) -> str:
        """Return the newest version that Gymnasium has of an id without one."""
        if ":" in environment or re.search(r"-v\d+$", environment):
            return environment
        from gymnasium.envs.registration import find_highest_version

        newest = find_highest_version(None, environment)
        return environment if newest is None else f"{environment}-v{newest}"

    def longest_episode(self, environment: EnvironmentSpec) -> int | None:
        import gymnasium

        name = environment.id or ""
        suite = _suite(name)
        try:
            if suite is not None:
                suite.require(name)
        except InputError:  # said where the environment is made
            return None
        registered = gymnasium.registry.get(name)
        limit = registered.max_episode_steps if registered is not None else None
        stated = environment.kwargs.get("max_episode_steps", limit)
        return stated if isinstance(stated, int) and stated > 0 else None

    def full_configuration(self, trainer: TrainerSpec, config: Config) -> Config:
        of_model = {name: value for name, value in trainer.kwargs.items() if name not in OPTIONS}
        policy = trainer.kwargs.get("policy_kwargs") or {}
        # The last value counts: the configuration over the own values over those of the policy.
        return Config(masked({**policy, **of_model, **config}))

    def total_steps(self, end: int) -> str:
        return f"total_timesteps={end}"

    def arguments(self, run: TrainedRun, *, as_flags: bool) -> Arguments:
        if as_flags:
            return Arguments(run.config)
        return Arguments(run.config, code=self._written(run, "--format kwargs"))

    def zoo_entry(self, run: TrainedRun) -> str:
        return self._written(run, "--format zoo")

    def _written(self, run: TrainedRun, option: str) -> str:
        """Write a configuration in a format of `autorl best`.

        Raises:
            InputError: its library is not installed.
        """
        # Loads the compiled engine, and with it Numba.
        from autorl.trainers.sb3 import constructor, zoo_write

        try:
            self.check_installed(run.trainer.name)
        except InputError as error:
            message = f"the names of its constructor are unknown: {error.message}"
            raise InputError(message, key=option) from None
        if option == "--format zoo":
            return zoo_write.zoo_entry(run)
        return constructor.constructor_arguments(run)


class SB3Info(AgentInfo):
    """Stable-Baselines3's own algorithms."""

    target = "autorl.trainers.sb3.trainer:SB3Trainer"
    extra = "sb3"
    needs: tuple[str, ...] = ("torch", "stable_baselines3")
    most_gpus: float | None = 1

    def study_of_space(self, name: str, trainer: str, environment: object) -> dict[str, Any]:
        """Begin a study as the suite of its environment says (`sb3.suites`).

        With the trainer's bare name the space is that of the suite where there is one.
        """
        study = super().study_of_space(name, trainer, environment)
        suite = _suite(environment)
        algorithm = ALGORITHMS.get(trainer.rpartition("/")[2])
        if suite is None or algorithm is None:
            return study
        sections = suite.begin(_id(environment), algorithm.on_policy)
        study["environment"] = sections["environment"]
        study["fidelity"] = sections["fidelity"]
        study["trainer"] = {"name": trainer, **sections.get("trainer", {})}
        # A space of the user's with the trainer's name is the one meant.
        if name == trainer and _is_shipped(name) and _is_shipped(f"{name}-{suite.name}"):
            study["space"] = f"{name}-{suite.name}"
        return study

    def read_preset(
        self, name: str, file: Path, environment: str | None, entry: str | None
    ) -> Preset:
        # By name, like the trainers: it needs the reader of YAML, and with it NumPy.
        zoo = importlib.import_module("autorl.trainers.sb3.zoo_read")
        preset: Preset = zoo.read_preset(file, environment, entry)
        return preset


class ContribInfo(SB3Info):
    """Algorithms of sb3-contrib, which Stable-Baselines3 keeps apart as experimental."""

    extra = "contrib"
    needs = ("torch", "stable_baselines3", "sb3_contrib")
    packages = ("sb3_contrib",)


class OfflineInfo(TrainerInfo):
    """Trainers on recorded episodes of Minari."""

    target = "autorl.trainers.offline.trainer:OfflineTrainer"
    extra = "offline"
    needs: tuple[str, ...] = ("torch", "stable_baselines3", "minari")
    most_gpus: float | None = 0
    step_unit: StepUnit | None = "optimizer_steps"
    packages = ("minari",)


class PopulationInfo(AgentInfo):
    """Algorithms of the compiled engine."""

    target = "autorl.trainers.population:PopulationTrainer"
    most_gpus: float | None = 0
    executor: Executor = "threads"
    estimates_by_training = True
    machinery: Machinery = COMPILED

    def study_of_space(self, name: str, trainer: str, environment: object) -> dict[str, Any]:
        """Begin a study as `sb3/*` does with this algorithm.

        The suite of its environment says how. But native tasks, and the images of Atari, which the
        engine does not take, and how many environments are side by side where the space says it.
        """
        study = super().study_of_space(name, trainer, environment)
        suite = _suite(environment)
        if suite is None or suite.name == "atari" or not is_outside(_id(environment)):
            return study
        on_policy = ALGORITHMS[trainer.rpartition("/")[2]].on_policy
        sections = suite.begin(_id(environment), on_policy)
        section = sections["environment"]
        # Two places that say it are refused.
        if "n_envs" in section and _has_hyperparameter(name, "n_envs"):
            del section["n_envs"]
        return {**study, "environment": section, "fidelity": sections["fidelity"]}

    def executor_for(self, environment: str | None) -> Executor:
        """Return threads for native environments.

        Python steps others: in threads they would wait for each other's interpreter lock.
        """
        return "processes" if is_outside(environment) else self.executor

    def longest_episode(self, environment: EnvironmentSpec) -> int | None:
        # On CartPole-v1, 32 episodes at each of 10 evaluations took 3 % longer than 2.
        return super().longest_episode(environment) if is_outside(environment.id) else None

    def source_hashes(self) -> dict[str, str]:
        return {"engine": engine_hash()}


class RLHFInfo(TrainerInfo):
    """Trainers of language models on an RLHF task."""

    extra = "rlhf"
    step_unit: StepUnit | None = "optimizer_steps"
    packages = (
        "trl",
        "transformers",
        "accelerate",
        "datasets",
        "tokenizers",
        "peft",
        "safetensors",
        "vaderSentiment",
    )
    trainer_of_space: Mapping[str, str] = {}
    """Spaces that are named after a loss of their trainer."""

    def default_sections(
        self, names: Collection[str], environment: str | None, kwargs: Mapping[str, object] | None
    ) -> dict[str, Any]:
        """Return sections that select by the task's metric.

        The metric is never the signal trained on, and is read at a run's best step.

        Longer is not better there. A reward model is judged by the policies it would choose.
        """
        if environment is None:
            return {}
        of_task = task(environment, kwargs)
        of_reward_models = set(names) == {"trl/reward"} and of_task.selection in of_task.signals
        metric = "best_of_16" if of_reward_models else of_task.selection
        return {"objective": {"metric": metric, "reduce": "best"}}

    def study_of_space(self, name: str, trainer: str, environment: object) -> dict[str, Any]:
        """48 runs of 60 optimizer steps.

        On a task that comes with the package, whose models are tiny, the space `NAME-tiny` is
        taken where there is one.
        """
        study = super().study_of_space(name, self.trainer_of_space.get(trainer, trainer), None)
        study["fidelity"] = {"steps": 60, "evaluations": 12, "episodes": 256}
        study["budget"] = {"runs": 48}
        # `files` is a model of the user's, of any size.
        of_package = environment in tasks() and environment != "files"
        if of_package and _space_file(f"{name}-tiny") is not None:
            study["space"] = f"{name}-tiny"
        return study

    def full_configuration(self, trainer: TrainerSpec, config: Config) -> Config:
        # Importing `trainers.rlhf` sets HF_HUB_OFFLINE for the process, which other trainers may
        # need unset.
        from autorl.trainers.rlhf.trainer import all_values

        return Config(masked(all_values(trainer, config, self.defaults())))

    def defaults(self) -> Mapping[str, object]:
        """Return hyperparameters that are given unless a study says otherwise."""
        return {}

    def source_hashes(self) -> dict[str, str]:
        return {"rlhf": rlhf_hash()}


class TRLInfo(RLHFInfo):
    """Trainers of TRL."""

    target = "autorl.trainers.trl:TRLTrainer"
    needs = ("torch", "trl", "transformers", "datasets")
    most_gpus: float | None = math.inf
    trainer_of_space: Mapping[str, str] = {"trl/simpo": "trl/cpo", "trl/gspo": "trl/grpo"}

    def defaults(self) -> Mapping[str, object]:
        from autorl.trainers.trl.settings import DEFAULTS

        return DEFAULTS

    def arguments(self, run: TrainedRun, *, as_flags: bool) -> Arguments:
        from autorl.trainers.trl.arguments import trl_arguments

        return trl_arguments(run.trainer, run.config, run.horizon, run.end)


class OwnPPOInfo(RLHFInfo):
    """The package's own PPO on a language model.

    No library has arguments for it.
    """

    target = "autorl.trainers.rlhf.ppo:PPOTrainer"
    most_gpus: float | None = 0
    needs = ("torch", "transformers")

    def relative_cost(
        self,
        trainer: TrainerSpec,
        environment: EnvironmentSpec,
        config: Config,
        start: int,
        until: int,
    ) -> float:
        """Predict passes of completions, sampled, scored and trained on."""
        return language_model_cost({**trainer.kwargs, **config}, start, until)


class MergeInfo(RLHFInfo):
    """Policies merged, not trained: a step says nothing."""

    target = "autorl.trainers.rlhf.merge:MergeTrainer"
    most_gpus: int | None = 0
    needs = ("torch", "transformers")

    def study_of_space(self, name: str, trainer: str, environment: object) -> dict[str, Any]:
        """48 merged policies, each evaluated once."""
        study = super().study_of_space(name, trainer, environment)
        return {**study, "fidelity": {"steps": 1, "evaluations": 1, "episodes": 256}}


class CommandInfo(TrainerInfo):
    """Scripts of the user's."""

    target = "autorl.trainers.command:CommandTrainer"
    description = "any script: flags or a config file in, metrics out"
    of_user = True
    takes_task = True  # a name means what the script makes of it

    def user_files(self, trainer: TrainerSpec) -> list[str]:
        """Return the words of the command.

        An absolute path at its beginning is a program.
        """
        command = trainer.kwargs.get("command", ())
        words = shlex.split(command) if isinstance(command, str) else [*map(str, command)]
        if words and Path(words[0]).is_absolute():
            words = words[1:]
        return [word for word in words if word and not word.startswith("-")]


class FunctionInfo(TrainerInfo):
    """Functions of the user's.

    They return one value and have no environment steps.
    """

    target = "autorl.trainers.trial_function:make"
    description = "a Python function: python:module:function"
    of_user = True
    takes_task = True
    default_metric = "value"

    def default_sections(
        self, names: Collection[str], environment: str | None, kwargs: Mapping[str, object] | None
    ) -> dict[str, Any]:
        return {
            "fidelity": {"steps": 1, "evaluations": 1, "episodes": 1},
            "objective": {"metric": self.default_metric},
        }

    def user_files(self, trainer: TrainerSpec) -> list[str]:
        return module_files(module_of(trainer.name.removeprefix(FUNCTION_PREFIX)))


class LookUpInfo(TrainerInfo):
    """Trainers that look runs up in a landscape, in microseconds."""

    target = "autorl.trainers.replay:make_tabular"
    most_gpus: float | None = 0
    executor: Executor = "in_process"
    replays_landscape = True
    takes_task = True

    def pinned(self, kwargs: Mapping[str, object], folder: str) -> dict[str, Any]:
        """Name the landscape by its absolute folder.

        A study can then be resumed from any working folder.
        """
        from autorl.landscapes import find_landscape

        name = kwargs.get("landscape")
        place = find_landscape(name, folder=folder) if isinstance(name, str) else None
        if place is None:  # the trainer says so when the study is set up
            return dict(kwargs)
        return {**kwargs, "landscape": str(place.resolve())}


class SurrogateInfo(LookUpInfo):
    """Runs predicted by a model of a landscape."""

    target = "autorl.trainers.replay:make_surrogate"


class SyntheticInfo(TrainerInfo):
    """Learning curves by formula."""

    target = "autorl.trainers.synthetic:make"
    description = "analytic learning curves with a known optimum, for tests"


def _id(environment: object) -> str:
    """Return an environment's id as given, empty without one."""
    asked = environment.get("id") if isinstance(environment, Mapping) else environment
    return asked if isinstance(asked, str) else ""


def _suite(environment: object) -> Suite | None:
    return suite_of(_id(environment))


def _spaces() -> ModuleType:
    """Import the package of search spaces, and NumPy with it."""
    from autorl import space

    return space


def _space_file(name: str) -> Path | None:
    """Find the file of a space by its name, else None."""
    try:
        file: Path = _spaces().find_space(name)
    except InputError:
        return None
    return file


def _has_hyperparameter(name: str, hyperparameter: str) -> bool:
    """Tell whether a space that can be read has a hyperparameter."""
    try:
        space = _spaces().load_space(name)
    except InputError:  # the study's own reading says what is wrong
        return False
    return hyperparameter in space.hyperparameters


def _is_shipped(name: str) -> bool:
    """Tell whether a name means a shipped space or a copy."""
    file = _space_file(name)
    shipped = shipped_folder("search_spaces")
    if file is None or shipped is None:
        return False
    if file.resolve().is_relative_to(shipped):
        return True
    # In a checkout the folder's own file comes first, where the installed package has the same.
    original = shipped / f"{name}.yaml"
    return original.is_file() and original.read_bytes() == file.read_bytes()


def engine_hash() -> str:
    """Hash of the code that decides what the population engine computes.

    Equal code on one CPU type, with one version of Numba, gives results that are the same to the
    bit.
    """
    return _hash("population")


# For people and other programs, of a run that is over.
_WRITES_ONLY = ("arguments.py", "export.py", "overoptimization.py")


def rlhf_hash() -> str:
    """Hash the code that decides what an RLHF trainer computes.

    TRL's own is left out.
    """
    # The streams a segment draws from are set and restored in `_streams.py`.
    folders = ("trainers/language", "trainers/rlhf", "trainers/trl")
    return _hash(*folders, files=("trainers/_streams.py",), left_out=_WRITES_ONLY)


def _hash(*folders: str, files: Collection[str] = (), left_out: Collection[str] = ()) -> str:
    root = Path(autorl.__file__).parent
    paths = [path for folder in folders for path in (root / folder).rglob("*.py")]
    # All random streams of a run are derived in `core/seeds.py`.
    more = [root / name for name in (*files, "core/seeds.py")]
    return code_hash([*(path for path in paths if path.name not in left_out), *more], root)
