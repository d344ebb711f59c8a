"""The study file: every key, its default and what it allows.

`load_spec` reads YAML (or a mapping), applies `--set` overrides, checks everything that can be
checked without training, and returns a frozen `Spec`. `Spec.freeze` gives the self-contained YAML
that is stored with the study: the search space is written out, seed counts become lists, paths
become absolute, so the study never depends on a file that may change later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import (
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
from autorl.optimizers.registry import search_kind
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
from autorl.spec.defaults import complete
from autorl.spec.optimizer import cuts_of, default_parallelism, earlier_options, stored_options
from autorl.spec.problems import first_problem
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

# Configurations: the budget of an embedded search, which ends when its caller stops asking.
UNLIMITED = MOST_RUNS


class Spec(Section):
    """A study file that was checked.

    Spaces, seeds and the specs of trainers are resolved on it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    name: str = "study"
    seed: StudySeed = 0
    trainer: TrainerSection | None = None
    environment: EnvironmentSection = EnvironmentSection()
    space: str | dict[str, Any] | None = None
    algorithms: dict[str, AlgorithmSection] | None = None
    objective: list[ObjectiveSection] = Field(default_factory=lambda: [ObjectiveSection()])
    allow_proxy_selection: bool = False
    """RLHF: whether a study may select by the signal it trains on.

    Doing so finds the worst over-optimisation.
    """
    constraints: list[ConstraintSection] = Field(default_factory=list)
    fidelity: FidelitySection
    optimizer: OptimizerSection = OptimizerSection()
    budget: BudgetSection
    seeds: SeedsSection = SeedsSection()
    evaluation: EvaluationSection = EvaluationSection()
    parallelism: Count = 8
    """Proposals in flight: outcome i - parallelism is observed before ask i.

    `load_spec` sets the default by budget.
    """
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
    # False where it is the default for the study's budget.
    _own_parallelism: bool = PrivateAttr(True)

    @field_validator("objective", mode="before")
    @classmethod
    def _one_objective(cls, value: object) -> object:
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

    # -- resolved: what the rest of the package asks for
    # -----------------------------------------------------------

    @cached_property
    def plan(self) -> SeedPlan:
        return self.seeds.resolve()

    @cached_property
    def search_space(self) -> Space:
        """The space all optimizers see.

        With `algorithms`, it is one conditional space over all of them.
        """
        return compile_algorithms(self.spaces) if self.algorithms is not None else self.spaces[""]

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """The space of each algorithm, without its prefix.

        Where there is one trainer only, its name is "".
        """
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
        # Constraints of shipped spaces use them: a rollout must fit between two evaluations.
        constants = {"n_envs": self.environment.n_envs, "horizon": self.fidelity.steps}
        named = {*space.missing, *space.constants}
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
        return tuple(sorted({steps * k // count for k in range(1, count + 1)} - {0}))

    @cached_property
    def evaluation_interval(self) -> int:
        """Shortest distance between two evaluations or two cuts, in steps.

        Cuts are where the optimizer ends segments; step 0 counts as one.
        """
        ends = (self.evaluation_steps, cuts_of(self))
        return min(later - step for steps in ends for step, later in pairwise((0, *steps)))

    @property
    def trainers(self) -> dict[str, TrainerSpec]:
        """Trainers the study may use, by algorithm.

        Where there is one only, its name is "".
        """
        if self.algorithms is not None:
            return {
                name: self._trainer(section.trainer) for name, section in self.algorithms.items()
            }
        assert self.trainer is not None
        return {"": self._trainer(self.trainer)}

    def info(self, trainer: TrainerSpec | TrainerSection) -> TrainerInfo:
        """Describe one of its trainers.

        A class of the user's lies beside the study file.
        """
        return trainers.info(trainer.name, self.path)

    @property
    def steps(self) -> str:
        """Name what its trainers count.

        It is `environment steps`, `optimizer steps`, or `steps` of the user's own.
        """
        units = {self.info(trainer).step_unit for trainer in self.trainers.values()}
        unit = units.pop() if len(units) == 1 else None
        return (unit or "steps").replace("_", " ")

    def _trainer(self, section: TrainerSection) -> TrainerSpec:
        """Resolve the spec of a trainer.

        Scripts and functions are looked for beside the study file unless it says where.
        """
        of_user = self.info(section).of_user
        where = {"path": self.path} if of_user and self.path is not None else {}
        return TrainerSpec(section.name, FrozenMap({**where, **section.kwargs}))

    def trainer_for(self, config: Config) -> tuple[TrainerSpec, Config]:
        """Return the trainer of a configuration, and what that trainer is given.

        The configuration loses the prefix of its algorithm.
        """
        if self.algorithms is None:
            return self.trainers[""], config
        algorithm, config_of_algorithm = split_algorithm(config)
        return self.trainers[algorithm], config_of_algorithm

    def objectives(self) -> tuple[Objective, ...]:
        return tuple(
            Objective(section.metric, section.reduce, section.direction)
            for section in self.objective
        )

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
        return Judge(self.objectives(), constraints, self.evaluation.aggregate, self.stated_penalty)

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
        """Full-length proposals the budget pays for at the first seeds.

        That is what an optimizer may plan with.
        """
        per_proposal = len(self.policy().first)
        budget = self.budget
        if budget.configurations is not None:
            return math.inf if budget.configurations >= UNLIMITED else float(budget.configurations)
        if budget.environment_steps is not None:
            return budget.environment_steps / (self.fidelity.steps * per_proposal)
        return budget.runs / per_proposal if budget.runs is not None else float("inf")

    @property
    def indeterminate(self) -> str | None:
        """Reasons why the same file may give another table, None without any."""
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
        holding = [text for text, holds in reasons if holds]
        return ", ".join(holding) if holding else None

    @property
    def _folder(self) -> Path | None:
        return Path(self.path) if self.path else None

    def changed(self, **sections: object) -> Self:
        """Copy the spec with other sections.

        What the study resolves from them is resolved anew.
        """
        copy = self.model_copy(update=sections)
        # `model_copy` keeps what cached properties hold.
        for name in ("plan", "search_space", "evaluation_steps", "evaluation_interval"):
            copy.__dict__.pop(name, None)
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
        if self.space is not None:
            data["space"] = self._load(self.space).to_dict()
        for name, section in (self.algorithms or {}).items():
            data["algorithms"][name]["space"] = self._load(section.space).to_dict()
        data["seeds"] = {"tuning": list(self.plan.tuning), "test": list(self.plan.test)}
        optimizer = self.optimizer
        named = {"name": optimizer.name, "stop": optimizer.stop, "rungs": optimizer.rungs}
        data["optimizer"] = named | stored_options(self)
        written = {key: value for key, value in data.items() if value is not None}
        return str(yaml.dump(written, Dumper=Dumper, sort_keys=False))

    def same_study(self, stored: Spec) -> bool:
        """Tell whether a stored study is this one.

        It may have the defaults of today or those of earlier versions: a study keeps the defaults
        it began with. Where it was started and what runs its segments are no part of it.
        """
        moved = self.model_copy(update={"path": stored.path, "executor": stored.executor})
        earlier = OptimizerSection(**_earlier(self, lambda: self.search_space))
        before: dict[str, Any] = {"optimizer": earlier}
        if not self._own_parallelism:
            before["parallelism"] = Spec.model_fields["parallelism"].default
        return stored.freeze() in (moved.freeze(), moved.model_copy(update=before).freeze())


def load_spec(
    source: str | Path | Mapping[str, object], overrides: Mapping[str, object] | None = None
) -> Spec:
    """Read a study file, or take a mapping.

    Args:
        source: a file, or its content.
        overrides: values by dotted key, as given to `--set`.

    Raises:
        InputError: naming file, key, line, what is wrong and what is allowed.
    """
    if isinstance(source, Mapping):
        document = Document(dict(source), {})
        folder = Path.cwd()
    else:
        document = read_document(source)
        folder = Path(source).resolve().parent
    if not isinstance(document.data, Mapping):
        raise document.error("expected a mapping of keys such as `trainer`, `space`, `budget`")
    data = plain(document.data)
    data.setdefault("path", str(folder))
    if not isinstance(source, Mapping):
        data.setdefault("name", Path(source).stem)
    for key, value in (overrides or {}).items():
        _override(data, key, value)
    complete(data)
    spec = _validated(data, document)
    spec._document = document
    _check_resolved(spec, document, data)
    spec = _with_starts(spec, document)
    # A lag of 8 in a study of 16 would leave half of the proposals without any score.
    if "parallelism" not in data:
        spec = spec.model_copy(update={"parallelism": default_parallelism(spec)})
        spec._document = document
        spec._own_parallelism = False
    try:
        check_budget(spec)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None
    return spec


def thaw(text: str, file: str) -> Spec:
    """Read a frozen study file, as `Spec.freeze` wrote it.

    Raises:
        InputError: the file was changed by hand into something that is no study, or is torn.
    """
    document = parse_document(text, file)
    spec = _validated(document.data, document)
    optimizer = OptimizerSection(**_earlier(spec, lambda: spec.frozen_space))
    return spec.model_copy(update={"optimizer": optimizer})


def _earlier(spec: Spec, read_space: Callable[[], Space]) -> dict[str, Any]:
    """Return the optimizer's section with the defaults of its version.

    What an earlier version left out has the value it had then.
    """
    section = spec.optimizer
    written = section.model_dump(exclude_none=True)
    return earlier_options(section.name, read_space, written) | section.options


def parse_override(text: str) -> tuple[str, Any]:
    """Split `fidelity.steps=5e4` into key and value.

    The value is read as YAML.

    Raises:
        InputError: there is no `=`.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InputError(f"expected key=value, got {text!r}", file="--set")
    return key.strip(), parse_document(value, "--set").data


def _validated(data: object, document: Document) -> Spec:
    try:
        return Spec.model_validate(data)
    except InputError as error:
        raise document.located(error) from None
    except ValidationError as error:
        raise first_problem(error, document, Spec) from None


def _override(data: dict[str, Any], key: str, value: object) -> None:
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


def _check_resolved(spec: Spec, document: Document, data: Mapping[str, object]) -> None:
    """Check what a model cannot: seeds, space and keys together.

    Their errors come before any training.
    """
    try:
        check_names_and_places(spec)
        check_racing(spec)
        check_evaluations(spec, data)
        _space_located(spec, document)
        check_n_envs(spec, data)
    except InputError as error:
        raise (document.located(error) if error.file is None else error) from None


def _with_starts(spec: Spec, document: Document) -> Spec:
    """Resolve the warm start to a list of configurations of the space.

    The study then depends on no other data.
    """
    section = spec.warm_start
    chosen = list[tuple[str, Mapping[str, Any]]]()
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
    resolved = spec.model_copy(update={"warm_start": [jsonable(config) for config in starts]})
    resolved._document = document
    return resolved


def _space_located(spec: Spec, document: Document) -> Space:
    """Resolve the space.

    Errors of an inline definition name the line of the study file.
    """
    try:
        return spec.search_space
    except InputError as error:
        of_the_file = error.file is None and (isinstance(spec.space, dict) or error.key is None)
        raise (document.located(error, "space") if of_the_file else error) from None
