"""Landscapes of a family of tasks, one for each variant."""

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
from autorl.study import Study
from autorl.study.building.build import train_and_write
from autorl.study.building.plan import STUDIES, BuildPlan, build_spec, plan_build
from autorl.study.folder.opening import create_or_open
from autorl.study.spec import Spec


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
