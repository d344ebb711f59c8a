"""The command group `autorl landscape`: look at landscape data sets, bring them in, put them out, build them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from autorl.cli import landscape_analysis
from autorl.cli.landscape_analysis import ROOT, By, Reduce, Source, landscapes_of, role
from autorl.cli.landscape_build import Out, Replace, build
from autorl.cli.options import AsJson, key_texts, print_json, print_json_rows, say, say_line
from autorl.cli.progress import RuleProgress
from autorl.cli.rows import cell, rows_of, show_rows, show_written
from autorl.plain_text import printable
from autorl.plain_values import json_value
from autorl.types import InputError


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


app = typer.Typer(cls=_InOrder, rich_markup_mode=None)
_ROWS = 100  # of an answer that are printed unless --limit says otherwise
Role = Annotated[str, typer.Option("--seeds", help="Seeds that count: tuning, test or all.")]
Step = Annotated[
    int | None, typer.Option("--step", help="Last step that counts; default the last there is.")
]


@app.callback(invoke_without_command=True)
def start(ctx: typer.Context) -> None:
    """Landscape data sets: every run of many configurations, to be queried, replayed, imported and published."""
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())


@app.command("list")
def list_all(
    where: Annotated[str, typer.Argument(help="local, shipped or all.")] = "all",
    root: Annotated[Path, typer.Option(help="Folder of the local ones.")] = ROOT,
    as_json: AsJson = False,
) -> None:
    """The landscapes there are: local ones, and those shipped with the package."""
    from autorl.landscapes import Landscape, list_landscapes, shipped_root

    if where not in ("local", "shipped", "all"):
        raise InputError(f"expected local, shipped or all, got {where!r}", key="WHERE")
    roots = {"local": root, "shipped": shipped_root()}
    rows, seen = [], set[Path]()
    for place, folder in roots.items():
        if (
            where not in (place, "all")
            or folder is None
            or not folder.is_dir()
            or folder.resolve() in seen
        ):
            continue
        seen.add(folder.resolve())
        for name, path in list_landscapes(folder).items():
            counts = Landscape(path).manifest.rows
            rows.append(
                (
                    name,
                    place,
                    *(counts.get(table) for table in ("configs", "runs", "evals")),
                    str(path),
                )
            )
    show_rows(
        ("landscape", "where", "configurations", "runs", "evaluations", "folder"),
        rows,
        as_json=as_json,
    )


@app.command()
def info(source: Source, as_json: AsJson = False) -> None:
    """What a landscape is, how it was made, and how its runs ended."""
    from autorl.landscapes import load_landscape

    landscape = load_landscape(source)
    manifest = landscape.manifest
    status = dict(
        landscape.own_query(
            "SELECT status, count(*) FROM runs GROUP BY status ORDER BY status"
        ).fetchall()
    )
    if as_json:
        print_json(
            json_value({**manifest.to_dict(), "folder": str(landscape.path), "status": status})
        )
        return
    objective = manifest.objective
    steps = manifest.steps
    lines = {
        "landscape": manifest.id,
        "folder": f"{landscape.path}{' (a study)' if landscape.is_study else ''}",
        "description": manifest.description,
        "objective": f"{objective.direction} {objective.metric}",
        "rows": ", ".join(f"{count} {name}" for name, count in manifest.rows.items()),
        "runs": ", ".join(f"{count} {name}" for name, count in status.items()) or "none",
        "tuning seeds": _listed(manifest.seeds.get("tuning", ())),
        "test seeds": _listed(manifest.seeds.get("test", ())),
        "steps": f"{len(steps)}, from {steps[0]} to {steps[-1]}",
        "metrics": ", ".join(landscape.metrics),
        "hyperparameters": ", ".join(landscape.space.names),
        "sampler": ", ".join(f"{key} {value}" for key, value in manifest.sampler.items()),
        "licence": manifest.licence or "none stated",
        "created": manifest.created,
    }
    for key, text in lines.items():
        say_line(f"{key:16}{text}".rstrip())
    for note in manifest.notes:
        say_line(f"{'note':16}{note}")


@app.command()
def query(
    source: Source,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="Over configs, runs, evals, segments, scores.")
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="Rows to compute and print; 0 = all. Default 100; all with --json."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a landscape in SQL (DuckDB's dialect). A query reads the landscape and nothing else."""
    from autorl.landscapes import load_landscape

    most = limit if limit is not None else 0 if as_json else _ROWS
    header, rows = load_landscape(source).rows(
        sql, most + 1 if most else None
    )  # one more tells whether there are more
    shown = rows if not most else islice(rows, most)
    if as_json:
        print_json_rows(header, ([json_value(value) for value in row] for row in shown))
    else:
        show_rows(header, shown, as_json=False)
    if most and next(rows, None) is not None:
        say("... and more rows (--limit 0 prints all)", err=True)


