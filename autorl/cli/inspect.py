"""Commands that only look at a study: status, best."""

from __future__ import annotations

from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, print_json, say
from autorl.optimizers.priors.used import prior_text
from autorl.report.formats import FORMATS, candidates, render
from autorl.report.reading import open_view
from autorl.report.status import status_dict, status_text
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
