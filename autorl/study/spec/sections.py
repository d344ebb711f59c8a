"""The sections of a study file: keys, defaults and allowed values."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from autorl.core.plain_text import shown
from autorl.core.seeds import LARGEST_SEED, MOST_SEEDS, SeedPlan
from autorl.core.types import EnvironmentSpec, FrozenMap, Resources, Start, TrainerSpec
from autorl.optimizers.registry import DEFAULT, STOPPING, find_stopping
from autorl.population.task_families import FamilyPurpose
from autorl.population.variants import landscape_name
from autorl.statistics.aggregates import parse_aggregate
from autorl.statistics.episodes import base_metric, info_metric
from autorl.statistics.reductions import parse_reduction

_TIME = r"(?:([0-9]+)-)?([0-9]+):([0-9][0-9]):([0-9][0-9])"


def _integral(value: object) -> object:
    # pydantic would take `true` for 1 and the text "5" for 5.
    if isinstance(value, bool | str):
        raise ValueError(f"expected a whole number, got {shown(value)}")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _number(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError(f"expected a number, got {shown(value)}")
    return value


def _minutes(value: object) -> object:
    """Read [days-]hours:minutes:seconds as minutes, rounded up."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(_TIME, value)
    if match is None:
        raise ValueError(f"expected minutes or [days-]hours:minutes:seconds, got {shown(value)}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return 60 * (24 * days + hours) + minutes + math.ceil(seconds / 60)


_Time: TypeAlias = Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=f"^{_TIME}$")]


def _penalty(value: str | float) -> str | float:
    if value != "worst" and (isinstance(value, bool | str) or not math.isfinite(value)):
        raise ValueError(f"should be 'worst' or a finite number, got {shown(value)}")
    return value


MOST_RUNS = 10**9
"""Full runs, and configurations, of a budget: what no study ever trains."""
_MOST_THINGS = 1_000_000  # evaluations, proposals, workers: each has an entry in memory
_MOST_STEPS = 10**15  # SQLite stores whole numbers below 2**63

# Behind the bounds in the list, before them in time: pydantic then knows of both.
_Whole = BeforeValidator(_integral)
_Real = BeforeValidator(_number)
Count = Annotated[int, Field(ge=1, le=_MOST_THINGS), _Whole]
Steps = Annotated[int, Field(ge=1, le=_MOST_STEPS), _Whole]
Whole = Annotated[int, Field(ge=0, le=_MOST_THINGS), _Whole]
StudySeed = Annotated[int, Field(ge=0, lt=2**63), _Whole]
# pydantic would take the text "yes" for true.
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(allow_inf_nan=False), _Real]
Positive = Annotated[float, Field(gt=0, le=MOST_RUNS, allow_inf_nan=False), _Real]


Name = Annotated[str, Field(min_length=1, max_length=64)]


class Section(BaseModel):
    """One mapping of the study file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    one_of: ClassVar[tuple[str, ...]] = ()
    """Keys of which exactly one is stated."""

    @model_validator(mode="after")
    def _states_one(self) -> Self:
        stated = [key for key in self.one_of if getattr(self, key) is not None]
        if self.one_of and len(stated) != 1:
            keys = ", ".join(self.one_of)
            raise ValueError(f"needs exactly one of {keys}; got {', '.join(stated) or 'none'}")
        return self


class TrainerSection(Section):
    name: str
    """`sb3/ppo`, `population/ppo`, `command`, `python:module:function`, ...

    `autorl list trainers` lists them.
    """
    kwargs: dict[str, Any] = {}  # pydantic gives each instance a copy of a default
    """The trainer's own options."""

    def resolve(self) -> TrainerSpec:
        return TrainerSpec(self.name, FrozenMap(self.kwargs))


