"""Commands for whole data sets: validate, import, merge, delete, export, upload, download."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.landscape_options import ROOT, landscapes_of, role, show_written
from autorl.cli.options import AsJson, Source, key_texts, print_answer
from autorl.cli.progress import RuleProgress
from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes import delete_landscape, load_landscape, merge_landscapes, shipped_root
from autorl.landscapes.export import export_optuna, export_table
from autorl.landscapes.export_deepcave import export_deepcave
from autorl.landscapes.importers import import_any
from autorl.landscapes.importers.common import TEXTS
from autorl.landscapes.manage import download_landscape, upload_landscape
from autorl.landscapes.validate import validate as check
from autorl.report.table import one_line
from autorl.store.remote import shown_url


def validate(
    sources: Annotated[list[str], typer.Argument(metavar="LANDSCAPE...")], as_json: AsJson = False
) -> None:
    """Check integrity: files, keys, seeds, curves, bounds, copies.
    Exit code 1 if a rule is broken.

    Options:
        sources: Ids or folders; a folder of many too.
    """
    folders = [landscape.path for landscape in landscapes_of(sources)]
    # Standard output is for the problems, or their JSON.
    progress = RuleProgress(len(folders), sys.stderr)
    # Ids come from manifests that a stranger may have written.
    problems = check(folders, lambda name, rule: progress(one_line(name), rule))
    progress.clear()
    verdict = counted(len(problems), "problem") if problems else "no problems"
    lines = [one_line(str(problem)) for problem in problems]
    lines.append(f"{counted(len(folders), 'landscape')} checked: {verdict}")
    print_answer("\n".join(lines), [vars(problem) for problem in problems], as_json=as_json)
    if problems:
        raise typer.Exit(1)


def import_files(
    source: Path,
    out: Path = ROOT,
    format: str | None = None,
    id: str | None = None,
    namespace: str | None = None,
    tuning_seeds: Annotated[int | None, typer.Option(min=1)] = None,
    metric: str | None = None,
    direction: str | None = None,
    mapping: Annotated[list[str] | None, typer.Option("--map", metavar="COLUMN=ROLE")] = None,
    unit: float = 1.0,
    study: str | None = None,
    about: Annotated[list[str] | None, typer.Option(metavar="KEY=TEXT")] = None,
    replace: bool = False,
    as_json: AsJson = False,
) -> None:
    """Import data of others:
    ARLBench, DeepCAVE, HPO-RL-Bench, Optuna, Ray Tune, or any CSV file.

    Options:
        source: File or folder.
        format: arlbench, arlbench-runs, deepcave, hpo-rl-bench, optuna, ray, csv; default:
            recognised.
        id: namespace/algorithm/environment, where the source does not say it.
        namespace: First part of the ids, where the source says the rest.
        tuning_seeds: The lowest N seeds tune, the others test; default half of them.
        metric: The recorded value that is the objective.
        direction: maximize or minimize; default as the source says.
        mapping: What a column is, or a YAML file that says it of all.
        unit: Steps in one unit of the source's budget.
        study: Name of the study, where a storage has several.
        about: Of the manifest: description, licence, citation, url, creator.
    """
    done = import_any(
        source,
        out,
        format=format,
        id=id,
        namespace=namespace,
        tuning_seeds=tuning_seeds,
        metric=metric,
        direction=direction,
        map=tuple(mapping or ()),
        unit=unit,
        study=study,
        about=key_texts(about or [], TEXTS),
        replace=replace,
    )
    show_written(done, out, as_json=as_json)


def merge(
    sources: Annotated[list[str], typer.Argument(metavar="LANDSCAPE...")],
    id: Annotated[str, typer.Option()],
    out: Path = ROOT,
    replace: bool = False,
    as_json: AsJson = False,
) -> None:
    """Merge landscapes of one algorithm, environment and space into one.

    Options:
        sources: Two or more, over one space.
        id: Of the result: namespace/algorithm/environment.
    """
    done = merge_landscapes([load_landscape(source) for source in sources], out, id, replace)
    show_written([done], out, as_json=as_json)


def delete(
    source: Source,
    yes: Annotated[bool, typer.Option("--yes", "-y")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a landscape folder.
    A study's folder is never deleted, nor what comes with the package.

    Options:
        yes: Do not ask.
    """
    landscape = load_landscape(source)
    shipped = shipped_root()
    # Links resolved: a folder reached through one is among them too.
    if shipped is not None and landscape.path.resolve().is_relative_to(shipped.resolve()):
        message = (
            "lies among the landscapes that come with the package: "
            "nothing was deleted (remove it by hand)"
        )
        raise InputError(message, file=str(landscape.path))
    if not yes:
        if as_json:
            # A question would stand among the JSON on standard output.
            raise InputError("no terminal to ask for confirmation: add --yes", key="--json")
        # `typer.confirm` prints text as it is.
        path = one_line(str(landscape.path))
        typer.confirm(
            f"Delete {path} ({counted(landscape.manifest.rows.get('runs', 0), 'run')})?", abort=True
        )
    delete_landscape(landscape.path)
    path = str(landscape.path)
    print_answer(f"deleted {path}", {"deleted": path}, as_json=as_json)


def upload(source: Source, url: str, replace: bool = False, as_json: AsJson = False) -> None:
    """Copy a landscape to a folder or a URL of fsspec:
    it lies at URL/ID. It is validated before.

    Options:
        url: A folder, or s3://, gs://, hf:// and the like.
    """
    place = shown_url(upload_landscape(load_landscape(source), url, replace=replace))
    print_answer(place, {"url": place}, as_json=as_json)


def download(url: str, out: Path = ROOT, replace: bool = False, as_json: AsJson = False) -> None:
    """Copy a landscape from a folder or a URL of fsspec:
    it is validated before anything is written.

    Options:
        url: Of the landscape's folder, the ID at its end.
    """
    show_written([download_landscape(url, out, replace=replace)], out, as_json=as_json)


def export(
    source: Source, file: Path, seeds: str = "tuning", by: str = "mean", as_json: AsJson = False
) -> None:
    """Write a landscape for other tools:
    a flat table, an Optuna study, or a run folder of DeepCAVE.

    --seeds and --by are for Optuna studies, which have a trial for each configuration.

    Options:
        file: .csv[.gz], .parquet: a table; .db, .sqlite3, .journal: an Optuna study; no ending: a
            DeepCAVE run.
        by: Aggregate over seeds, of an Optuna study or DeepCAVE run.
    """
    landscape = load_landscape(source)
    unit = "row"
    if file.suffix in (".db", ".sqlite", ".sqlite3", ".journal"):
        unit = "trial"
        count = export_optuna(landscape, file, role(seeds), by)
    elif file.suffix:
        count = export_table(landscape, file)
    else:
        count = export_deepcave(landscape, file)
    document = {"file": str(file), f"{unit}s": count}
    print_answer(f"{file}: {counted(count, unit)}", document, as_json=as_json)
