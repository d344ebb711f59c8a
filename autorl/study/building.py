"""Builds landscapes of a study file: plans, costs, training, writing.

Every configuration is trained on all its seeds, then the landscape is written. The study that
trains is an ordinary one and is kept in its folder; a build that was interrupted goes on there. A
family of tasks has a study and a landscape for each of its variants.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autorl.core.plain_text import counted
from autorl.core.plain_values import plain
from autorl.core.types import FrozenMap, InputError, Segment
from autorl.landscapes import Landscape, list_landscapes
from autorl.landscapes.manifest import Manifest
from autorl.optimizers import BaseOptimizer
from autorl.optimizers.base import SearchKind
from autorl.optimizers.registry import named_of_kind, search_kind
from autorl.population.task_families import TaskFamily, read_task_family
from autorl.population.variants import Variant
from autorl.store.folder import holds_study
from autorl.store.outputs import free_output
from autorl.study import Progress, Study
from autorl.study.folder.opening import create_or_open
from autorl.study.results.landscape import ABOUT, check_environment, from_study
from autorl.study.results.models import with_start
from autorl.study.setup import (
    check,
    executor_name,
    make_optimizer,
    segments_at_once,
    trainer_loader,
)
from autorl.study.spec import Spec
from autorl.study.tuner import read_study, study_overrides

STUDIES = Path("studies")
Bounds = tuple[float | None, float | None]
BUILT_BY: tuple[SearchKind, ...] = ("design", "phased_design", "population")
"""Optimizers that leave nothing out of a landscape."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How many configurations a build trains, and where its phases end.

    Attributes:
        configurations: of each phase.
        ends: steps at which the phases end; one where all runs are trained from scratch.
    """

    configurations: int
    ends: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """A build whose study file was checked.

    Attributes:
        spec: the study that trains. Every configuration is among those trained on test seeds; of a
            population only its best schedules are.
        id: namespace/algorithm/environment of the landscape.
        folder: where the study is kept.
        bounds: range the objective cannot leave; None = unbounded.
        about: texts of the manifest, by field.
        source: the study file, for messages; None for a mapping.
    """

    spec: Spec
    id: str
    folder: Path
    bounds: Bounds
    about: Mapping[str, str]
    source: str | None

    @property
    def is_lineage(self) -> bool:
        """Whether the landscape says who copied whom.

        The counts of such a build depend on scores.
        """
        return search_kind(self.spec.optimizer.name, self.spec.path) == "population"


def plan_build(
    source: str | Path | Mapping[str, object],
    *,
    study: str | Path | None = None,
    about: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> BuildPlan:
    """Check a build file and its options, before anything is trained.

    Args:
        source: a study file, or a study as a mapping, with `optimizer: sobol`, another one that
            does not search, or a population.
        study: folder of the study; default `studies/<name>`.
        about: fields of the manifest: description, licence, citation, url, creator, commit,
            hardware; default those of the section `landscape`.
        overrides: values of the study by dotted key.

    Raises:
        InputError: the study is wrong or would leave configurations out, or the landscape could
            not be written under this id.
    """
    spec = build_spec(source, overrides)
    file = None if isinstance(source, Mapping) else str(source)
    section = spec.landscape
    if section is None:
        raise InputError(
            "is missing: namespace/algorithm/environment (or --id)", file=file, key="landscape.id"
        )
    # An id that cannot be written would be found out only when all is trained.
    check_environment(section.id, spec, file)
    stated = {field: getattr(section, field, "") for field in ABOUT}
    texts = {field: text for field, text in stated.items() if text} | dict(about or {})
    return BuildPlan(
        spec=spec,
        id=section.id,
        folder=STUDIES / spec.name if study is None else Path(study),
        bounds=section.bounds,
        about=FrozenMap(texts),
        source=file,
    )


def build_spec(
    source: str | Path | Mapping[str, object], overrides: Mapping[str, object] | None = None
) -> Spec:
    """Read the study of a build.

    Every configuration is among those trained on test seeds. It has a `landscape` section, which
    keeps test runs whole where the objective is `reduce: best`. Only the best schedules of a
    population are tested.

    Raises:
        InputError: the study is wrong, or would leave configurations out.
    """
    values = dict(overrides or {})
    spec = read_study(source, values)
    kind = search_kind(spec.optimizer.name, spec.path)
    if kind == "population":
        return spec
    file = None if isinstance(source, Mapping) else str(source)
    if kind not in ("design", "phased_design") or spec.optimizer.stop is not None:
        allowed = ", ".join(named_of_kind(*BUILT_BY))
        message = (
            f"expected one of {allowed}, without `stop`: a search would leave out what looks bad"
        )
        raise InputError(message, file=file, key="optimizer")
    # A race would leave bad configurations on few seeds: holes in the table.
    if spec.evaluation.seeds != "fixed":
        raise InputError(
            "every configuration is trained on all seeds: expected fixed", key="evaluation.seeds"
        )
    # A budget in hours does not say how many configurations there will be.
    if not math.isfinite(spec.full_runs):
        raise InputError("expected a number of configurations or runs", file=file, key="budget")
    sizes = sizes_of(spec)
    # As candidates of the test phase all configurations are trained on the test seeds.
    tested = {"test.top": sizes.configurations * len(sizes.ends)}
    return read_study(source, tested | values)


def sizes_of(spec: Spec) -> Sizes:
    """Count the configurations of a build, and say where its phases end.

    Not of a population.
    """
    if search_kind(spec.optimizer.name, spec.path) != "phased_design":
        return Sizes(math.ceil(spec.full_runs), (spec.fidelity.steps,))
    optimizer = make_optimizer(spec, trainer_loader(spec))
    assert isinstance(optimizer, BaseOptimizer)
    configurations = optimizer.planned_configurations() or math.ceil(spec.full_runs)
    return Sizes(configurations, optimizer.cuts(spec.fidelity.steps, optimizer.options))


_PROBED = 8  # configurations that are trained for a few evaluation intervals to measure the speed
_PROBED_INTERVALS = 3  # long enough to be past what happens once, such as filling a memory
_PROBE_SECONDS = 10.0
# Measured on the shipped landscapes and the studies they were written from.
_LANDSCAPE_BYTES = MappingProxyType({"evaluation": 12, "run": 22})
_STUDY_BYTES = MappingProxyType({"evaluation": 350, "run": 2600})


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A time, in seconds, and what it was measured on."""

    seconds: float
    source: str

    def text(self, workers: int) -> str:
        minutes = self.seconds / 60
        text = f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(1.0, self.seconds):.0f} s"
        return f"about {text} on {counted(workers, 'worker')} ({self.source})"


