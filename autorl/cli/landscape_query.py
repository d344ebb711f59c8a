"""Commands that look at a data set.

They are list, info, query, best, curve and top.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.landscape_options import ROOT, cell, role, rows_of, show_rows
from autorl.cli.options import (
    AsJson,
    Source,
    print_answer,
    print_json,
    print_json_rows,
    say,
    say_line,
)
from autorl.core.plain_text import counted
from autorl.core.plain_values import json_value
from autorl.core.types import InputError
from autorl.landscapes import Landscape, list_landscapes, load_landscape, shipped_root
from autorl.landscapes.query_process import QUERY_SECONDS
from autorl.report.table import aligned

_ROWS = 100
"""Rows of an answer that are printed unless --limit says otherwise."""


def list_all(
    where: Annotated[str, typer.Argument()] = "all", root: Path = ROOT, as_json: AsJson = False
) -> None:
    """The landscapes there are: local ones, and those shipped with the package.

    Options:
        where: local, shipped or all.
        root: Folder of the local ones.
    """
    if where not in ("local", "shipped", "all"):
        raise InputError(f"expected local, shipped or all, got {where!r}", key="WHERE")
    folders: dict[Path, tuple[str, Path]] = {}
    for place, folder in (("local", root), ("shipped", shipped_root())):
        if where in (place, "all") and folder is not None and folder.is_dir():
            folders.setdefault(folder.resolve(), (place, folder))
    rows = []
    for place, folder in folders.values():
        for name, path in list_landscapes(folder).items():
            counts = map(Landscape(path).manifest.rows.get, ("configs", "runs", "evals"))
            rows.append((name, place, *counts, str(path)))
    header = ("landscape", "where", "configurations", "runs", "evaluations", "folder")
    show_rows(header, rows, as_json=as_json)


def info(source: Source, as_json: AsJson = False) -> None:
    """Describe a landscape: its origin, its size, and how its runs ended."""
    landscape = load_landscape(source)
    manifest = landscape.manifest
    status = landscape.queries.runs_by_status()
    document = {**manifest.to_dict(), "folder": str(landscape.path), "status": status}
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
    texts = aligned([*lines.items(), *(("note", note) for note in manifest.notes)])
    print_answer("\n".join(map(str.rstrip, texts)), json_value(document), as_json=as_json)


def query(
    source: Source,
    sql: Annotated[str, typer.Argument(metavar="SQL")],
    limit: Annotated[int | None, typer.Option(min=0)] = None,
    seconds: Annotated[float, typer.Option(min=0)] = QUERY_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Ask a landscape in SQL (DuckDB's dialect).
    A query reads the landscape and nothing else.

    Options:
        sql: Over configs, runs, evals, segments, scores.
        limit: Rows to compute and print; 0 = all. Default 100; all with --json.
        seconds: Most seconds the answer may take; 0 = no limit.
    """
    most = 0 if as_json else _ROWS
    if limit is not None:
        most = limit
    # One more tells whether there are more.
    asked = most + 1 if most else None
    header, rows = load_landscape(source).rows(sql, asked, seconds=seconds or None)
    shown = rows if not most else islice(rows, most)
    if as_json:
        print_json_rows(header, ([json_value(value) for value in row] for row in shown))
    else:
        show_rows(header, shown, as_json=False)
    if most and next(rows, None) is not None:
        say("... and more rows (--limit 0 prints all)", err=True)


def best(
    source: Source,
    seeds: str = "tuning",
    by: str | None = None,
    reduce: str | None = None,
    step: int | None = None,
    as_json: AsJson = False,
) -> None:
    """The best configuration over the seeds of a role,
    and what it scores on the others.

    Ranked as the study that made the landscape ranked its proposals, unless told; without a record,
    by the interquartile mean at the last step. In a study a configuration has the number of the
    proposal that introduced it.
    """
    landscape = load_landscape(source)
    choice = landscape.best(role(seeds), by, step, reduce)
    if as_json:
        print_json({**vars(choice), "config": json_value(choice.config)})
        return
    unit = "optimizer steps" if landscape.manifest.step_unit == "optimizer_steps" else "steps"
    rule = landscape.rule(by, reduce).text(landscape.manifest.objective.metric, seeds)
    say_line(f"configuration {choice.config_id}, chosen by {rule} at {choice.step} {unit}")
    for name, value in (("tuning", choice.tuning), ("test", choice.test)):
        note = ""
        if value is not None and seeds in (name, "all"):
            note += " (optimistic: it was chosen by these)"
        if name == "test" and choice.failed_tests:
            note += f" ({counted(choice.failed_tests, 'test run')} failed)"
        say(f"  {name + ' seeds':14}{cell(value)}{note}")
    for name, value in (("seeds", choice.gap_of_seeds), ("tasks", choice.gap_of_tasks)):
        if value is not None:
            say(f"  {'gap by ' + name:14}{cell(value)}")
    for task in choice.tasks:
        say_line(f"  {task.task}: tuning seeds {cell(task.tuning)}, test seeds {cell(task.test)}")
    for name, setting in choice.config.items():
        say_line(f"  {name} = {cell(json_value(setting))}")


def curve(source: Source, config_id: int, as_json: AsJson = False) -> None:
    """The learning curves of one configuration, seed by seed.

    Options:
        config_id: Configuration, as `best` and `top` name it.
    """
    header, rows = load_landscape(source).curve_rows(config_id)
    show_rows(header, rows, as_json=as_json)


def top(
    source: Source,
    count: Annotated[int, typer.Option("--n", "-n", min=1)] = 10,
    seeds: str = "tuning",
    by: str | None = None,
    reduce: str | None = None,
    step: int | None = None,
    as_json: AsJson = False,
) -> None:
    """The best configurations, best first, ranked as `best` does.

    Options:
        count: How many.
    """
    landscape = load_landscape(source)
    frame = landscape.top(count, role(seeds), by, step, reduce)
    if not as_json:
        rule = landscape.rule(by, reduce)
        say_line(f"ranked by {rule.text(landscape.manifest.objective.metric, seeds)}", err=True)
    show_rows([str(name) for name in frame], rows_of(frame), as_json=as_json)


def _listed(seeds: Sequence[int]) -> str:
    """List seeds as in `10: 0..9`, or each when there are gaps."""
    ordered = sorted(seeds)
    if not ordered:
        return "none"
    contiguous = len(ordered) > 1 and ordered == list(range(ordered[0], ordered[-1] + 1))
    text = f"{ordered[0]}..{ordered[-1]}" if contiguous else ", ".join(map(str, ordered))
    return f"{len(ordered)}: {text}"
