"""Holds a checked study file and what is resolved from it.

`autorl.study.spec.study_file` makes one of YAML. `Spec.freeze` gives the self-contained YAML
that is stored with the study: the search space is written out, seed counts become lists, paths
become absolute, so the study never depends on a file that may change later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from autorl import trainers
from autorl.core.seeds import SeedPlan
from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, Resources, TrainerSpec
from autorl.optimizers.registry import DEFAULT, DEFAULT_WITH_PRIOR, search_kind
from autorl.space import Document, Dumper, Space, compile_algorithms, load_space, split_algorithm
from autorl.space.simplex import with_weights
from autorl.statistics.confirmation import SHARE
from autorl.statistics.evaluation import (
    MEASURED,
    Adaptive,
    Constraint,
    Fixed,
    Judge,
    Objective,
    Racing,
    SeedPolicy,
)
from autorl.study.spec import sections
from autorl.study.spec.options import cuts_of, stored_options, with_resolved_of
from autorl.trainers import TrainerInfo

# Configurations: the budget of an embedded search, which ends when its caller stops asking.
UNLIMITED = sections.MOST_RUNS


_Objectives: TypeAlias = sections.ObjectiveSection | list[sections.ObjectiveSection]


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


class Spec(sections.Section):
    """A study file that was checked.

    Spaces, seeds and the specs of trainers are resolved on it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    one_of = ("trainer", "algorithms")
    name: str = "study"
    """For people, and the default folder `studies/NAME`; default the file's name."""
    note: str = ""
    """For people: `watch`, `best` and the report show it."""
    seed: sections.StudySeed = 0
    """The optimizer's randomness and every derived stream come from it."""
    trainer: sections.TrainerSection | None = None
    """What trains: a name, or `{name, kwargs}`. This or `algorithms`."""
    environment: sections.EnvironmentSection = sections.EnvironmentSection()
    """A Gymnasium id, `module:Env-v0`, or a mapping with `id`."""
    tasks: sections.TasksSection | None = None
    """Tasks beside seeds; `environment` is then the first of them."""
    space: str | dict[str, Any] | None = None
    """A search space that comes with the package, a file, or the hyperparameters themselves."""
    algorithms: dict[str, sections.AlgorithmSection] | None = None
    """Instead of `trainer` and `space`, both by name: which of them is searched too."""
    objective: Annotated[
        list[sections.ObjectiveSection],
        BeforeValidator(_listed, json_schema_input_type=_Objectives),
    ] = Field(default_factory=lambda: [sections.ObjectiveSection()])
    """What is optimized; several make a front."""
    allow_proxy_selection: sections.Flag = False
    """RLHF: whether a study may select by the signal it trains on.

    Doing so finds the worst over-optimisation.
    """
    constraints: list[sections.ConstraintSection] = Field(default_factory=list)
    """Bounds of metrics: what breaks one never beats what keeps all."""
    fidelity: sections.FidelitySection
    """Length of a full run, and its evaluations."""
    optimizer: sections.OptimizerSection = sections.OptimizerSection()
    """What proposes configurations: a name, or `{name, ...options}`."""
    budget: sections.BudgetSection
    """The end of the search; the test comes after it."""
    seeds: sections.SeedsSection = sections.SeedsSection()
    """Tuning seeds choose, test seeds judge."""
    evaluation: sections.EvaluationSection = sections.EvaluationSection()
    """Seeds of a proposal, and how its scores become one."""
    parallelism: sections.Count = 8
    """Proposals in flight: an ask that finds so many open waits for an outcome.

    `load_spec` sets the default by budget.
    """
    asynchronous: sections.Flag = False
    """Outcomes are observed as they come: more throughput, no same-table guarantee."""
    executor: sections.ExecutorSection = sections.ExecutorSection()
    """Where segments run; never changes a result."""
    resources: sections.ResourcesSection | None = None
    """The need of one segment."""
    failures: sections.FailuresSection = sections.FailuresSection()
    """The score of a failed seed, and how often a lost one is tried again."""
    limits: sections.LimitsSection = sections.LimitsSection()
    """Limits of a segment, and of the study's disk."""
    warm_start: sections.WarmStart = Field(default_factory=list)
    """Configurations tried right after the default one, or their source."""
    baselines: dict[sections.Name, dict[str, Any]] = Field(default_factory=dict)
    """Configurations by name, tested beside incumbent and default; the optimizer never sees them.

    `{zoo: FILE, entry: NAME}` is one of a preset. `load_spec` looks it up and checks all.
    """
    start: sections.StartSection | None = None
    """The policy that every run begins from."""
    test: sections.TestSection = sections.TestSection()
    """The test on held-out seeds."""
    keep: sections.KeepSection = sections.KeepSection()
    """Files that outlive the study."""
    landscape: sections.LandscapeSection | None = None
    """The data set that `autorl landscape build` writes."""
    callbacks: list[Any] | None = None
    """Classes that are told what happens: `module:Class` or `{"module:Class": {arguments}}`.

    They change no result.
    """
    storage: Annotated[str, Field(min_length=1)] | None = None
    """Where checkpoints and copies of the database go: a folder, or a URL that `fsspec` knows.

    A folder is relative to the study file. Where a study is stored changes no result.
    """
    path: str | None = None
    """Folder modules are imported from; default the study file's."""
    _document: Document | None = PrivateAttr(None)
    # False where it is the default for the study's budget.
    _own_parallelism: bool = PrivateAttr(True)
    # The optimizer's section where it leaves the name to the default; whether seeds are left to it.
    _unnamed: sections.OptimizerSection | None = PrivateAttr(None)
    _default_seeds: bool = PrivateAttr(False)
    _given_way: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.algorithms is None) == (self.space is None):
            raise ValueError("needs `space` beside `trainer`; `algorithms` bring their own")
        if not self.objective:
            raise ValueError("`objective` needs at least one entry")
        labels = [objective.label for objective in self.objectives()]
        repeated = next((label for label in labels if labels.count(label) > 1), None)
        if repeated is not None:
            raise ValueError(f"`objective` lists {repeated} twice")
        return self

    # -- resolved: what the rest of the package asks for -------------------------------------------

    @cached_property
    def plan(self) -> SeedPlan:
        return self.plan_of(self.seeds)

    def plan_of(self, seeds: sections.SeedsSection) -> SeedPlan:
        """Return the plan of some seeds, crossed with the study's tasks."""
        plan = seeds.resolve()
        if self.tasks is None:
            return plan
        names = [[task.label for task in tasks] for tasks in (self.tasks.tuning, self.tasks.test)]
        return plan.on_tasks(*names)

    @cached_property
    def environments(self) -> tuple[EnvironmentSpec, ...]:
        """The environment of each task, or the only one."""
        sections = [self.environment] if self.tasks is None else self.tasks.listed
        metrics = tuple(dict.fromkeys([*self.stated_metrics, *self.fidelity.metrics]))
        return tuple(replace(section.resolve(), metrics=metrics) for section in sections)

    @property
    def task_names(self) -> str | None:
        """Name the tasks, or the environment.

        None of a task inside the trainer.
        """
        if self.tasks is None:
            return self.environment.id
        return ", ".join(self.plan.tasks)

    def task_name(self, pair: int) -> str | None:
        """Name the task of a pair, or the environment."""
        return self.plan.tasks[self.plan.parts(pair)[0]] if self.tasks else self.environment.id

    @property
    def parts(self) -> dict[str, sections.AlgorithmSection]:
        """The algorithms by name, which is "" of the only trainer."""
        if self.algorithms is not None:
            return self.algorithms
        return {
            "": sections.AlgorithmSection.model_construct(trainer=self.trainer, space=self.space)
        }

    @cached_property
    def search_space(self) -> Space:
        """The space all optimizers see.

        With `algorithms`, it is one conditional space over all of them.
        """
        return self._joined(self.spaces)

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """The space of each algorithm, without its prefix.

        If there is one trainer only, its name is "".
        """
        return self._loaded()

    @property
    def frozen_space(self) -> Space:
        """The space of a frozen study file: `search_space`, found without importing anything."""
        return self._joined(self._loaded(frozen=True))

    def _joined(self, spaces: dict[str, Space]) -> Space:
        return spaces[""] if self.algorithms is None else compile_algorithms(spaces)

    def _loaded(self, *, frozen: bool = False) -> dict[str, Space]:
        return {
            name: self.with_numbers(part.space, frozen=frozen) for name, part in self.parts.items()
        }

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The configurations to begin with, after the default one."""
        assert isinstance(self.warm_start, list), "load_spec looks sources up"
        return self.warm_start

    def with_numbers(self, source: str | dict[str, Any], *, frozen: bool = False) -> Space:
        """Load a space, and give its constraints the numbers of the study.

        Raises:
            InputError: it cannot be read, or its default configuration breaks a constraint.
        """
        space = load_space(source, self.folder)
        # Constraints of shipped spaces use them: a rollout must fit between two evaluations.
        constants = {"n_envs": self.environment.n_envs, "horizon": self.fidelity.steps}
        named = {*space.missing, *space.constants}
        # A frozen file holds it: to find it anew, the optimizer's class would be imported.
        if "evaluation_interval" in named and not frozen:
            constants["evaluation_interval"] = self.evaluation_interval
        used = {name: value for name, value in constants.items() if name in named}
        return with_constants_of_study(space, used) if used else space

    @cached_property
    def evaluation_steps(self) -> tuple[int, ...]:
        """Nominal steps of a full run's evaluations, equally spaced.

        The last is at the end.
        """
        steps = self.fidelity.steps
        count = self.fidelity.evaluations
        # With fewer steps than evaluations several fall on one step, and some on step 0.
        return tuple(sorted({steps * k // count for k in range(1, count + 1)} - {0}))

    @cached_property
    def evaluation_interval(self) -> int:
        """Shortest distance between two evaluations or two cuts, in steps.

        Cuts are where the optimizer ends segments; step 0 counts as one.
        """
        cuts = cuts_of(self.optimizer, self.fidelity.steps, self.path)
        ends = (self.evaluation_steps, cuts)
        return min(later - step for steps in ends for step, later in pairwise((0, *steps)))

    @cached_property
    def longest_episode(self) -> int | None:
        """Time limit of an evaluation episode, in steps.

        The value is None where no limit is known, and where evaluation costs next to nothing.
        """
        limits = [
            self.info(trainer).longest_episode(environment)
            for trainer in self.trainers.values()
            for environment in self.environments
        ]
        return max((limit for limit in limits if limit is not None), default=None)

    @cached_property
    def trainers(self) -> dict[str, TrainerSpec]:
        """Trainers the study may use, by algorithm.

        If there is one only, its name is "".
        """
        needs = self.resources_by_algorithm
        return {
            name: self.info(part.trainer).placed(self._trainer(part.trainer), needs[name])
            for name, part in self.parts.items()
        }

    @property
    def trainer_names(self) -> str:
        """Names of all trainers."""
        return ", ".join(trainer.name for trainer in self.trainers.values())

    @property
    def devices(self) -> dict[str, str | None]:
        """Name what segments of each algorithm train on, as `TrainerInfo.device` does."""
        needs = self.resources_by_algorithm
        return {
            name: self.info(part.trainer).device(needs[name]) for name, part in self.parts.items()
        }

    def info(self, trainer: TrainerSpec | sections.TrainerSection) -> TrainerInfo:
        """Describe one of its trainers.

        A class of the user's lies beside the study file.
        """
        return trainers.info(trainer.name, self.path)

    @property
    def steps(self) -> str:
        """Name the steps that its trainers count.

        It is `environment steps`, `optimizer steps`, or `steps` of the user's own.
        """
        units = {self.info(trainer).step_unit for trainer in self.trainers.values()}
        unit = units.pop() if len(units) == 1 else None
        return (unit or "steps").replace("_", " ")

    @property
    def step(self) -> str:
        """Name a single one of `steps`."""
        return self.steps.removesuffix("s")

    def _trainer(self, section: sections.TrainerSection) -> TrainerSpec:
        """Resolve the spec of a trainer.

        Scripts and functions are looked for beside the study file unless it says where.
        """
        of_user = self.info(section).of_user
        where = {"path": self.path} if of_user and self.path is not None else {}
        start = None if self.start is None else self.start.resolve()
        return TrainerSpec(section.name, FrozenMap({**where, **section.kwargs}), start)

    def trainer_for(self, config: Config, task: int = 0) -> tuple[TrainerSpec, Config]:
        """Return the trainer of a configuration, and what it is given.

        The configuration loses the prefix of its algorithm, and has weights for the floats that
        stand for them, but where a landscape answers, which has the floats.
        """
        algorithm, named = ("", config) if self.algorithms is None else split_algorithm(config)
        trainer = self.on_task(self.trainers[algorithm], task)
        if self.info(trainer).replays_landscape:
            return trainer, named
        return trainer, with_weights(named)

    def on_task(self, trainer: TrainerSpec, task: int) -> TrainerSpec:
        """Return a trainer with the landscape of a task, if any."""
        landscape = None if self.tasks is None else self.tasks.listed[task].landscape
        if landscape is None:
            return trainer
        return TrainerSpec(trainer.name, FrozenMap({**trainer.kwargs, "landscape": landscape}))

    @cached_property
    def resources_by_algorithm(self) -> dict[str, Resources]:
        """Resources that a segment of each algorithm needs.

        The name of the only trainer is "".
        The algorithm's section comes before the study's, and that before what the trainer asks for.
        """
        needs = {}
        for name, part in self.parts.items():
            needs[name] = self.info(part.trainer).resources(self._trainer(part.trainer))
            for _, section in reversed(self.resource_sections(name)):
                needs[name] = section.over(needs[name])
        return needs

    @property
    def needs_gpu(self) -> bool:
        """Whether segments of some algorithm need a GPU."""
        return any(needs.gpu for needs in self.resources_by_algorithm.values())

    def resources_for(self, config: Config) -> Resources:
        """Return what a segment of a configuration needs."""
        algorithm = "" if self.algorithms is None else split_algorithm(config)[0]
        return self.resources_by_algorithm[algorithm]

    def resource_sections(self, algorithm: str) -> list[tuple[str, sections.ResourcesSection]]:
        """List the sections that say what an algorithm needs, with their keys.

        The first section that says a key holds.
        """
        stated: list[tuple[str, sections.ResourcesSection | None]] = [("resources", self.resources)]
        if self.algorithms is not None:
            of_algorithm = self.algorithms[algorithm].resources
            stated.insert(0, (f"algorithms.{algorithm}.resources", of_algorithm))
        return [(key, section) for key, section in stated if section is not None]

    def objectives(self) -> tuple[Objective, ...]:
        return tuple(
            Objective(section.metric, section.reduce, section.direction)
            for section in self.objective
        )

    @property
    def stated_metrics(self) -> list[str]:
        """Metrics of the objectives, then of the constraints."""
        objectives = [section.metric for section in self.objective]
        return objectives + [section.metric for section in self.constraints]

    @property
    def stated_penalty(self) -> float | None:
        """Score of a failed run that the study file states, or None.

        It is in the metric's own direction; None means the worst score told so far.
        """
        return None if isinstance(self.failures.penalty, str) else self.failures.penalty

    def judge(self) -> Judge:
        constraints = [
            Constraint(section.metric, section.max, section.min) for section in self.constraints
        ]
        return Judge(
            self.objectives(),
            constraints,
            self.evaluation.aggregate,
            self.stated_penalty,
            self.fidelity.steps,
            [] if self.tasks is None else self.tasks.scales(self.objective[0].metric),
        )

    @property
    def ends_at_chosen_step(self) -> bool:
        """Whether runs trained for their model end at their score's step.

        Not where another objective needs the whole run, nor for a landscape, which is made of whole
        curves.
        """
        return self.landscape is None and self.judge().reads_one_step

    @property
    def adds_baseline(self) -> bool:
        """Whether the default configuration is trained as far as the incumbent.

        It is where there is a search, and a test of it.
        """
        kind = search_kind(self.optimizer.name, self.path)
        # A landscape is of its own configurations alone, and these two search nothing.
        if self.landscape is not None or kind in ("phased_design", "schedule"):
            return False
        return self.test.baseline and bool(self.plan.test)

    def policy(self) -> SeedPolicy:
        section = self.evaluation
        if section.seeds == "fixed":
            return Fixed(self.plan.tuning)
        maximum = section.max or len(self.plan.tuning)
        if section.seeds == "adaptive":
            share = section.share or SHARE
            return Adaptive(self.plan.tuning, section.min, maximum, share, self.plan.block)
        return Racing(self.plan.tuning, section.min, maximum, section.rule)

    @property
    def full_runs(self) -> float:
        """Full-length proposals the budget pays for at the first seeds.

        That is what an optimizer may plan with.
        """
        policy = self.policy()
        budget = self.budget
        if budget.configurations is not None:
            # An embedded search plans with no end: its caller stops asking.
            return math.inf if budget.configurations >= UNLIMITED else float(budget.configurations)
        runs = budget.runs
        if budget.environment_steps is not None:
            runs = budget.environment_steps / self.fidelity.steps
        if runs is None:
            return float("inf")
        if isinstance(policy, Adaptive):
            runs = policy.runs_to_explore(runs)
        return runs / len(policy.first)

    @property
    def indeterminate(self) -> str | None:
        """Reasons why the same file may give another table, None without any."""
        measured = {f"the metric {metric}": metric in MEASURED for metric in self.stated_metrics}
        reasons = {
            "asynchronous: true": self.asynchronous,
            "a budget in hours": self.budget.hours is not None,
            "a budget in GPU-hours": self.budget.gpu_hours is not None,
            "limits.segment_seconds": self.limits.segment_seconds is not None,
            "limits.memory_gb": self.limits.memory_gb is not None,
            "resources.gpu": self.needs_gpu,
            **measured,
        }
        return ", ".join(text for text, holds in reasons.items() if holds) or None

    @property
    def folder(self) -> Path | None:
        """The folder of the study's files, None without one."""
        return Path(self.path) if self.path else None

    def changed(self, **sections: object) -> Self:
        """Copy the spec with other sections.

        Values that the study resolves from them are resolved anew.
        """
        copy = self.model_copy(update=sections)
        # `model_copy` keeps what cached properties hold.
        for name, value in vars(Spec).items():
            if isinstance(value, cached_property):
                copy.__dict__.pop(name, None)
        return copy

    @property
    def given_way(self) -> tuple[str, ...]:
        """Lines about the defaults that gave way to what somebody wrote."""
        return self._given_way

    def remember(
        self, document: Document | None = None, given_way: Sequence[str] | None = None
    ) -> Self:
        """Remember the study's file, or which defaults gave way, for messages."""
        self._document = document or self._document
        self._given_way = self._given_way if given_way is None else tuple(given_way)
        return self

    def with_default_parallelism(self, count: int) -> Self:
        """Copy the spec with a parallelism that its file does not state."""
        copy = self.model_copy(update={"parallelism": count})  # private attributes too
        copy._own_parallelism = False
        return copy

    def with_default_search(self, optimizer: str, *, seeds: bool) -> Self:
        """Copy the spec with an optimizer that its file does not name.

        Args:
            optimizer: its name.
            seeds: whether the file leaves the seed rule and the tuning seeds to the default too:
                those of `transfer` are adaptive.
        """
        unnamed = self._unnamed or self.optimizer
        named = unnamed.model_copy(update={"name": optimizer})
        changes: dict[str, object] = {"optimizer": named}
        if seeds:
            adaptive = optimizer == DEFAULT_WITH_PRIOR
            count = sections.ADAPTIVE_SEEDS if adaptive else sections.SeedsSection().tuning
            rule = {"seeds": "adaptive"} if adaptive else {}
            changes["evaluation"] = sections.EvaluationSection.model_validate(rule)
            changes["seeds"] = self.seeds.model_copy(update={"tuning": count})
        copy = self.changed(**changes)
        copy._unnamed = unnamed
        copy._default_seeds = seeds
        return copy

    def located(self, error: InputError) -> InputError:
        """Add the file and line of its key to an error.

        It is returned as it is where the study was not read from a file.
        """
        if self._document is None or error.file is not None:
            return error
        return self._document.located(error)

    def freeze(self) -> str:
        """Write the study file as it is stored.

        It is self-contained YAML with every default written out.
        """
        data = self.model_dump(mode="json")
        # Spaces and seeds are written out: a file and a rule that make them may change.
        if self.space is not None:
            data["space"] = self.with_numbers(self.space).to_dict()
        for name, section in (self.algorithms or {}).items():
            data["algorithms"][name]["space"] = self.with_numbers(section.space).to_dict()
            data["algorithms"][name].pop("resources")
            if section.resources is not None:
                data["algorithms"][name]["resources"] = section.resources.stated()
        # A space with `n_envs` says the number: a study file that says it too is refused.
        if any("n_envs" in space.hyperparameters for space in self.spaces.values()):
            del data["environment"]["n_envs"]
        if self.resources is not None:
            data["resources"] = self.resources.stated()
        plan = self.plan
        data["seeds"] = {"tuning": [*plan.seeds("tuning")], "test": [*plan.seeds("test")]}
        if not self.baselines:
            del data["baselines"]
        if self.evaluation.share is None:
            del data["evaluation"]["share"]
        optimizer = self.optimizer
        named = {"name": optimizer.name, "stop": optimizer.stop, "rungs": optimizer.rungs}
        data["optimizer"] = named | stored_options(optimizer, self.path, self.seed)
        written = {key: value for key, value in data.items() if value is not None}
        return str(yaml.dump(written, Dumper=Dumper, sort_keys=False))

    def same_study(self, stored: Spec) -> bool:
        """Tell whether a stored study is this one.

        The place it was started, its executor and its resources are not a part of it.
        """
        moved = self._with_defaults_of(stored)
        moved = moved.model_copy(
            update={
                "path": stored.path,
                "executor": stored.executor,
                "resources": stored.resources,
                "storage": stored.storage,
                "callbacks": stored.callbacks,
                "algorithms": self._with_resources_of(stored),
                "optimizer": with_resolved_of(moved.optimizer, stored.optimizer, self.path),
            }
        )
        return stored.freeze() == moved.freeze()

    def _with_defaults_of(self, stored: Spec) -> Self:
        """Copy the spec with the defaults that a study began with.

        Since then a landscape of its algorithm may have come or gone, or autorl another default.
        """
        name = stored.optimizer.name
        if self._unnamed is None or name not in (DEFAULT, DEFAULT_WITH_PRIOR):
            return self
        copy = self.with_default_search(name, seeds=self._default_seeds)
        # It is by the length of the search, and that by the seed rule.
        if not self._own_parallelism and name != self.optimizer.name:
            copy = copy.with_default_parallelism(stored.parallelism)
        if not self._default_seeds:
            return copy
        share = stored.evaluation.share  # it is by the prior
        return copy.changed(evaluation=copy.evaluation.model_copy(update={"share": share}))

    def _with_resources_of(self, stored: Spec) -> dict[str, sections.AlgorithmSection] | None:
        """Copy the algorithms, with the resources they have in a stored study."""
        if self.algorithms is None or stored.algorithms is None:
            return self.algorithms
        resources = {name: section.resources for name, section in stored.algorithms.items()}
        return {
            name: section.model_copy(update={"resources": resources.get(name)})
            for name, section in self.algorithms.items()
        }