@dataclasses.dataclass(frozen=True)
class BuildCost:
    """The work of a build. Exact but for `time` and the bytes.

    Attributes:
        ends: steps at which the phases end; one where all runs are trained from scratch.
        steps: environment steps of all runs together.
        evaluations: rows of the study's table `reports`.
        time: None = unknown.
        landscape_bytes, study_bytes: on disk, checkpoints of the study left out.
    """

    configurations: int
    ends: tuple[int, ...]
    tuning_seeds: int
    test_seeds: int
    runs: int
    steps: int
    evaluations: int
    workers: int
    time: Estimate | None
    landscape_bytes: int
    study_bytes: int


def build_cost(plan: BuildPlan, workers: int | None = None) -> BuildCost:
    """Count the work of a build, and estimate its time.

    Not of a population, whose work depends on scores.

    The population engine trains a few configurations for some seconds to measure its speed.

    Raises:
        InputError: what the build would raise, or it is a population.
    """
    spec = plan.spec
    if plan.is_lineage:
        raise InputError("the counts of a population depend on scores", key="optimizer")
    check(with_start(spec), trainer_loader(spec))
    sizes = sizes_of(spec)
    tuning = len(spec.plan.tuning)
    test = len(spec.plan.test)
    chains = sizes.configurations * (tuning + test)
    runs = chains * len(sizes.ends)
    evaluations = chains * len(set(spec.evaluation_steps) | set(sizes.ends))
    slots = segments_at_once(spec, executor_name(spec), workers)

    def disk(bytes_of: Mapping[str, int]) -> int:
        return runs * bytes_of["run"] + evaluations * bytes_of["evaluation"]

    return BuildCost(
        configurations=sizes.configurations,
        ends=sizes.ends,
        tuning_seeds=tuning,
        test_seeds=test,
        runs=runs,
        steps=chains * spec.fidelity.steps,
        evaluations=evaluations,
        workers=slots,
        time=_estimate(plan, slots, chains),
        landscape_bytes=disk(_LANDSCAPE_BYTES),
        study_bytes=disk(_STUDY_BYTES),
    )


