"""The command compare: studies, or optimizers on a file, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from autorl.cli.options import AsJson, Quiet, Settings, Workers, print_json, say, say_line
from autorl.cli.progress import Way
from autorl.cli.report import page_place, write_page
from autorl.cli.run import STUDIES, overrides_of, run_study, stopped
from autorl.core.types import InputError, StudyError
from autorl.report.comparison import compare_results, comparison_dict, comparison_text
from autorl.report.reading import check_folder, studies_below
from autorl.report.studies import compare_studies
from autorl.report.studies import comparison_dict as studies_dict
from autorl.report.studies import comparison_text as studies_text
from autorl.report.studies_page import comparison_html
from autorl.study import Result
from autorl.study.folder.opening import create_or_open
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import OptimizerSection, Spec
from autorl.study.tuner import read_study


def compare(
    sources: Annotated[list[str], typer.Argument(metavar="DIR...|FILE|SPACE")],
    optimizers: str | None = None,
    repeats: Annotated[int | None, typer.Option(min=1, max=1_000)] = None,
    out: Path | None = None,
    workers: Workers = None,
    settings: Settings = None,
    unequal: bool = False,
    html: Path | None = None,
    replace: bool = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare studies or optimizers on held-out seeds.

    Studies: test scores with intervals, in pairs on the seeds they share, and what they cost.
    Unequal budgets, spaces, seeds or evaluations are refused without --unequal.

    Optimizers on a file: equal budgets, test scores with intervals, average ranks over study
    seeds. Every study is a folder <out>/<optimizer>/seed-<n>. The same command goes on where it was
    interrupted; finished studies are only read. An optimizer the file names keeps its options, the
    others have their defaults.

    Options:
        sources: Folders of studies (or with studies in them); or a study file or search space, with
            --optimizers.
        optimizers: Of a study file: their names, with commas: random,tpe.
        repeats: Studies for each optimizer, each with a seed of its own; default 3.
        out: Folder of the studies; default studies/<name>-compare.
        unequal: Of studies: compare them although budgets, spaces or seeds differ, and say so.
        html: Of studies: also write a report, one HTML file.
    """
    if optimizers is None:
        options = {"--repeats": repeats, "--out": out, "--workers": workers, "--set": settings}
        for name, value in options.items():
            if value is not None:
                raise InputError("is for a study file with --optimizers", key=name)
        place = None if html is None else page_place(html, replace)
        _compare_folders(sources, place, unequal=unequal, as_json=as_json)
        return
    if len(sources) != 1:
        raise InputError(f"expected one study file, got {len(sources)}", key="FILE")
    if unequal or html is not None:
        key = "--unequal" if unequal else "--html"
        raise InputError("is for folders of studies, without --optimizers", key=key)
    # Named twice, an optimizer would have two rows of the same studies.
    names = list(dict.fromkeys(name.strip() for name in optimizers.split(",") if name.strip()))
    if len(names) < 2:
        raise InputError(
            f"expected at least two optimizers, got {optimizers!r}", key="--optimizers"
        )
    base = read_study(sources[0], overrides_of(settings))
    folder = out or STUDIES / f"{base.name}-compare"
    # From the file's own seed on, so that its own study is one of them.
    seeds = range(base.seed, base.seed + (repeats or 3))
    specs = {(name, seed): _variant(base, name, seed) for name in names for seed in seeds}
    for name in names:
        # The studies of an optimizer differ in their seed alone: one of them is checked.
        spec = specs[name, seeds[-1]]
        check(spec, trainer_loader(spec))
    results, charged = _run_all(specs, folder, Way(workers, as_json, quiet))
    comparison = compare_results(results, charged, base.seed, len(seeds))
    if as_json:
        print_json(comparison_dict(comparison))
    else:
        say(comparison_text(comparison))
    for by_seed in results.values():
        usable = [result for result in by_seed.values() if not result.problem]
        if len(usable) < len(seeds):
            # Last, so that whoever gets the exit code has the table too.
            raise typer.Exit(1)


def _compare_folders(
    sources: Sequence[str], place: Path | None, *, unequal: bool, as_json: bool
) -> None:
    """Compare studies, print it, and write a page if asked."""
    folders = [folder for source in sources for folder in _studies_in(Path(source))]
    studies = compare_studies(folders, unequal=unequal)
    if as_json:
        print_json(studies_dict(studies))
    else:
        say(studies_text(studies))
    if place is not None:
        write_page(place, comparison_html(studies), err=as_json)


def _run_all(
    specs: Mapping[tuple[str, int], Spec], folder: Path, way: Way
) -> tuple[dict[str, dict[int, Result]], dict[str, dict[int, int]]]:
    """Run studies, and return results and steps charged by optimizer and seed."""
    results: dict[str, dict[int, Result]] = {name: {} for name, _ in specs}
    charged: dict[str, dict[int, int]] = {name: {} for name, _ in specs}
    for (name, seed), spec in specs.items():
        place = folder / _folder_name(name) / f"seed-{seed}"
        if not way.quiet:
            say_line(f"{name}, study seed {seed}: {place}", err=way.as_json)
        study = create_or_open(spec, place, option="--out")
        try:
            results[name][seed] = run_study(study, way)
            charged[name][seed] = study.driver.charges.steps
            if results[name][seed].problem:
                say(f"autorl: {place}: {results[name][seed].problem}", err=True)
        except StudyError as error:
            # One study without a result does not end the others: the table says that it is missing.
            say_line(f"autorl: {error}", err=True)
        except KeyboardInterrupt as error:
            raise stopped(error, "the same command goes on") from None
        finally:
            study.close()
    return results, charged


def _studies_in(folder: Path) -> list[Path]:
    """List the studies in a folder, or the folder that is one.

    Raises:
        InputError: there is none.
    """
    check_folder(folder, " (a study file needs --optimizers)")
    studies = list(studies_below(folder))
    if not studies:
        raise InputError("holds no study", file=str(folder))
    return studies


def _variant(base: Spec, optimizer: str, seed: int) -> Spec:
    """Give the study under another optimizer and study seed."""
    named = base.optimizer.name == optimizer
    changes: dict[str, Any] = {
        "optimizer": base.optimizer if named else OptimizerSection(name=optimizer),
        "seed": seed,
        "name": f"{base.name}-{optimizer}-{seed}",
    }
    if base.storage is not None:
        changes["storage"] = f"{base.storage}/{_folder_name(optimizer)}/seed-{seed}"
    return base.changed(**changes)


def _folder_name(optimizer: str) -> str:
    # `module:Class` has a colon, which Windows forbids in a file name.
    return optimizer.replace(":", "-")