class EnvironmentSection(Section):
    id: str | None = None
    """Any Gymnasium id, or `module:Env-v0` to import the module first."""
    kwargs: dict[str, Any] = {}
    """Arguments of the environment's constructor, or parameters of a variant."""
    wrappers: list[Any] = []
    """`module:Class` or `{"module:Class": {arguments}}`, applied in order."""
    n_envs: Count = 1
    """Copies stepped together."""
    normalize: Flag | dict[str, Any] = False
    """Running normalisation of observations and rewards; arguments of SB3's VecNormalize."""
    vec_env: Literal["dummy", "subproc", "envpool", "gymnasium"] = "dummy"
    """Copies in this process, a process each, or together in EnvPool's or the id's own vector."""
    info: dict[str, Literal["sum", "last"]] = {}
    """Values of `info` that become metrics of evaluations, `cost` as `eval_cost`.

    `sum`: over the steps of an episode; `last`: of its last step.
    """

    @field_validator("info")
    @classmethod
    def _own_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name or name.startswith(("return", "length", "success_rate")):
                raise ValueError(f"{info_metric(name)} is a metric of every evaluation")
        return value

    def resolve(self) -> EnvironmentSpec:
        names = EnvironmentSection.model_fields
        return EnvironmentSpec(**FrozenMap({name: getattr(self, name) for name in names}))


class TaskSection(EnvironmentSection):
    """A task: an environment, or a landscape whose runs answer for training."""

    name: str = ""
    """In tables and reports; default the environment's, or the landscape's."""
    landscape: str | None = None
    """An id or a folder, for a trainer that replays one."""
    scale: list[Number] | dict[str, list[Number]] | None = None
    """Scores that count as 0 and 1, or by metric. More than two are quantiles.

    Default of a landscape: the quantiles of its own scores.
    """

    @field_validator("scale")
    @classmethod
    def _ascending(cls, value: Any) -> Any:
        for scores in value.values() if isinstance(value, dict) else [value or [0, 1]]:
            if len(scores) < 2 or sorted(scores) != scores or scores[0] == scores[-1]:
                raise ValueError(f"should be ascending scores such as [low, high], got {scores}")
        return value

    @property
    def label(self) -> str:
        """Its name."""
        if self.landscape is not None and not self.name:
            return self.landscape.rstrip("/").rpartition("/")[2]
        return self.name or landscape_name(self.resolve()) or "the trainer's own"

    @property
    def trained_on(self) -> tuple[object, ...]:
        """The parts that make it another task."""
        environment = self.resolve()
        return environment.id, environment.kwargs, environment.wrappers, self.landscape


class TasksSection(Section):
    """Tasks of a study, crossed with its seeds."""

    tuning: list[TaskSection]
    """Tasks every configuration is trained on during the search."""
    test: list[TaskSection] = []
    """Tasks only the frozen candidates are trained on; disjoint from `tuning`."""

    @property
    def listed(self) -> list[TaskSection]:
        """All tasks, those to tune on first."""
        return [*self.tuning, *self.test]

    def scales(self, metric: str) -> list[dict[str, list[float]]]:
        """Return the scores that make the scale of each task, by metric.

        Empty where scores are as measured. `metric`: of one that is stated alone.
        """
        stated = [task.scale for task in self.listed if task.scale is not None]
        return [value if isinstance(value, dict) else {metric: value} for value in stated]

    @property
    def text(self) -> str:
        """The tasks in words, with their scales."""
        texts = [
            task.label if task.scale is None else f"{task.label} {task.scale}"
            for task in self.listed
        ]
        count = len(self.tuning)
        return f"tuning {', '.join(texts[:count])}; test {', '.join(texts[count:]) or 'none'}"

    def key(self, number: int) -> str:
        """Name the place of a task in the study file."""
        count = len(self.tuning)
        return f"tasks.tuning[{number}]" if number < count else f"tasks.test[{number - count}]"

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        if not self.tuning:
            raise ValueError("`tuning` needs at least one task")
        names: set[str] = set()
        seen: set[tuple[object, ...]] = set()
        for number, task in enumerate(self.listed):
            if task.trained_on in seen:
                tuned = [entry.trained_on for entry in self.tuning]
                shared = number >= len(tuned) and task.trained_on in tuned
                where = "both in tuning and in test: they must be disjoint" if shared else "twice"
                raise ValueError(f"lists {task.label} {where}")
            if task.label in names:
                raise ValueError(f"two tasks are called {task.label}: give one of them a `name`")
            seen.add(task.trained_on)
            names.add(task.label)
        return self