def _estimate(plan: BuildPlan, workers: int, chains: int) -> Estimate | None:
    """Estimate the seconds of `chains` runs of full length."""
    spec = plan.spec
    infos = [spec.info(trainer) for trainer in spec.trainers.values()]
    if not all(info.estimates_by_training for info in infos):
        return None
    seconds, count = _seconds_per_run(spec)
    trained = counted(count, "configuration")
    source = f"{trained} trained here for a while: {seconds:.2f} s a run and worker"
    return Estimate(chains * seconds / workers, source)


def _seconds_per_run(spec: Spec) -> tuple[float, int]:
    """Train a little of some configurations, and scale their time up.

    It is a few evaluation intervals of each, scaled to a run.

    Returns:
        Mean seconds of a run of full length, and of how many configurations.
    """
    load = trainer_loader(spec)
    with closing(Study.in_memory(spec.model_copy(update={"parallelism": _PROBED}), load)) as study:
        segments = study.advance()
    probes = [segment for segment in segments if segment.seed == spec.plan.tuning[0]]
    steps = spec.evaluation_steps[:_PROBED_INTERVALS]

    def seconds(segment: Segment, evaluate_at: tuple[int, ...]) -> float:
        short = dataclasses.replace(
            segment, until=evaluate_at[-1], evaluate_at=evaluate_at, save=False, folder="", log=None
        )
        began = time.perf_counter()
        load(segment.trainer).train(short, lambda report: None)
        return time.perf_counter() - began

    seconds(probes[0], (1,))  # compiles, or loads what was compiled
    measured: list[float] = []
    while len(measured) < len(probes) and sum(measured) < _PROBE_SECONDS:
        measured.append(seconds(probes[len(measured)], steps))
    mean = sum(measured) / len(measured)
    return mean * spec.fidelity.steps / steps[-1], len(measured)