class LongRolloutError(InputError):
    """The default rollout is longer than the steps between two evaluations."""


def with_constants_of_study(space: Space, constants: Mapping[str, float]) -> Space:
    """Give a space the numbers a study knows, for its constraints.

    Raises:
        InputError: its default configuration breaks a constraint with them.
    """
    try:
        return space.with_constants(constants)
    except InputError as error:
        broken = re.fullmatch(r"constraints\[(\d+)\]", error.key or "")
        rule = space.constraints[int(broken[1])] if broken else None
        # Only this number needs an explanation: it follows from several keys.
        if rule is None or "evaluation_interval" not in rule.constants:
            raise
        defaults = {name: space.hyperparameters[name].default for name in sorted(rule.names)}
        numbers = {
            name: constants.get(name, space.constants.get(name)) for name in sorted(rule.constants)
        }
        values = ", ".join(f"{name} {value:,}" for name, value in {**defaults, **numbers}.items())
        raise LongRolloutError(
            f"the default configuration breaks the constraint {rule.text!r} ({values}): "
            "its rollout is longer than the steps between two evaluations or rungs; "
            "give more fidelity.steps, fewer fidelity.evaluations or rungs, "
            f"fewer environment.n_envs, or a smaller default for {' or '.join(defaults)}"
        ) from None
