"""The command report: a study or a landscape as a page."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import say
from autorl.landscapes import find_landscape, load_landscape
from autorl.report.html import report_html
from autorl.report.landscape_page import landscape_html
from autorl.report.reading import open_view
from autorl.store.folder import holds_study
from autorl.store.outputs import REPORT, free_output, write_output


def report(
    source: Annotated[str, typer.Argument(metavar="DIR|LANDSCAPE")],
    html: Annotated[Path | None, typer.Option("--html", "--out")] = None,
    replace: bool = False,
) -> None:
    """Write a report: one HTML file.

    For a study it has result, learning curves, seeds, population, hyperparameters, proposals, cost,
    failures, study file, and a checklist for publication. For a landscape it shows what matters,
    what is best, what is noise. The file is complete: it opens without a network, and in print.

    Options:
        source: A study's folder, or a landscape's folder or id.
        html: File to write; default DIR/report.html, of a landscape ./NAME-report.html.
    """
    folder = Path(source)
    if not holds_study(folder) and find_landscape(source) is not None:
        data = load_landscape(source)
        name = f"{data.manifest.algorithm}-{data.manifest.environment}"
        # Environments may be called ALE/Pong-v5.
        target = page_place(html or Path(f"{name.replace('/', '_')}-report.html"), replace)
        write_page(target, landscape_html(data))
        return
    with closing(open_view(folder)) as view:
        target = page_place(html or folder / REPORT, replace)
        text = report_html(view)
    write_page(target, text)


def page_place(target: Path, replace: bool) -> Path:
    """Check where a page is to lie, before any work for it."""
    return free_output(target, (".html",), replace=replace)


def write_page(target: Path, text: str, *, err: bool = False) -> None:
    """Write a page and say where it is."""
    write_output(target, text)
    say(str(target), err=err)
