"""Commands that only look at a study: status, best, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, print_json, say
from autorl.landscapes import find_landscape, load_landscape
from autorl.optimizers.priors.used import prior_text
from autorl.report.formats import FORMATS, candidates, render
from autorl.report.reading import open_view
from autorl.report.status import status_dict, status_text
from autorl.store.folder import holds_study
from autorl.types import InputError

_WITH_REMARKS = ("yaml", "table")
"""Formats that a line about the prior may precede: the others are pasted as they are."""


def status(folder: Folder, as_json: AsJson = False) -> None:
    """Where a study stands.

    Works while it runs, after a kill, and when it is over. Writes nothing.
    """
    view = open_view(folder)
    try:
        if as_json:
            print_json(status_dict(view))
        else:
            say(status_text(view))
    finally:
        view.close()


def best(
    folder: Folder,
    top: Annotated[int, typer.Option(min=1, help="How many, best first.")] = 1,
    style: Annotated[
        str,
        typer.Option(
            "--format",
            help="yaml, json, kwargs (Python; of the library's own class), cli (flags), table, "
            "zoo (a file of RL Baselines3 Zoo).",
        ),
    ] = "yaml",
) -> None:
    """The best configurations, to use elsewhere.

    Every value of them, defaults included, in a form a trainer accepts; ranked by tuning score.
    Writes nothing.
    """
    # Before a database is copied, which may be large.
    if style not in FORMATS:
        raise InputError(f"expected one of {', '.join(FORMATS)}, got {style!r}", key="--format")
    view = open_view(folder)
    try:
        ranked = candidates(view, top)
        if style in _WITH_REMARKS and view.record.prior_use is not None:
            say(f"# {prior_text(view.record.prior_use)}")
        say(render(ranked, style))
    finally:
        view.close()


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
        from autorl.report.landscape_page import landscape_html

        data = load_landscape(source)
        name = f"{data.manifest.algorithm}-{data.manifest.environment}"
        # Environments may be called ALE/Pong-v5.
        write_page(html or Path(f"{name.replace('/', '_')}-report.html"), landscape_html(data))
        return
    from autorl.report.html import report_html

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
