"""The command compare: studies, or methods of a file, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from autorl.cli.options import AsJson, Quiet, Settings, Workers, print_answer, say, say_line
from autorl.cli.progress import Way
from autorl.cli.report import page_place, write_page
from autorl.cli.run import STUDIES, overrides_of, run_study, stopped
from autorl.core.types import InputError, StudyError
from autorl.report.comparison import (
    Finished,
    Scale,
    compare_results,
    comparison_dict,
    comparison_latex,
    comparison_text,
    methods_html,
)
from autorl.report.reading import check_folder, studies_below
from autorl.report.studies import compare_studies, comparison_html, protocol_differences, text_of
from autorl.report.studies import comparison_dict as studies_dict
from autorl.report.studies import comparison_text as studies_text
from autorl.store.outputs import free_output
from autorl.study.budget import Spent
from autorl.study.folder.opening import create_or_open
from autorl.study.results.models import with_start
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import Spec
from autorl.study.spec.comparison import Cell, read_comparison
from autorl.study.spec.study_file import is_file


def compare(
    sources: Annotated[list[str], typer.Argument(metavar="DIR...|FILE|SPACE")],
    optimizers: str | None = None,
    repeats: Annotated[int | None, typer.Option(min=1, max=1_000)] = None,
    out: Path | None = None,
    workers: Workers = None,
    settings: Settings = None,
    unequal: bool = False,
    html: Path | None = None,
    latex: Path | None = None,
    replace: bool = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare studies, or methods on tasks, on held-out seeds.

    Studies: test scores with intervals, in pairs on the seeds they share, and what they cost.
    Unequal budgets, spaces of a trainer, seeds or evaluations are refused without --unequal.

    A file: the methods and tasks of its section `compare`, or --optimizers on its own task, at
    equal budgets. It prints test scores with intervals, ranks and their tests, and performance
    profiles. Every study is a folder <out>/<method>/<task>/seed-<n>. The same command goes on where
    it was interrupted; finished studies are only read. An optimizer the file names keeps its
    options, the others have their defaults.

    Options:
        sources: Folders of studies (or with studies in them); or a study file or search space.
        optimizers: Of a file: methods by the names of optimizers, with commas: random,tpe.
        repeats: Studies for each method and task, each with a seed of its own; default 3.
        out: Folder of the studies; default studies/<name>-compare.
        unequal: Of studies: compare them although budgets, spaces or seeds differ, and say so.
        html: Also write a report, one HTML file.
        latex: Of a file: also write the table of test scores for LaTeX, with booktabs.
    """
    if optimizers is None and not is_file(sources[0]):
        options = {"--repeats": repeats, "--out": out, "--workers": workers, "--set": settings}
        for name, value in {**options, "--latex": latex}.items():
            if value is not None:
                raise InputError("is for a study file with methods", key=name)
        place = None if html is None else page_place(html, replace)
        folders = [folder for source in sources for folder in _studies_in(Path(source))]
        studies = compare_studies(folders, unequal=unequal)
        print_answer(studies_text(studies), studies_dict(studies), as_json=as_json)
        if place is not None:
            write_page(place, comparison_html(studies), err=as_json)
        return
    if len(sources) != 1:
        raise InputError(f"expected one study file, got {len(sources)}", key="FILE")
    if unequal:
        raise InputError("is for folders of studies", key="--unequal")
    # Named twice, an optimizer would have two rows of the same studies.
    named = dict.fromkeys(name.strip() for name in (optimizers or "").split(",") if name.strip())
    flags = {"methods": list(named) or None, "repeats": repeats}
    stated = {key: value for key, value in flags.items() if value is not None}
    section, specs = read_comparison(sources[0], overrides_of(settings), stated)
    folder = out or STUDIES / f"{Path(sources[0]).stem}-compare"
    pages = Pages(html, latex, replace)
    run_comparison(specs, folder, Way(workers, as_json, quiet), section.scale, pages)


class Pages(NamedTuple):
    """The files a comparison of methods writes.

    `replace`: what is there may be replaced.
    """

    html: Path | None
    latex: Path | None
    replace: bool


def run_comparison(
    specs: Mapping[Cell, Spec], folder: Path, way: Way, scales: Mapping[str, Scale], pages: Pages
) -> None:
    """Run the studies of a comparison, and show its tables.

    Studies that are over are only read.

    Raises:
        InputError: methods of a task differ in more than trainer, space and optimizer.
        typer.Exit: a study has no test score; code 1.
    """
    place = None if pages.html is None else page_place(pages.html, pages.replace)
    table = None
    if pages.latex is not None:
        table = free_output(pages.latex, (".tex",), replace=pages.replace)
    by_task: dict[str, dict[str, Spec]] = {}
    for cell, spec in specs.items():
        # The studies of a method differ in their seed alone: one of them is checked.
        by_task.setdefault(cell.task, {})[cell.method] = spec
    for task, methods in by_task.items():
        unspent = {name: (spec, Spent(0, 0, 0.0, 0.0)) for name, spec in methods.items()}
        differences = [it for it in protocol_differences(unspent) if it.part != "space"]
        if differences:
            where = f" on {task}" if task else ""
            raise InputError(f"differ{where} in {text_of(differences)}", key="compare.methods")
        for spec in methods.values():
            check(with_start(spec), trainer_loader(spec))
    studies = _run_all(specs, folder, way)
    comparison = compare_results(studies, min(cell.seed for cell in specs), scales)
    print_answer(comparison_text(comparison), comparison_dict(comparison), as_json=way.as_json)
    if place is not None:
        write_page(place, methods_html(comparison), err=way.as_json)
    if table is not None:
        write_page(table, comparison_latex(comparison), err=way.as_json)
    if any(len(row.tests) < comparison.repeats for row in comparison.rows):
        # Last, so that whoever gets the exit code has the table too.
        raise typer.Exit(1)


def _run_all(specs: Mapping[Cell, Spec], folder: Path, way: Way) -> dict[Cell, Finished | None]:
    """Run studies, and return results and charged steps."""
    studies: dict[Cell, Finished | None] = {}
    for cell, spec in specs.items():
        place = folder / cell.place
        if not way.quiet:
            where = f"{cell.method} on {cell.task}" if cell.task else cell.method
            say_line(f"{where}, study seed {cell.seed}: {place}", err=way.as_json)
        studies[cell] = None
        with closing(create_or_open(spec, place, option="--out")) as study:
            try:
                result = run_study(study, way)
                studies[cell] = result, study.driver.charges.steps
                if result.problem:
                    say(f"autorl: {place}: {result.problem}", err=True)
            except StudyError as error:
                # It does not end the others: the table says that its result is missing.
                say_line(f"autorl: {error}", err=True)
            except KeyboardInterrupt as error:
                raise stopped(error, "the same command goes on") from None
    return studies


def _studies_in(folder: Path) -> list[Path]:
    """List the studies in a folder, or the folder that is one.

    Raises:
        InputError: there is none.
    """
    check_folder(folder, " (a search space needs --optimizers)")
    studies = list(studies_below(folder))
    if not studies:
        raise InputError("holds no study", file=str(folder))
    return studies