def build_landscape(
    source: str | Path | Mapping[str, object],
    out: str | Path = "landscapes",
    *,
    id: str | None = None,
    study: str | Path | None = None,
    bounds: tuple[float, float] | None = None,
    about: Mapping[str, str] | None = None,
    workers: int | None = None,
    replace: bool = False,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Landscape:
    """Train every configuration of a study file, and write the landscape.

    The same call goes on where an earlier one was interrupted.

    Args:
        source: a study file, or a study as a mapping, whose optimizer does not search (`sobol`,
            `random`, `grid`, `phases`) or is a population, of which the best schedules are tested.
        out: folder landscapes are kept in.
        id: namespace/algorithm/environment; default `landscape.id` of the study.
        study: folder of the study; default `studies/<name>`.
        bounds: range the objective cannot leave; default `landscape.bounds`.
        about: fields of the manifest (description, licence, citation, url, creator, commit,
            hardware) beside or instead of those of the section `landscape`.
        workers: segments trained at once; default as the study says. Never changes a result.
        replace: whether a landscape of this id may be replaced.
        progress: called after every step with where the study stands.
        options: keys of the study file as `autorl.tune` takes them (`fidelity__episodes=8`).

    Raises:
        InputError: the study is wrong or would leave configurations out, the landscape exists, or
            scores lie outside `bounds`. The trained runs are kept.
    """
    section = {"landscape.id": id, "landscape.bounds": bounds}
    overrides = {key: value for key, value in section.items() if value is not None}
    overrides |= study_overrides(options)
    plan = plan_build(source, study=study, about=about, overrides=overrides)

    def train(opened: Study) -> None:
        opened.run(progress, workers=workers)

    return train_and_write(plan, Path(out), train, replace=replace)


def train_and_write(
    plan: BuildPlan, out: Path, train: Callable[[Study], object], *, replace: bool = False
) -> Landscape:
    """Carry a build out.

    `train` runs its study to the end, then the landscape is written.

    Raises:
        InputError: the landscape exists and may not be replaced, the folder of the study holds
            another one, or scores lie outside the bounds.
    """
    # Before hours of training, not after.
    free_output(out / plan.id, replace=replace)
    # The section `landscape` can be corrected afterwards.
    study = create_or_open(plan.spec, plan.folder, option="--study", ignoring=("landscape",))
    with closing(study):
        train(study)
    # The study is read as a landscape before one is written: nothing half made is left.
    _check_bounds(plan)
    manifest = from_study(
        plan.folder, out, plan.id, bounds=plan.bounds, replace=replace, **plan.about
    )
    return Landscape(out / manifest.id)


def _check_bounds(plan: BuildPlan) -> None:
    """Raise `InputError` if scores lie outside the bounds.

    Such a landscape is not valid.
    """
    for problem in Landscape(plan.folder).queries.outside(*plan.bounds):
        message = (
            f"{problem}; nothing was written, and all that was trained is kept in {plan.folder}: "
            "the same command with other --bounds LOW HIGH writes it"
        )
        raise InputError(message, file=plan.source, key="landscape.bounds")


def build_plans(
    plans: Sequence[BuildPlan],
    out: Path,
    train: Callable[[Study], object],
    *,
    replace: bool = False,
) -> Iterator[Landscape]:
    """Carry out builds, and yield landscapes as they are written.

    Landscapes of a family that exist already are built again with `replace` alone.
    """
    for plan in plans:
        if not replace and is_written(plan, out):
            yield Landscape(out / plan.id)
        else:
            yield train_and_write(plan, out, train, replace=replace)


def plan_family(
    source: str | Path | Mapping[str, object],
    family: TaskFamily,
    *,
    studies: str | Path | None = None,
    about: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    apart_from: Sequence[str | Path] = (),
) -> list[BuildPlan]:
    """Check the builds of a family's variants, before anything is trained.

    Raises:
        InputError: the study is wrong, trains in another environment or names no landscape, or a
            variant is used by one of `apart_from`.
    """
    for place in apart_from:
        family.check_apart(_hashes(Path(place)), str(place))
    base = build_spec(source, overrides)
    file = None if isinstance(source, Mapping) else str(source)
    if base.landscape is None:
        raise InputError("is missing: namespace/algorithm/environment", file=file, key="landscape")
    if base.environment.id not in (None, family.environment):
        raise InputError(
            f"the family {family.name} is of {family.environment}, not {base.environment.id}",
            file=file,
            key="environment.id",
        )
    root = STUDIES / base.name if studies is None else Path(studies)
    unchanged = {
        key: value
        for key, value in (overrides or {}).items()
        if key.partition(".")[0] not in ("environment", "name")
    }
    return [
        plan_build(
            source,
            study=root / item.name,
            about=about,
            overrides={**unchanged, **_changes(base, family, item)},
        )
        for item in family.variants
    ]


def is_written(plan: BuildPlan, out: Path) -> bool:
    """Tell whether the landscape of a family's variant is written already.

    Raises:
        InputError: another one lies there, or its study is another one now.
    """
    target = out / plan.id
    section = plan.spec.landscape
    if section is None or section.family is None or not target.exists():
        return False
    recorded = plain(Manifest.read(target).trainer.get("environment", {})).get("family", {})
    if recorded.get("hash") != section.family.hash:
        raise InputError(
            f"the landscape exists and is not of the family {section.family.name}: "
            "choose another --out",
            file=str(target),
        )
    if holds_study(plan.folder):
        ignoring = ("landscape",)
        create_or_open(plan.spec, plan.folder, option="--study", ignoring=ignoring).close()
    return True


def used_variants(root: str | Path) -> dict[str, str]:
    """Return the ids of landscapes below a folder, by their variant's hash.

    Landscapes without a variant are left out.
    """
    used = {}
    for id, folder in list_landscapes(root).items():
        recorded = plain(Manifest.read(folder).trainer.get("environment", {}))
        if isinstance(recorded, dict) and "variant" in recorded:
            used[str(recorded["variant"])] = id
    return used


def _hashes(place: Path) -> set[str]:
    """Return the hashes of variants in a folder or a family's file."""
    if place.is_dir():
        return set(used_variants(place))
    return {item.hash for item in read_task_family(place).variants}


def _changes(base: Spec, family: TaskFamily, item: Variant) -> dict[str, object]:
    """Return what of the study file is another for a variant."""
    environment = base.environment.model_dump(mode="json", exclude_unset=True)
    kwargs = {**base.environment.kwargs, **plain(item.parameters)}
    assert base.landscape is not None
    # The objective is in rewards of the variant.
    scale = float(item.parameters.get("reward_scale", 1.0))
    bounds = [None if bound is None else bound * scale for bound in base.landscape.bounds]
    return {
        "name": f"{base.name}-{item.hash[:10]}",
        "environment": {**environment, "id": item.id, "kwargs": kwargs},
        "landscape.id": "/".join([*base.landscape.id.split("/", 2)[:2], item.name]),
        "landscape.family": family.about,
        "landscape.bounds": bounds,
    }