@app.command()
def best(
    source: Source,
    seeds: Role = "tuning",
    by: By = None,
    reduce: Reduce = None,
    step: Step = None,
    as_json: AsJson = False,
) -> None:
    """The best configuration over the seeds of a role, and what it scores on the others.

    Ranked as the study that made the landscape ranked its proposals, unless told; without a record, by the
    interquartile mean at the last step. In a study a configuration has the number of the proposal that introduced it.
    """
    from autorl.landscapes import load_landscape

    landscape = load_landscape(source)
    choice = landscape.best(role(seeds), by, step, reduce)
    if as_json:
        print_json({**vars(choice), "config": json_value(choice.config)})
        return
    unit = "optimizer steps" if landscape.manifest.step_unit == "optimizer_steps" else "steps"
    rule = landscape.rule(by, reduce).text(landscape.manifest.objective.metric, seeds)
    say_line(f"configuration {choice.config_id}, chosen by {rule} at {choice.step} {unit}")
    for name, value in (("tuning", choice.tuning), ("test", choice.test)):
        chosen = " (optimistic: it was chosen by these)" if seeds in (name, "all") else ""
        failed = (
            f" ({choice.failed_tests} test runs failed)"
            if name == "test" and choice.failed_tests
            else ""
        )
        say(f"  {name + ' seeds':14}{cell(value)}{chosen if value is not None else ''}{failed}")
    for name, setting in choice.config.items():
        say_line(f"  {name} = {cell(json_value(setting))}")


@app.command()
def curve(
    source: Source,
    config_id: Annotated[int, typer.Argument(help="Configuration, as `best` and `top` name it.")],
    as_json: AsJson = False,
) -> None:
    """The learning curves of one configuration, seed by seed."""
    from autorl.landscapes import load_landscape

    frame = load_landscape(source).curves(config_id)
    show_rows([str(name) for name in frame], rows_of(frame), as_json=as_json)


@app.command()
def top(
    source: Source,
    count: Annotated[int, typer.Option("--n", "-n", min=1, help="How many.")] = 10,
    seeds: Role = "tuning",
    by: By = None,
    reduce: Reduce = None,
    step: Step = None,
    as_json: AsJson = False,
) -> None:
    """The best configurations, best first, ranked as `best` does."""
    from autorl.landscapes import load_landscape

    landscape = load_landscape(source)
    frame = landscape.top(count, role(seeds), by, step, reduce)
    if not as_json:
        rule = landscape.rule(by, reduce)
        say_line(f"ranked by {rule.text(landscape.manifest.objective.metric, seeds)}", err=True)
    show_rows([str(name) for name in frame], rows_of(frame), as_json=as_json)


@app.command()
def validate(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="LANDSCAPE...", help="Ids or folders; a folder of many too."),
    ],
    as_json: AsJson = False,
) -> None:
    """Check integrity: files, keys, seeds, curves, bounds, copies. Exit code 1 if a rule is broken."""
    from autorl.landscapes.validate import validate as check

    folders = [landscape.path for landscape in landscapes_of(sources)]
    progress = RuleProgress(len(folders), sys.stderr)
    problems = check(folders, lambda name, rule: progress(printable(name, keep_lines=False), rule))
    progress.clear()
    if as_json:
        print_json([vars(problem) for problem in problems])
    else:
        for problem in problems:
            say_line(problem)
        say(f"{len(folders)} landscapes checked: {len(problems) or 'no'} problems")
    if problems:
        raise typer.Exit(1)


