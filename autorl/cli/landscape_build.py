"""The command `autorl landscape build`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from autorl.cli.landscape_options import ROOT, show_written
from autorl.cli.options import (
    AsJson,
    Quiet,
    Settings,
    Workers,
    key_texts,
    print_answer,
    print_json,
    say,
)
from autorl.cli.progress import Way
from autorl.cli.run import overrides_of, print_plans, run_study, stopped
from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.population.task_families import TaskFamily, read_task_family
from autorl.report.table import columns
from autorl.study import Study
from autorl.study.building import (
    BuildCost,
    BuildPlan,
    build_cost,
    build_plans,
    is_written,
    plan_build,
    plan_family,
)
from autorl.study.results.landscape import ABOUT


def build(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    id: str | None = None,
    out: Path = ROOT,
    study: Path | None = None,
    settings: Settings = None,
    about: Annotated[list[str] | None, typer.Option(metavar="KEY=TEXT")] = None,
    bounds: Annotated[tuple[float, float] | None, typer.Option(metavar="LOW HIGH")] = None,
    workers: Workers = None,
    family: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    apart_from: Annotated[list[Path] | None, typer.Option(metavar="PLACE")] = None,
    dry_run: bool = False,
    replace: bool = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train every configuration of a build file on all its seeds,
    and write the landscape.

    The build file is a study file whose optimizer does not search: sobol, random or grid; or
    phases, which trains all from the best agent of the phase before; or pbt, pb2 and mf_pbt, for a
    landscape of who copied whom, of which the best schedules are tested. Every configuration of the
    others is trained on the tuning seeds and then on the test seeds. The same command goes on where
    it was interrupted.

    With --family the studies lie below --study, and landscapes that are written are left as they
    are.

    Options:
        file: A study file with `optimizer: sobol` and `landscape:`.
        id: namespace/algorithm/environment; default `landscape.id`.
        study: Folder of the study; default studies/<name>.
        about: Of the manifest: description, licence, citation, url, creator, commit.
        bounds: Range the objective cannot leave.
        family: A family of tasks: a landscape for each of its variants.
        apart_from: A folder of landscapes or a family's file: no variant of it may be built.
        dry_run: Say what it would cost; write nothing.
    """

    def train(opened: Study) -> None:
        try:
            run_study(opened, Way(workers, as_json, quiet))
        except KeyboardInterrupt as error:
            # `create_or_open` takes up what is trained so far.
            raise stopped(error, "the same command goes on") from None

    section = {"landscape.id": id, "landscape.bounds": bounds}
    overrides = {key: value for key, value in section.items() if value is not None}
    options: dict[str, Any] = {
        "about": key_texts(about or [], ABOUT),
        "overrides": overrides | overrides_of(settings),
    }
    if family is None and apart_from:
        raise InputError("is for --family", key="--apart-from")
    if family is not None and id is not None:
        message = "each variant has its own: landscape.id gives namespace and algorithm"
        raise InputError(message, key="--id")
    if family is None:
        plans = [plan_build(file, study=study, **options)]
    else:
        drawn = read_task_family(family)
        plans = plan_family(file, drawn, studies=study, apart_from=apart_from or (), **options)
    if not dry_run:
        built = [item.manifest for item in build_plans(plans, out, train, replace=replace)]
        show_written(built, out, as_json=as_json)
    elif family is None:
        print_work(plans[0], workers, as_json=as_json)
    else:
        print_family(drawn, plans, out, workers, as_json=as_json)


def print_work(plan: BuildPlan, workers: int | None, *, as_json: bool) -> None:
    """Print what `--dry-run` says of a build.

    Its cost, or of a population the plan of its study.
    """
    if plan.is_lineage:
        print_plans([plan.spec], as_json=as_json)
        return
    cost = build_cost(plan, workers)
    values = {key: value for key, value in vars(cost).items() if key != "time"}
    time: dict[str, Any] = {"seconds": None}
    if cost.time is not None:
        time = {"seconds": cost.time.seconds, "seconds_from": cost.time.source}
    document = {"landscape": plan.id, "name": plan.spec.name, **values, **time}
    text = columns(("dry run", "nothing is written"), _rows(plan, cost), indent="")
    print_answer(text, document, as_json=as_json)


def _rows(plan: BuildPlan, cost: BuildCost) -> list[tuple[str, str]]:
    spec = plan.spec
    points = len(spec.evaluation_steps)
    rows = [
        ("landscape", plan.id),
        ("trainer", spec.trainer_names),
        ("configurations", f"{cost.configurations} by {spec.optimizer.name}"),
        ("seeds", f"{cost.tuning_seeds} tuning + {cost.test_seeds} test"),
        (
            "steps of a run",
            f"{spec.fidelity.steps:,}, {counted(points, 'evaluation')} of "
            f"{counted(spec.fidelity.episodes, 'episode')}",
        ),
    ]
    if len(cost.ends) > 1:
        ends = ", ".join(map(str, cost.ends))
        rows.append(("phases", f"{len(cost.ends)}, ending at steps {ends}"))
    disk = (
        f"about {_megabytes(cost.landscape_bytes)} landscape, {_megabytes(cost.study_bytes)} study"
    )
    return [
        *rows,
        ("runs", f"{cost.runs:,}"),
        (spec.steps, f"{cost.steps:,}"),
        ("evaluations", f"{cost.evaluations:,}"),
        *([] if cost.time is None else [("time", cost.time.text(cost.workers))]),
        ("disk", disk),
    ]


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def print_family(
    family: TaskFamily, plans: Sequence[BuildPlan], out: Path, workers: int | None, *, as_json: bool
) -> None:
    """Print the variants of a family and the cost of its builds."""
    cost = build_cost(plans[0], workers)
    written = [is_written(plan, out) for plan in plans]
    remaining = len(plans) - sum(written)
    if as_json:
        variants = [
            {"landscape": plan.id, "hash": item.hash, "parameters": dict(item.parameters)}
            for plan, item in zip(plans, family.variants, strict=True)
        ]
        work = {"runs": remaining * cost.runs, "steps": remaining * cost.steps}
        print_json({"family": family.about, "variants": variants, "remaining": remaining, **work})
        return
    rows = [("dry run", "nothing is written"), ("family", f"{family.name}, for {family.purpose}")]
    for plan, item, done in zip(plans, family.variants, written, strict=True):
        text = f"{item.text} (written)" if done else item.text
        rows.append((plan.id, text))
    rows.append(("runs", f"{remaining * cost.runs:,} in {counted(remaining, 'build')}"))
    if cost.time is not None:
        rows.append(("time", f"{cost.time.text(cost.workers)} for each build"))
    say(columns(rows[0], rows[1:], indent=""))
