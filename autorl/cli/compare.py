"""The command compare: one study file under several optimizers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autorl.cli.options import AsJson, Quiet, Settings, Workers, print_json, say, say_line
from autorl.cli.run import STUDIES, overrides_of, run_study, stopped
from autorl.report.comparison import compare_results, comparison_dict, comparison_text
from autorl.spec import OptimizerSection, Spec
from autorl.study import Result
from autorl.study.opening import create_or_open
from autorl.study.setup import check, trainer_loader
from autorl.tuner import read_study
from autorl.types import InputError, StudyError


def compare(
    source: Annotated[
        str, typer.Argument(metavar="FILE|SPACE", help="A study file, or a search space.")
    ],
    optimizers: Annotated[str, typer.Option(help="Their names, with commas: random,tpe.")],
    repeats: Annotated[
        int,
        typer.Option(
            min=1, max=1_000, help="Studies for each optimizer, each with a seed of its own."
        ),
    ] = 3,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the studies; default studies/<name>-compare.")
    ] = None,
    workers: Workers = None,
    settings: Settings = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare optimizers on one study file, on held-out seeds.

    Equal budgets, test scores with intervals, average ranks over study seeds. Every study is a
    folder <out>/<optimizer>/seed-<n>. The same command goes on where it was interrupted; finished
    studies are only read. An optimizer the file names keeps its options, the others have their
    defaults.
    """
    # Named twice, an optimizer would have two rows of the same studies.
    names = list(dict.fromkeys(name.strip() for name in optimizers.split(",") if name.strip()))
    if len(names) < 2:
        raise InputError(
            f"expected at least two optimizers, got {optimizers!r}", key="--optimizers"
        )
    base = read_study(source, overrides_of(settings))
    folder = out or STUDIES / f"{base.name}-compare"
    # From the file's own seed on, so that its own study is one of them.
    seeds = range(base.seed, base.seed + repeats)
    specs = {(name, seed): _variant(base, name, seed) for name in names for seed in seeds}
    for name in names:
        # The studies of an optimizer differ in their seed alone: one of them is checked.
        spec = specs[name, seeds[-1]]
        check(spec, trainer_loader(spec))
    results: dict[str, dict[int, Result]] = {name: {} for name in names}
    charged: dict[str, dict[int, int]] = {name: {} for name in names}
    for (name, seed), spec in specs.items():
        # Of `module:Class`: Windows has no colon in a file name.
        place = folder / name.replace(":", "-") / f"seed-{seed}"
        if not quiet:
            say_line(f"{name}, study seed {seed}: {place}", err=as_json)
        study = create_or_open(spec, place, option="--out")
        try:
            results[name][seed] = run_study(
                study, workers=workers, search=True, as_json=as_json, quiet=quiet
            )
            charged[name][seed] = study.driver.charged_steps
            if results[name][seed].problem:
                say(f"autorl: {place}: {results[name][seed].problem}", err=True)
        except StudyError as error:
            # One study without a result does not end the others: the table says that it is missing.
            say_line(f"autorl: {error}", err=True)
        except KeyboardInterrupt as error:
            raise stopped(error, "the same command goes on") from None
        finally:
            study.close()
    comparison = compare_results(results, charged, base.seed, repeats)
    if as_json:
        print_json(comparison_dict(comparison))
    else:
        say(comparison_text(comparison))
    for by_seed in results.values():
        usable = [result for result in by_seed.values() if not result.problem]
        if len(usable) < repeats:
            # Last, so that whoever gets the exit code has the table too.
            raise typer.Exit(1)


def _variant(base: Spec, optimizer: str, seed: int) -> Spec:
    """Give the study under another optimizer and study seed."""
    section = (
        base.optimizer if base.optimizer.name == optimizer else OptimizerSection(name=optimizer)
    )
    changes: dict[str, Any] = {
        "optimizer": section,
        "seed": seed,
        "name": f"{base.name}-{optimizer}-{seed}",
    }
    if base.storage is not None:
        place = optimizer.replace(":", "-")
        changes["storage"] = f"{base.storage}/{place}/seed-{seed}"
    return base.changed(**changes)
