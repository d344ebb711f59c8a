"""The study file: every key, its default and what it allows.

`load_spec` reads YAML (or a mapping), applies `--set` overrides, checks everything that can be checked without
training, and returns a frozen `Spec`. `Spec.freeze` gives the self-contained YAML that is stored with the study: the
search space is written out, seed counts become lists, paths become absolute, so the study never depends on a file that
may change later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from autorl import trainers
from autorl.evaluation import Constraint, Fixed, Judge, Objective, Racing
from autorl.landscapes.warm_start import fitting, misfit, starting_configurations
from autorl.masking import masked
from autorl.optimizers.registry import search_kind
from autorl.plain_text import shown
from autorl.plain_values import plain
from autorl.seeds import SeedPlan
from autorl.space import (
    Document,
    Dumper,
    Space,
    compile_algorithms,
    load_space,
    parse_document,
    read_document,
    split_algorithm,
    unknown_key,
)
from autorl.space.canonical import jsonable
from autorl.spec.checks import (
    check_budget,
    check_evaluations,
    check_n_envs,
    check_names_and_places,
    check_racing,
    with_constants_of_study,
)
from autorl.spec.optimizer import cuts_of, default_parallelism, earlier_options, stored_options
from autorl.spec.sections import (
    MOST_RUNS,
    AlgorithmSection,
    BudgetSection,
    ConstraintSection,
    Count,
    EnvironmentSection,
    EvaluationSection,
    ExecutorSection,
    FailuresSection,
    FidelitySection,
    KeepSection,
    LandscapeSection,
    LimitsSection,
    ObjectiveSection,
    OptimizerSection,
    Section,
    SeedsSection,
    StudySeed,
    TestSection,
    TrainerSection,
    WarmStart,
    WarmStartSection,
)
from autorl.trainers import TrainerInfo
from autorl.types import Config, FrozenMap, InputError, TrainerSpec

UNLIMITED = MOST_RUNS  # configurations: the budget of an embedded search, which ends when its caller stops asking


class Spec(Section):
    """A study file, checked. `space`, `plan` and the specs of trainers are resolved on it."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    name: str = "study"
    seed: StudySeed = 0
    trainer: TrainerSection | None = None
    environment: EnvironmentSection = EnvironmentSection()
    space: str | dict[str, Any] | None = None
    algorithms: dict[str, AlgorithmSection] | None = None
    objective: list[ObjectiveSection] = Field(default_factory=lambda: [ObjectiveSection()])
    allow_proxy_selection: bool = False
    """RLHF: whether a study may select by the signal it trains on, which finds the worst over-optimisation."""
    constraints: list[ConstraintSection] = Field(default_factory=list)
    fidelity: FidelitySection
    optimizer: OptimizerSection = OptimizerSection()
    budget: BudgetSection
    seeds: SeedsSection = SeedsSection()
    evaluation: EvaluationSection = EvaluationSection()
    parallelism: Count = 8
    """Proposals in flight: outcome i - parallelism is observed before ask i. `load_spec` sets the default by budget."""
    asynchronous: bool = False
    executor: ExecutorSection = ExecutorSection()
    failures: FailuresSection = FailuresSection()
    limits: LimitsSection = LimitsSection()
    warm_start: WarmStart = Field(default_factory=list)
    test: TestSection = TestSection()
    keep: KeepSection = KeepSection()
    landscape: LandscapeSection | None = None
    path: str | None = None
    """Folder modules are imported from; default the study file's."""
    _document: Document | None = PrivateAttr(None)
    _own_parallelism: bool = PrivateAttr(
        True
    )  # False where it is the default for the study's budget

    @field_validator("objective", mode="before")
    @classmethod
    def _one_objective(cls, value: Any) -> Any:
        return value if isinstance(value, list) else [value]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.algorithms is None) == (self.trainer is None):
            raise ValueError("needs either `trainer` and `space`, or `algorithms`")
        if (self.algorithms is None) == (self.space is None):
            raise ValueError("needs `space` beside `trainer`; `algorithms` bring their own")
        if not self.objective:
            raise ValueError("`objective` needs at least one entry")
        labels = [objective.label for objective in self.objectives()]
        repeated = next((label for label in labels if labels.count(label) > 1), None)
        if repeated is not None:
            raise ValueError(f"`objective` lists {repeated} twice")
        return self

    # -- resolved: what the rest of the package asks for -----------------------------------------------------------

    @cached_property
    def plan(self) -> SeedPlan:
        return self.seeds.resolve()

    @cached_property
    def search_space(self) -> Space:
        """The space all optimizers see; with `algorithms`, one conditional space over all of them."""
        return compile_algorithms(self.spaces) if self.algorithms is not None else self.spaces[""]

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """The space of each algorithm, without its prefix ("" when there is one)."""
        if self.algorithms is not None:
            return {name: self._load(part.space) for name, part in self.algorithms.items()}
        assert self.space is not None
        return {"": self._load(self.space)}

    @property
    def frozen_space(self) -> Space:
        """The space of a frozen study file: `search_space`, found without importing anything.

        A frozen file holds the shortest distance between two evaluations where its space needs it.
        To find it anew, the study's optimizer is asked, which may be a class of the user's.
        """
        if self.algorithms is not None:
            parts = self.algorithms.items()
            return compile_algorithms(
                {name: self._load(part.space, frozen=True) for name, part in parts}
            )
        assert self.space is not None
        return self._load(self.space, frozen=True)

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The configurations to begin with, after the default one."""
        assert isinstance(self.warm_start, list), "load_spec looks sources up"
        return self.warm_start

    def _load(self, source: str | dict[str, Any], *, frozen: bool = False) -> Space:
        space = load_space(source, self._folder)
        ours = {"n_envs": self.environment.n_envs, "horizon": self.fidelity.steps}
        named = {*space.missing, *space.constants}
        if "evaluation_interval" in named and not frozen:
            ours["evaluation_interval"] = self.evaluation_interval
        used = {name: value for name, value in ours.items() if name in named}
        return with_constants_of_study(space, used) if used else space

    @cached_property
    def evaluation_steps(self) -> tuple[int, ...]:
        """Nominal steps of a full run's evaluations, equally spaced, the last at the end."""
        steps, n = self.fidelity.steps, self.fidelity.evaluations
        return tuple(sorted({steps * k // n for k in range(1, n + 1)} - {0}))

    @cached_property
    def evaluation_interval(self) -> int:
        """Shortest distance between two evaluations, or two steps the optimizer ends segments at; 0 counts as one."""
        ends = (self.evaluation_steps, cuts_of(self))
        return min(later - step for steps in ends for step, later in pairwise((0, *steps)))

    @property
    def trainers(self) -> dict[str, TrainerSpec]:
        """Every trainer the study may use, by algorithm ("" when there is one)."""
        if self.algorithms is not None:
            return {
                name: self._trainer(section.trainer) for name, section in self.algorithms.items()
            }
        assert self.trainer is not None
        return {"": self._trainer(self.trainer)}

    def info(self, trainer: TrainerSpec | TrainerSection) -> TrainerInfo:
        """What one of its trainers is like; a class of the user's lies beside the study file."""
        return trainers.info(trainer.name, self.path)

    @property
    def steps(self) -> str:
        """What its trainers count, as text: `environment steps`, `optimizer steps`, or `steps` of the user's own."""
        units = {self.info(trainer).step_unit for trainer in self.trainers.values()}
        unit = units.pop() if len(units) == 1 else None
        return (unit or "steps").replace("_", " ")

    def _trainer(self, section: TrainerSection) -> TrainerSpec:
        """Scripts and functions are looked for beside the study file unless it says where."""
        of_user = self.info(section).of_user
        where = {"path": self.path} if of_user and self.path is not None else {}
        return TrainerSpec(section.name, FrozenMap({**where, **section.kwargs}))

    def trainer_for(self, config: Config) -> tuple[TrainerSpec, Config]:
        """The trainer of a configuration and the configuration as that trainer knows it (no algorithm prefix)."""
        if self.algorithms is None:
            return self.trainers[""], config
        algorithm, own = split_algorithm(config)
        return self.trainers[algorithm], own

    def objectives(self) -> tuple[Objective, ...]:
        return tuple(
            Objective(section.metric, section.reduce, section.direction)
            for section in self.objective
        )

    @property
    def stated_penalty(self) -> float | None:
        """The number a failed run scores, in the metric's own direction; None: the worst score told so far."""
        return None if isinstance(self.failures.penalty, str) else self.failures.penalty

    def judge(self) -> Judge:
        constraints = [
            Constraint(section.metric, section.max, section.min) for section in self.constraints
        ]
        return Judge(self.objectives(), constraints, self.evaluation.aggregate, self.stated_penalty)

    @property
    def ends_at_chosen_step(self) -> bool:
        """Whether runs that are trained for their model end at the step their score is read at.

        Not where another objective needs the whole run, nor for a landscape, which is made of whole curves.
        """
        return self.landscape is None and self.judge().reads_one_step

    @property
    def adds_baseline(self) -> bool:
        """Whether the default configuration is trained as far as the incumbent: there is a search, and a test of it."""
        kind = search_kind(self.optimizer.name, self.path)
        if self.landscape is not None or kind in ("phased_design", "schedule"):
            return False
        return self.test.baseline and bool(self.plan.test)

    def policy(self) -> Fixed | Racing:
        if self.evaluation.seeds == "fixed":
            return Fixed(self.plan.tuning)
        maximum = self.evaluation.max or len(self.plan.tuning)
        return Racing(self.plan.tuning, self.evaluation.min, maximum, self.evaluation.rule)

    @property
    def full_runs(self) -> float:
        """Full-length proposals the budget pays for at the first seeds: what an optimizer may plan with."""
        per_proposal = len(self.policy().first)
        budget = self.budget
        if budget.configurations is not None:
            return math.inf if budget.configurations >= UNLIMITED else float(budget.configurations)
        if budget.environment_steps is not None:
            return budget.environment_steps / (self.fidelity.steps * per_proposal)
        return budget.runs / per_proposal if budget.runs is not None else float("inf")

    @property
    def indeterminate(self) -> str | None:
        """Why the same file may give another table, or None when it cannot."""
        reasons = [
            ("asynchronous: true", self.asynchronous),
            ("a budget in hours", self.budget.hours is not None),
            ("limits.segment_seconds", self.limits.segment_seconds is not None),
            ("limits.memory_gb", self.limits.memory_gb is not None),
            (
                "an objective in wall-clock seconds",
                any(o.metric == "wall_seconds" for o in self.objective),
            ),
            (
                "a constraint in wall-clock seconds",
                any(c.metric == "wall_seconds" for c in self.constraints),
            ),
        ]
        found = [text for text, holds in reasons if holds]
        return ", ".join(found) if found else None

    @property
    def _folder(self) -> Path | None:
        return Path(self.path) if self.path else None

    def changed(self, **sections: Any) -> Self:
        """A copy with other sections; what the study resolves from them is resolved anew."""
        copy = self.model_copy(update=sections)
        for name in ("plan", "search_space", "evaluation_steps", "evaluation_interval"):
            copy.__dict__.pop(name, None)
        return copy

    def located(self, error: InputError) -> InputError:
        """`error` with the file and line of its key, when the study was read from a file."""
        return (
            error
            if self._document is None or error.file is not None
            else self._document.located(error)
        )

    def freeze(self) -> str:
        """The study file as stored: self-contained YAML with every default written out."""
        data = self.model_dump(mode="json")
        if self.space is not None:
            data["space"] = self._load(self.space).to_dict()
        for name, section in (self.algorithms or {}).items():
            data["algorithms"][name]["space"] = self._load(section.space).to_dict()
        data["seeds"] = {"tuning": list(self.plan.tuning), "test": list(self.plan.test)}
        optimizer = self.optimizer
        named = {"name": optimizer.name, "stop": optimizer.stop, "rungs": optimizer.rungs}
        data["optimizer"] = named | stored_options(self)
        kept = {key: value for key, value in data.items() if value is not None}
        return str(yaml.dump(kept, Dumper=Dumper, sort_keys=False))

    def same_study(self, stored: Spec) -> bool:
        """Whether a stored study is this one, with the defaults of today or those of earlier versions.

        A study keeps the defaults it began with. Where it was started and what runs its segments are no part of it.
        """
        mine = self.model_copy(update={"path": stored.path, "executor": stored.executor})
        earlier = OptimizerSection(**_earlier(self, lambda: self.search_space))
        before: dict[str, Any] = {"optimizer": earlier}
        if not self._own_parallelism:
            before["parallelism"] = Spec.model_fields["parallelism"].default
        return stored.freeze() in (mine.freeze(), mine.model_copy(update=before).freeze())


def load_spec(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> Spec:
    """Read a study file, or take a mapping; `overrides` are values by dotted key, as given to `--set`.

    Raises:
        InputError: naming file, key, line, what is wrong and what is allowed.
    """
    if isinstance(source, Mapping):
        document, folder = Document(dict(source), {}), Path.cwd()
    else:
        document, folder = read_document(source), Path(source).resolve().parent
    if not isinstance(document.data, Mapping):
        raise document.error("expected a mapping of keys such as `trainer`, `space`, `budget`")
    data = plain(document.data)
    data.setdefault("path", str(folder))
    if not isinstance(source, Mapping):
        data.setdefault("name", Path(source).stem)
    for key, value in (overrides or {}).items():
        _override(data, key, value)
    _fill_defaults(data)
    _share_n_envs(data)
    _pin_options(data)
    _pin_files(data)
    spec = _validated(data, document)
    spec._document = document
    _check_resolved(spec, document, data)
    spec = _with_starts(spec, document)
    if "parallelism" not in data:
        spec = spec.model_copy(update={"parallelism": default_parallelism(spec)})
        spec._document, spec._own_parallelism = document, False
    try:
        check_budget(spec)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None
    return spec


def thaw(text: str, file: str) -> Spec:
    """The spec of a frozen study file, as `Spec.freeze` wrote it.

    Raises:
        InputError: the file was changed by hand into something that is no study, or is torn.
    """
    document = parse_document(text, file)
    spec = _validated(document.data, document)
    optimizer = OptimizerSection(**_earlier(spec, lambda: spec.frozen_space))
    return spec.model_copy(update={"optimizer": optimizer})


def _earlier(spec: Spec, read_space: Callable[[], Space]) -> dict[str, Any]:
    """The optimizer's section, with what an earlier version left to its defaults at what they were worth then."""
    section = spec.optimizer
    return (
        earlier_options(section.name, read_space, section.model_dump(exclude_none=True))
        | section.options
    )


def parse_override(text: str) -> tuple[str, Any]:
    """`fidelity.steps=5e4` as (key, value); the value is read as YAML.

    Raises:
        InputError: there is no `=`.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InputError(f"expected key=value, got {text!r}", file="--set")
    return key.strip(), parse_document(value, "--set").data


def _validated(data: Any, document: Document) -> Spec:
    try:
        return Spec.model_validate(data)
    except InputError as error:
        raise document.located(error) from None
    except ValidationError as error:
        raise _first_problem(error, document) from None


def _override(data: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    place: Any = data
    for depth, name in enumerate(parents):
        if name in ("trainer", "optimizer", "environment") and isinstance(place.get(name), str):
            place[name] = {"id" if name == "environment" else "name": place[name]}
        if name == "space" and isinstance(place.get(name), str):
            place[name] = {"extends": place[name]}
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InputError(
                f"{'.'.join(parents[: depth + 1])} is not a mapping", file="--set", key=key
            )
    place[last] = value


def _fill_defaults(data: dict[str, Any]) -> None:
    """Add the sections that a study may leave out because its trainers know better."""
    names = [_name_of(trainer) for trainer in _trainer_sections(data)]
    described = [trainers.info(name, str(data["path"])) for name in names]
    if not described or len({_family(info) for info in described}) > 1:
        return
    task, kwargs = _environment_of(data)
    for key, section in described[0].default_sections(names, task, kwargs).items():
        data.setdefault(key, section)
    objective = data.get("objective")
    if isinstance(objective, dict) and described[0].default_metric is not None:
        objective.setdefault("metric", described[0].default_metric)


def _trainer_sections(data: Mapping[str, Any]) -> list[Any]:
    """What a study file says under `trainer`, or under that of each of its algorithms."""
    algorithms = data.get("algorithms")
    if not isinstance(algorithms, Mapping):
        return [data.get("trainer")]
    return [each.get("trainer") for each in algorithms.values() if isinstance(each, Mapping)]


def _family(info: TrainerInfo) -> object:
    """What trainers have in common that have the same defaults: the method that says them."""
    return type(info).default_sections


def _environment_of(data: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any] | None]:
    """The id of the environment and its options, as far as a study file that is not checked says them."""
    environment = data.get("environment")
    if not isinstance(environment, Mapping):
        return environment if isinstance(environment, str) else None, None
    name, kwargs = environment.get("id"), environment.get("kwargs")
    options = kwargs if isinstance(kwargs, Mapping) else None
    return name if isinstance(name, str) else None, options


def _share_n_envs(data: dict[str, Any]) -> None:
    """Say a number of environments among the trainer's options where the space's constraints see it."""
    trainer = data.get("trainer")
    kwargs = trainer.get("kwargs") if isinstance(trainer, Mapping) else None
    if not isinstance(kwargs, Mapping) or "n_envs" not in kwargs:
        return
    if not trainers.info(_name_of(trainer), str(data["path"])).takes_n_envs:
        return
    environment = data.get("environment")
    if isinstance(environment, str):
        data["environment"] = {"id": environment, "n_envs": kwargs["n_envs"]}
    elif isinstance(environment, dict):
        environment.setdefault("n_envs", kwargs["n_envs"])


def _name_of(trainer: Any) -> str:
    name = trainer.get("name") if isinstance(trainer, Mapping) else trainer
    return name if isinstance(name, str) else ""


def _pin_options(data: dict[str, Any]) -> None:
    """Make what trainers' options name absolute: a study is resumed from any working folder."""
    for trainer in _trainer_sections(data):
        kwargs = trainer.get("kwargs") if isinstance(trainer, dict) else None
        if isinstance(kwargs, dict):
            folder = str(data["path"])
            trainer["kwargs"] = trainers.info(_name_of(trainer), folder).pinned(kwargs, folder)


def _pin_files(data: dict[str, Any]) -> None:
    """A user's own models and data, by their absolute path, as landscapes are."""
    environment = data.get("environment")
    if isinstance(environment, dict) and environment.get("id") == "files":
        from autorl.rlhf.tasks.files import pinned

        kwargs = environment.get("kwargs")
        if isinstance(kwargs, Mapping):
            environment["kwargs"] = pinned(kwargs, str(data["path"]))


def _check_resolved(spec: Spec, document: Document, data: Mapping[str, Any]) -> None:
    """What a model cannot check: seeds, space and keys together, so that their errors come before any training."""
    try:
        check_names_and_places(spec)
        check_racing(spec)
        check_evaluations(spec, data)
        _space_located(spec, document)
        check_n_envs(spec, data)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None


def _with_starts(spec: Spec, document: Document) -> Spec:
    """The spec with its warm start as a list of configurations of its space: the study depends on no other data."""
    section, chosen = spec.warm_start, list[tuple[str, Mapping[str, Any]]]()
    if isinstance(section, list):
        chosen = [(f"warm_start[{number}]", config) for number, config in enumerate(section)]
    else:
        try:
            chosen += starting_configurations(
                section.source, section.top, section.sql, folder=spec.path
            )
        except InputError as error:
            key = "warm_start.sql" if error.key == "sql" else "warm_start"
            where = f"{error.file}: " if error.file else ""
            raise document.located(InputError(where + error.message, key=key)) from None
    starts, misfits = fitting(spec.search_space, chosen)
    skip = isinstance(section, WarmStartSection) and section.misfits == "skip"
    if misfits and (not skip or not starts):
        raise misfit(misfits, document, listed=isinstance(section, list))
    if isinstance(section, list):
        return spec
    found = spec.model_copy(update={"warm_start": [jsonable(config) for config in starts]})
    found._document = document
    return found


def _space_located(spec: Spec, document: Document) -> Space:
    """The resolved space; an inline definition's errors name the line of the study file."""
    try:
        return spec.search_space
    except InputError as error:
        of_the_file = error.file is None and (isinstance(spec.space, dict) or error.key is None)
        raise (document.located(error, "space") if of_the_file else error) from None


def _first_problem(error: ValidationError, document: Document) -> InputError:
    """The first problem pydantic found, as one line."""
    first = error.errors()[0]
    path = [part for part in first["loc"] if _is_key(part)]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    if first["type"] == "extra_forbidden":
        return document.error(unknown_key(path[-1], _known_keys(path[:-1])), key)
    if first["type"] == "missing":
        return document.error("is missing", key)
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping of keys", message)
    if first["type"] != "value_error":
        message += f", got {shown(masked(first['input']))}"
    return document.error(message, key)


def _is_key(part: str | int) -> bool:
    """False for what pydantic adds to a location: the branch of a union it tried, such as `list[any]` or `int`."""
    return isinstance(part, int) or (
        re.fullmatch(r"[\w.-]+", part) is not None and part not in _TYPES
    )


_TYPES = frozenset({"int", "float", "str", "bool", "constrained-int", "constrained-float"})


def _known_keys(path: Sequence[str | int]) -> list[str]:
    """The keys allowed at a place of the study file."""
    model: type[BaseModel] = Spec
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = _sections(model.model_fields[part].annotation)[0]
    return list(model.model_fields)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The sections a field's annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]
