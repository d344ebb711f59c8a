"""`autorl landscape build`: train every configuration of a build file and write the landscape."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autorl.cli.landscape_analysis import ROOT
from autorl.cli.options import AsJson, Quiet, Workers, key_texts
from autorl.cli.rows import show_written
from autorl.optimizers.registry import named_of_kind, search_kind
from autorl.types import InputError

if TYPE_CHECKING:
    from autorl.spec import Spec

Out = Annotated[Path, typer.Option("--out", help="Folder landscapes are kept in.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace what is there.")]


def build(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A study file with `optimizer: sobol` and `landscape:`."
        ),
    ],
    id: Annotated[
        str | None,
        typer.Option("--id", help="namespace/algorithm/environment; default `landscape.id`."),
    ] = None,
    out: Out = ROOT,
    study: Annotated[
        Path | None, typer.Option(help="Folder of the study; default studies/<name>.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the study file."),
    ] = None,
    about: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=TEXT",
            help="Of the manifest: description, licence, citation, url, creator, commit.",
        ),
    ] = None,
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Range the objective cannot leave."),
    ] = None,
    workers: Workers = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would cost; write nothing.")
    ] = False,
    replace: Replace = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train every configuration of a build file on all its seeds, and write the landscape.

    The build file is a study file whose optimizer does not search: sobol, random or grid; or phases, which trains all
    from the best agent of the phase before; or pbt and pb2, for a landscape of who copied whom, of which the best
    schedules are tested. Every configuration of the others is trained on the tuning seeds and then on the test
    seeds. The same command goes on where it was interrupted.
    """
    from autorl.cli.landscape_cost import print_cost
    from autorl.cli.run import STUDIES, print_plan
    from autorl.landscapes import from_study
    from autorl.study.landscape import ABOUT

    if bounds is not None and not bounds[0] < bounds[1]:
        raise InputError(
            f"expected LOW below HIGH, got {bounds[0]:g} {bounds[1]:g}", file="--bounds"
        )
    spec = build_spec(file, settings or [], id)
    name = id or (spec.landscape.id if spec.landscape else None)
    if name is None:
        raise InputError(
            "is missing: namespace/algorithm/environment (or --id)",
            file=str(file),
            key="landscape.id",
        )
    _check_id(name, spec, file)
    folder = study or STUDIES / spec.name
    if dry_run and search_kind(spec.optimizer.name) == "population":
        print_plan(spec, folder, as_json=as_json)
        return
    if dry_run:
        print_cost(spec, name, folder, workers=workers, as_json=as_json)
        return
    if (out / name).exists() and not replace:
        raise InputError(
            "the landscape exists; choose another --id, or --replace it", file=str(out / name)
        )
    stated = (
        {}
        if spec.landscape is None
        else {each: getattr(spec.landscape, each, "") for each in ABOUT}
    )
    facts = {each: text for each, text in stated.items() if text} | key_texts(about or [], ABOUT)
    limits = bounds or (spec.landscape.bounds if spec.landscape else (None, None))
    _train_all(spec, folder, workers=workers, as_json=as_json, quiet=quiet)
    _check_bounds(folder, limits, file, given=bounds is not None)
    done = from_study(folder, out, name, bounds=limits, replace=replace, **facts)
    show_written([done], out, as_json=as_json)


def build_spec(file: Path, settings: list[str], id: str | None = None) -> Spec:
    """The study of a build file, with every configuration among those trained on test seeds; of lineages the best.

    It has a `landscape` section, which is what keeps test runs whole where the objective is `reduce: best`.
    """
    from autorl.cli.run import read_study

    named = {} if id is None else {"landscape.id": id}
    spec = read_study(str(file), named, settings)
    kind = search_kind(spec.optimizer.name)
    if kind == "population":  # its landscape is who copied whom, and when
        return spec
    if kind not in ("design", "phased_design") or spec.optimizer.stop is not None:
        allowed = ", ".join(named_of_kind("design", "phased_design", "population"))
        message = (
            f"expected one of {allowed}, without `stop`: a search would leave out what looks bad"
        )
        raise InputError(message, file=str(file), key="optimizer")
    if spec.evaluation.seeds != "fixed":
        raise InputError(
            "every configuration is trained on all seeds: expected fixed", key="evaluation.seeds"
        )
    if not math.isfinite(spec.full_runs):
        raise InputError(
            "expected a number of configurations or runs", file=str(file), key="budget"
        )
    configurations, ends = shape(spec)
    return read_study(str(file), {**named, "test.top": configurations * len(ends)}, settings)


def shape(spec: Spec) -> tuple[int, tuple[int, ...]]:
    """Configurations of a build, and the steps at which its phases end (one where all runs start from scratch)."""
    from autorl.optimizers.phases import Phases
    from autorl.study.setup import make_optimizer, trainer_loader

    if search_kind(spec.optimizer.name) == "phased_design":
        optimizer = make_optimizer(spec, trainer_loader(spec))
        assert isinstance(optimizer, Phases)
        return optimizer.configurations, optimizer.ends
    return math.ceil(spec.full_runs), (spec.fidelity.steps,)


def _check_id(name: str, spec: Spec, file: Path) -> None:
    """Raise `InputError` before hours of training if the landscape could not be written under this id."""
    from autorl.landscapes.manifest import check_id

    check_id(name)
    environment = spec.environment.id
    if environment is not None and name.split("/", 2)[2] != environment:
        message = f"the study trains on {environment}: expected namespace/algorithm/{environment}, got {name}"
        raise InputError(message, file=str(file), key="landscape.id")


def _check_bounds(
    study: Path, limits: tuple[float | None, float | None], file: Path, *, given: bool
) -> None:
    """Raise `InputError` for a range that scores have left: a landscape that says so is not valid."""
    from autorl.landscapes import Landscape
    from autorl.landscapes.bounds import outside_bounds

    for problem in outside_bounds(Landscape(study), limits):
        message = f"{problem}; nothing was written, and all that was trained is kept in {study}: the same command with"
        if given:
            raise InputError(f"{message} a wider range writes it", file="--bounds")
        raise InputError(
            f"{message} --bounds LOW HIGH writes it", file=str(file), key="landscape.bounds"
        )


def _train_all(
    spec: Spec, folder: Path, *, workers: int | None, as_json: bool, quiet: bool
) -> None:
    """Run the study in `folder` to its end, or to the end of what is left of it."""
    from autorl.cli.run import run_study, stopped, take_up

    # what a landscape says of itself can be corrected afterwards
    study = take_up(spec, folder, option="--study", apart_from=("landscape",))
    try:
        run_study(study, workers=workers, search=True, as_json=as_json, quiet=quiet)
    except KeyboardInterrupt as error:
        raise stopped(error, "the same command goes on") from None
    finally:
        study.close()
