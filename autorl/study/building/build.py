"""Builds landscapes: trains a study, then writes what it recorded.

A family of tasks has a study and a landscape for each of its variants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.landscapes import Landscape, list_landscapes
from autorl.landscapes.manifest import Manifest
from autorl.population.task_families import TaskFamily, read_task_family
from autorl.population.variants import Variant
from autorl.store.folder import holds_study
from autorl.store.outputs import free_output
from autorl.study import Progress, Study
from autorl.study.building.plan import STUDIES, BuildPlan, build_spec, plan_build
from autorl.study.folder.opening import create_or_open
from autorl.study.results.landscape import from_study
from autorl.study.setup import make_executor
from autorl.study.spec import Spec
from autorl.study.tuner import study_overrides


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
    plan = plan_build(
        source, id=id, study=study, bounds=bounds, about=about, overrides=study_overrides(options)
    )

    def train(opened: Study) -> None:
        executor = None
        if workers is not None:
            executor = make_executor(opened.spec, opened.load, workers, opened.store.folder)
        try:
            opened.run(progress, executor)
        finally:
            # A study that is over returns before `Study.run` has closed it.
            if executor is not None:
                executor.close()

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
    try:
        train(study)
    finally:
        study.close()
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
            "the same command with"
        )
        if plan.bounds_from == "bounds":
            raise InputError(f"{message} a wider range writes it", key="bounds")
        raise InputError(
            f"{message} --bounds LOW HIGH writes it", file=plan.source, key=plan.bounds_from
        )


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
    bounds: tuple[float, float] | None = None,
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
            id="/".join([*base.landscape.id.split("/", 2)[:2], item.name]),
            study=root / item.name,
            bounds=_scaled(bounds, item),
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
    changes: dict[str, object] = {
        "name": f"{base.name}-{item.hash[:10]}",
        "environment": {**environment, "id": item.id, "kwargs": kwargs},
        "landscape.family": family.about,
    }
    if base.landscape.bounds != (None, None):
        changes["landscape.bounds"] = _scaled(base.landscape.bounds, item)
    return changes


def _scaled(bounds: tuple[float | None, float | None] | None, item: Variant) -> Any:
    """Return bounds of the objective in rewards of the variant."""
    if bounds is None:
        return None
    scale = float(item.parameters.get("reward_scale", 1.0))
    return tuple(None if bound is None else bound * scale for bound in bounds)
