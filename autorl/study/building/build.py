"""Building a landscape: train its study, then write what it recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.store.outputs import free_output
from autorl.study import Progress, Study
from autorl.study.building.plan import BuildPlan, plan_build
from autorl.study.folder.opening import create_or_open
from autorl.study.results.landscape import from_study
from autorl.study.setup import make_executor
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
