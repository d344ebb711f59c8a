"""The command report: a study or a landscape as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import say
from autorl.landscapes import find_landscape, load_landscape
from autorl.report.html import report_html
from autorl.report.landscape_page import landscape_html
from autorl.report.reading import open_view
from autorl.store.folder import holds_study
from autorl.types import InputError


def report(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR|LANDSCAPE",
            help="A study's folder, or a landscape's folder or id.",
            show_default=False,
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            "--out",
            help="File to write; default DIR/report.html, of a landscape ./NAME-report.html.",
        ),
    ] = None,
) -> None:
    """Write a report: one HTML file.

    Of a study: result, learning curves, seeds, population, hyperparameters, proposals, cost,
    failures, study file, and a checklist for publication. Of a landscape: what matters, what is
    best, what is noise. The file is complete: it opens without a network, and in print.
    """
    folder = Path(source)
    if not holds_study(folder) and find_landscape(source) is not None:
        data = load_landscape(source)
        name = f"{data.manifest.algorithm}-{data.manifest.environment}"
        # Environments may be called ALE/Pong-v5.
        write_page(html or Path(f"{name.replace('/', '_')}-report.html"), landscape_html(data))
        return
    view = open_view(folder)
    try:
        text = report_html(view)
    finally:
        view.close()
    # Not among the study's own files: `verify` passes over it.
    write_page(html or folder / "report.html", text)


def write_page(target: Path, text: str, *, err: bool = False) -> None:
    """Write a page and say where it is.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=str(target)) from error
    say(str(target), err=err)
