"""The command best: configurations to use elsewhere."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from autorl.cli.options import Folder, say, say_line
from autorl.core.types import InputError
from autorl.optimizers.model_share import prior_text
from autorl.report.formats import FORMATS, candidates, render
from autorl.report.reading import open_view

_WITH_REMARKS = ("yaml", "table")
"""Formats that lines about note and prior may precede: the others are pasted as they are."""


def best(
    folder: Folder,
    top: Annotated[int, typer.Option(min=1)] = 1,
    style: Annotated[str, typer.Option("--format")] = "yaml",
) -> None:
    """The best configurations, to use elsewhere.

    Every value of them, defaults included, in a form a trainer accepts; ranked by tuning score.
    Writes nothing.

    Options:
        top: How many, best first.
        style: yaml, json, kwargs (Python; of the library's own class), cli (flags), table, zoo (a
            file of RL Baselines3 Zoo).
    """
    # Before a database is copied, which may be large.
    if style not in FORMATS:
        raise InputError(f"expected one of {', '.join(FORMATS)}, got {style!r}", key="--format")
    with closing(open_view(folder)) as view:
        ranked = candidates(view, top)
        if style in _WITH_REMARKS and view.record.prior_use is not None:
            say(f"# {prior_text(view.record.prior_use)}")
        if style in _WITH_REMARKS and view.spec.note:
            say_line(f"# note: {view.spec.note}")
        say(render(ranked, style))
        # Beside the output, which is pasted elsewhere.
        if loss := view.result().loss:
            say(f"autorl: {loss}", err=True)