@app.command("import")
def import_files(
    source: Annotated[Path, typer.Argument(help="File or folder.")],
    out: Out = ROOT,
    format: Annotated[
        str | None,
        typer.Option(
            help="arlbench, arlbench-runs, deepcave, hpo-rl-bench, optuna, ray, csv; default: recognised."
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id", help="namespace/algorithm/environment, where the source does not say it."
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="First part of the ids, where the source says the rest.")
    ] = None,
    tuning_seeds: Annotated[
        int | None,
        typer.Option(min=1, help="The lowest N seeds tune, the others test; default half of them."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="The recorded value that is the objective.")
    ] = None,
    direction: Annotated[
        str | None, typer.Option(help="maximize or minimize; default as the source says.")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="COLUMN=ROLE",
            help="What a column is, or a YAML file that says it of all.",
        ),
    ] = None,
    unit: Annotated[float, typer.Option(help="Steps in one unit of the source's budget.")] = 1.0,
    study: Annotated[
        str | None, typer.Option(help="Name of the study, where a storage has several.")
    ] = None,
    about: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=TEXT",
            help="Of the manifest: description, licence, citation, url, creator.",
        ),
    ] = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Import data of others: ARLBench, DeepCAVE, HPO-RL-Bench, Optuna, Ray Tune, or any CSV file."""
    from autorl.landscapes.importers import import_any
    from autorl.landscapes.importers.common import TEXTS

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


@app.command()
def merge(
    sources: Annotated[
        list[str], typer.Argument(metavar="LANDSCAPE...", help="Two or more, over one space.")
    ],
    id: Annotated[
        str, typer.Option("--id", help="Of the result: namespace/algorithm/environment.")
    ],
    out: Out = ROOT,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Merge landscapes of one algorithm, environment and space into one."""
    from autorl.landscapes import load_landscape, merge_landscapes

    done = merge_landscapes([load_landscape(source) for source in sources], out, id, replace)
    show_written([done], out, as_json=as_json)


@app.command()
def delete(
    source: Source,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a landscape folder. A study's folder is never deleted, nor what comes with the package."""
    from autorl.landscapes import delete_landscape, load_landscape, shipped_root

    landscape, shipped = load_landscape(source), shipped_root()
    if shipped is not None and landscape.path.resolve().is_relative_to(shipped.resolve()):
        message = "lies among the landscapes that come with the package: nothing was deleted (remove it by hand)"
        raise InputError(message, file=str(landscape.path))
    if not yes:
        if as_json:
            raise InputError("nobody can be asked: add --yes", key="--json")
        typer.confirm(
            f"Delete {printable(str(landscape.path), keep_lines=False)} ({landscape.manifest.rows.get('runs')} runs)?",
            abort=True,
        )
    delete_landscape(landscape.path)
    if as_json:
        print_json({"deleted": str(landscape.path)})
    else:
        say(f"deleted {landscape.path}")


@app.command()
def export(
    source: Source,
    file: Annotated[
        Path,
        typer.Argument(
            help=".csv[.gz], .parquet: a table; .db, .sqlite3, .journal: an Optuna study; no ending: a DeepCAVE run."
        ),
    ],
    seeds: Role = "tuning",
    by: Annotated[
        str, typer.Option("--by", help="Aggregate over seeds, of an Optuna study or DeepCAVE run.")
    ] = "mean",
    as_json: AsJson = False,
) -> None:
    """Write a landscape for other tools: a flat table, an Optuna study, or a run folder of DeepCAVE.

    --seeds and --by are for Optuna studies, which have a trial for each configuration.
    """
    from autorl.landscapes import load_landscape
    from autorl.landscapes.export import export_optuna, export_table
    from autorl.landscapes.export_deepcave import export_deepcave

    landscape = load_landscape(source)
    if file.suffix in (".db", ".sqlite", ".sqlite3", ".journal"):
        what, count = "trials", export_optuna(landscape, file, role(seeds), by)
    elif file.suffix:
        what, count = "rows", export_table(landscape, file)
    else:
        what, count = "rows", export_deepcave(landscape, file)
    if as_json:
        print_json({"file": str(file), what: count})
    else:
        say(f"{file}: {count} {what}")


app.command()(build)
app.command()(landscape_analysis.importance)
app.command()(landscape_analysis.subset)
app.command()(landscape_analysis.analyse)
app.command()(landscape_analysis.plot)


def _listed(seeds: Sequence[int]) -> str:
    """`10: 0..9`, or the seeds themselves when they have gaps."""
    ordered = sorted(seeds)
    if not ordered:
        return "none"
    contiguous = len(ordered) > 1 and ordered == list(range(ordered[0], ordered[-1] + 1))
    text = f"{ordered[0]}..{ordered[-1]}" if contiguous else ", ".join(map(str, ordered))
    return f"{len(ordered)}: {text}"