# Resources with keys of their own in Ray or in this file.
_OWN_RESOURCES = frozenset({"cpu", "gpu", "memory", "memory_gb", "nodes", "object_store_memory"})


class ResourcesSection(Section):
    """Resources of a segment on a machine, or on each gang host."""

    cpu: Positive | None = None
    """Cores, a part of one too. Above 1 they are the threads its libraries may start."""
    gpu: Annotated[float, Field(ge=0, le=_MOST_THINGS, allow_inf_nan=False), _Real] | None = None
    """GPUs of one host: a share of one, or a whole number."""
    memory_gb: Positive | None = None
    """Memory in GiB, which decides how many segments run at once; `limits` ends one for it."""
    nodes: Count | None = None
    """Hosts that train one segment together."""
    custom: dict[str, Positive] | None = None
    """Amounts of what a cluster's nodes are said to have, by name."""

    @field_validator("gpu")
    @classmethod
    def _share_or_whole(cls, value: float | None) -> float | None:
        if value is not None and value > 1 and not value.is_integer():
            raise ValueError(
                f"expected a share of one GPU such as 0.25, or a whole number, got {value:g}"
            )
        return value

    @field_validator("custom")
    @classmethod
    def _of_cluster(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        for name in value or {}:
            if not name or name.lower() in _OWN_RESOURCES:
                raise ValueError(f"expected names of a cluster's own resources, got {name!r}")
        return value

    def stated(self) -> dict[str, Any]:
        """Return the keys that the file states."""
        return self.model_dump(exclude_none=True)

    def over(self, needs: Resources) -> Resources:
        """Replace what the file states in needs that something else asks for."""
        stated = self.stated()
        if "custom" in stated:
            stated["custom"] = FrozenMap(stated["custom"])
        return dataclasses.replace(needs, **stated)


class AlgorithmSection(Section):
    trainer: TrainerSection
    """The trainer of this algorithm."""
    resources: ResourcesSection | None = None
    """What a segment of it needs, key by key instead of what the study's `resources` say."""
    space: str | dict[str, Any]
    """Its search space; names are prefixed with the algorithm's."""


# A direction left out for these metrics would search for the worst.
_SMALLER_IS_BETTER = (
    "kl",
    "tokens",
    "completions",
    "truncated",
    "reward_zero_std",
    "wall_seconds",
    "environment_steps",
    "peak_memory_mb",
)


class ObjectiveSection(Section):
    metric: str = "eval_return"
    """A metric the trainer reports, or a cost.

    A cost is `wall_seconds`, `environment_steps`, `steps_per_second` or `peak_memory_mb`.
    """
    reduce: str = "last"
    """How a learning curve becomes a number: last, best, mean_last(k), auc, time_to(score).

    `time_to` is the first step at which an evaluation reaches the score, and less is better; a run
    that never does, or fails, counts twice `fidelity.steps`. `direction` is the metric's.
    """
    direction: Literal["maximize", "minimize"] = "maximize"
    """Of the metric: whether more or less of it is better."""

    @model_validator(mode="after")
    def _has_a_direction(self) -> Self:
        if (
            base_metric(self.metric) in _SMALLER_IS_BETTER
            and "direction" not in self.model_fields_set
        ):
            raise ValueError(
                f"less of {self.metric} is better: say `direction: minimize` (or `maximize`)"
            )
        return self

    @field_validator("reduce")
    @classmethod
    def _known(cls, value: str) -> str:
        parse_reduction(value, "objective.reduce")
        return value


class ConstraintSection(Section):
    """A bound of a metric, for feasible configurations."""

    metric: str
    """A metric the trainer reports, or a cost: the mean over seeds of its last evaluation."""
    max: Number | None = None
    """The most it may be."""
    min: Number | None = None
    """The least it may be."""
    one_of = ("max", "min")


class FidelitySection(Section):
    steps: Steps
    """Length of a full run in counted environment steps (optimizer steps for RLHF).

    It is also the horizon of schedules.
    """
    evaluations: Annotated[int, Field(ge=1, le=100_000), _Whole] = 10
    """Equally spaced evaluations of a full run."""
    episodes: Count = 32
    """Episodes of each evaluation."""
    metrics: list[str] = []
    """Further metrics of it: `eval_return_cvar_10` (mean of the lowest 10 % of its episodes).

    Also `_upper_cvar_10` and `_quantile_10`. Those of objectives and constraints need not be here.
    """


class OptimizerSection(Section):
    # Further keys are the optimizer's options, which its class checks.
    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = DEFAULT
    """`autorl list optimizers` names them; their options are further keys of this mapping."""
    stop: Literal["median", "learned", "overoptimizing"] | None = None
    """Cut runs at a rung.

    `median`: those below the median of their peers; `learned`: those that are unlikely to beat the
    incumbent, by learning curves; `overoptimizing`: those that KL predicts to fall (RLHF).
    """
    rungs: Count | None = None
    """How many rungs `stop` compares at (default 5; `overoptimizing` 2), or an optimizer's own."""

    @model_validator(mode="before")
    @classmethod
    def _rungs_of_stop(cls, value: object) -> object:
        # Only with `stop`: an optimizer may have an option of this name and a default of its own.
        if isinstance(value, dict) and str(value.get("stop")) in STOPPING:
            return {"rungs": find_stopping(value["stop"]).Options.rungs} | value
        return value

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


Counted: TypeAlias = Literal["tokens", "completions"]
"""Budgets by the metric of their name."""
COUNTED: tuple[Counted, ...] = get_args(Counted)
Measured: TypeAlias = Literal["hours", "gpu_hours", Counted]
"""Budgets that only outcomes or a clock use up."""


class BudgetSection(Section):
    """Exactly one amount, and what ends the search early.

    The test phase is not included.
    """

    runs: Positive | None = None
    """Full-run equivalents: tuning steps / fidelity.steps, over all seeds and rungs.

    Charged when proposed.
    """
    configurations: Annotated[int, Field(ge=1, le=MOST_RUNS), _Whole] | None = None
    """Proposals that start from scratch."""
    environment_steps: Steps | None = None
    """Tuning steps, charged when proposed."""
    hours: Positive | None = None
    """Wall-clock hours of the driver, over all its sessions; gives up the same-table guarantee."""
    gpu_hours: Positive | None = None
    """Hours of tuning segments times their `resources.gpu`; gives up the same-table guarantee."""
    tokens: Steps | None = None
    """Tokens of tuning segments, by the metric `tokens` of their runs."""
    completions: Steps | None = None
    """The same, by the metric `completions`."""
    target: Number | None = None
    """Ends the search once the incumbent's tuning score, at full length, is as good."""
    converged: Count | None = None
    """Ends the search once so many configurations improved the best score no more than noise does.

    Noise is the standard error of a score over its tuning seeds.
    """
    one_of = ("runs", "configurations", "environment_steps", *get_args(Measured))

    @property
    def reads_outcomes(self) -> bool:
        """Say whether scores or the clock may end the search."""
        return any(value is not None for value in (self.measured, self.target, self.converged))

    @property
    def measured(self) -> Measured | None:
        """The amount that only outcomes or a clock show, else None."""
        names: tuple[Measured, ...] = get_args(Measured)
        return next((name for name in names if getattr(self, name) is not None), None)

    @property
    def counted(self) -> Counted | None:
        """The metric that the budget is counted by, else None."""
        return next((name for name in COUNTED if name == self.measured), None)


ADAPTIVE_SEEDS = 5
"""Tuning seeds of a study that leaves optimizer, evaluation and tuning seeds to the defaults.

It is so where its algorithm has a prior.
"""


_Seeds: TypeAlias = list[
    Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": LARGEST_SEED})]
]


class SeedsSection(Section):
    # `SeedPlan` checks what a list holds.
    tuning: Annotated[int, Field(ge=1, le=MOST_SEEDS), _Whole] | _Seeds = 3
    """A count n (seeds 0..n-1) or a list."""
    test: Annotated[int, Field(ge=0, le=MOST_SEEDS), _Whole] | _Seeds = 10
    """A count m (seeds 100..100+m-1) or a list; disjoint from `tuning`."""

    def resolve(self) -> SeedPlan:
        return SeedPlan(self.tuning, self.test)


class EvaluationSection(Section):
    seeds: Literal["fixed", "racing", "adaptive"] = "fixed"
    """Every tuning seed for every proposal, or more only for those that hold their own.

    A race is run against the incumbent. With `adaptive` the best few get more at the end.
    """
    min: Count = 1
    """Racing, adaptive: seeds of every proposal.

    With `tasks` pairs of both, by default one on each.
    """
    max: Count | None = None
    """Racing, adaptive: seeds (pairs) of an incumbent; default all there are to tune with."""
    share: Annotated[float, Field(gt=0, le=0.5), _Real] | None = None
    """Adaptive: part of the budget that gives the best few more seeds.

    Default 0.15, or what the optimizer says of its prior.
    """
    rule: Literal["mean", "t"] = "mean"
    """Racing: a proposal is dropped when its paired mean is below the incumbent's.

    With `t` only when it is significantly so.
    """
    aggregate: str = "mean"
    """Over seeds: mean, median, iqm, worst, cvar(0.2), quantile(0.25), mean_minus_std(1)."""

    @field_validator("aggregate")
    @classmethod
    def _known(cls, value: str) -> str:
        parse_aggregate(value, "evaluation.aggregate")
        return value


class ExecutorSection(Section):
    name: Literal["in_process", "threads", "processes", "ray", "slurm"] | None = None
    """Default: threads for `population/*`, processes for the rest."""
    workers: Count | None = None
    """Segments at once; default the machine's cores, on `ray` what the cluster has, on `slurm` 100.

    Never changes a result.
    """
    address: str | None = None
    """Of the cluster of `ray`: local (a Ray of its own), auto, HOST:PORT or ray://HOST:PORT.

    Default: auto where RAY_ADDRESS is set, else local.
    """
    autoscaler: Flag = False
    """Whether the cluster of `ray` adds nodes: up to `workers` are asked for, room or not."""
    devices: list[str | int] = []
    """CUDA devices of the processes executor, `0,1` for a group.

    Segments share them as `resources.gpu` says.
    """
    cluster: Literal["slurm", "local"] = "slurm"
    """Where jobs of `slurm` are submitted; `local`: processes of this machine, to try it."""
    partition: str | None = None
    """Of the jobs; default the cluster's own."""
    time: Annotated[
        int, Field(ge=1), _Whole, BeforeValidator(_minutes, json_schema_input_type=_Time)
    ] = 60
    """Of a job: minutes, or [days-]hours:minutes:seconds. A job that takes longer is lost."""
    batch: Count = 1
    """The most segments of a job, which trains them side by side and asks for what all need."""
    sbatch: dict[str, str | int | float | bool] = {}
    """Further options of `sbatch`, such as `{account: rl, qos: high}`."""


class FailuresSection(Section):
    penalty: Annotated[
        str | float,
        AfterValidator(_penalty),
        WithJsonSchema({"anyOf": [{"const": "worst"}, {"type": "number"}]}),
    ] = "worst"
    """Score of a failed seed: the worst told so far at that fidelity, or a number.

    The number is in the metric's own direction.
    """
    retries: Whole = 3
    """How often a segment whose worker was lost is tried again."""


class LimitsSection(Section):
    # How far a training has come by then depends on the machine.
    segment_seconds: Positive | None = None
    """Wall-clock limit of one segment; gives up the same-table guarantee."""
    memory_gb: Positive | None = None
    """Resident memory of one segment, in GiB."""
    disk_gb: Positive | None = 20
    """Checkpoints of the study together, in GiB; checked before each segment that saves one."""


class TestSection(Section):
    __test__ = False  # not a test class, whatever its name suggests to pytest
    top: Whole = 3
    """How many of the best proposals are trained on test seeds, the incumbent one of them.

    They never re-rank it.
    """
    baseline: Flag = True
    """Train the default configuration as far as the incumbent where the search did not.

    This is beyond the budget.
    """


class KeepSection(Section):
    checkpoints: Literal["incumbent", "top", "lineage", "none"] = "incumbent"
    """Which checkpoints outlive the study.

    The incumbent's test runs, also the top k's, every one, or none.
    """


class WarmStartSection(Section):
    """Configurations of a study, a landscape or a preset to begin with."""

    study: str | None = None
    """Another study's folder, relative to the study file or the working folder.

    This or `landscape`.
    """
    landscape: str | None = None
    """An id or a folder."""
    zoo: str | None = None
    """A file of RL Baselines3 Zoo, relative to the study file: its one configuration."""
    entry: str | None = None
    """Of that file, where it is not the study's environment."""
    card: str | None = None
    """A file of `autorl card`, relative to the study file: its configuration."""
    top: Count = 5
    """How many configurations: the best by the interquartile mean over their tuning seeds."""
    sql: str | None = None
    """Or a query: the configurations of its column `config_id`, in its order."""
    misfits: Literal["refuse", "skip"] = "refuse"
    """What becomes of configurations outside this study's space."""

    one_of = ("study", "landscape", "zoo", "card")

    @model_validator(mode="after")
    def _names_a_zoo(self) -> Self:
        if self.entry is not None and self.zoo is None:
            raise ValueError("`entry` is of a file that `zoo` names")
        return self

    @property
    def source(self) -> str:
        return self.study or self.landscape or ""


class StartSection(Section):
    """The policy that every run begins from, with a replay memory."""

    model: str | None = None
    """A zip of Stable-Baselines3, `NAME.vecnormalize.pkl` beside it. This or `study`."""
    study: str | None = None
    """Another study's folder: the model of its incumbent."""
    memory: str | None = None
    """What a replay memory begins with, for `sb3/*` that have one.

    A file of `save_replay_buffer` that ends in `.pkl`, or a data set of Minari on this machine.
    """
    trainer: TrainerSection | None = None
    """Written when the study begins: what trained the model of `study`."""
    files: dict[str, str] | None = None
    """Written when the study begins: SHA-256 by path."""

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.files is None and (self.model is None) == (self.study is None):
            raise ValueError("needs exactly one of `model` and `study`")
        return self

    def resolve(self) -> Start:
        trainer = None if self.trainer is None else self.trainer.resolve()
        return Start(self.model or "", trainer, self.memory, FrozenMap(self.files or {}))


def _kind_of_start(value: object) -> str:
    return "(source)" if isinstance(value, Mapping | WarmStartSection) else "(list)"


# The tags are no keys of the file: `first_problem` leaves them out of a location.
WarmStart = Annotated[
    Annotated[list[dict[str, Any]], Tag("(list)")] | Annotated[WarmStartSection, Tag("(source)")],
    Discriminator(_kind_of_start),
]


class TaskFamilySection(Section):
    """The family of tasks that a landscape's variant was drawn from."""

    name: str
    """Of the family."""
    purpose: FamilyPurpose
    """Whether priors are built from it, or they are examined on it."""
    seed: int
    """Of the draw."""
    hash: str
    """Of all that decides its variants but their number."""


class LandscapeSection(Section):
    """A landscape, which `autorl landscape build` writes when all is trained.

    A study with this section is one for a landscape: test runs are whole, and no default
    configuration is added.
    """

    id: str
    """namespace/algorithm/environment."""
    bounds: tuple[Number | None, Number | None] = (None, None)
    """Smallest and largest value the objective can take; null = unbounded."""
    description: str = ""
    """In a sentence or two, for readers."""
    licence: str = ""
    """An SPDX identifier, such as CC-BY-4.0."""
    citation: str = ""
    """How to cite it."""
    url: str = ""
    """Where it is published."""
    creator: str = ""
    """Who made it."""
    family: TaskFamilySection | None = None
    """Written by `autorl landscape build --family`."""

    @field_validator("bounds")
    @classmethod
    def _ordered(
        cls, value: tuple[float | None, float | None]
    ) -> tuple[float | None, float | None]:
        if value[0] is not None and value[1] is not None and value[0] >= value[1]:
            raise ValueError(f"should be [low, high], got {list(value)}")
        return value
