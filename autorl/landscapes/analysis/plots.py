"""Figures of answers.

`save` writes a file: PNG, SVG, PDF, or HTML that is interactive and needs no network. The same
answer is the same file every time.
"""

from __future__ import annotations

from pathlib import Path

from autorl.core.types import InputError
from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.analysis.kinds import chart_of
from autorl.report.pages.document import Figure, Section, page
from autorl.report.pages.vega import picture
from autorl.store.outputs import free_output, write_output

SUFFIXES = (".png", ".svg", ".pdf", ".html")


def save(answer: Answer, path: str | Path, *, replace: bool = False) -> Path:
    """Draw an answer into a file.

    The suffix decides: .png, .svg, .pdf or .html. A figure of ours is replaced, any other file
    with `replace` alone.

    Raises:
        InputError: another suffix, no such folder, a file that is not ours, or a place in a study
            or a landscape.
    """
    target = free_output(path, SUFFIXES, replace=replace)
    suffix = target.suffix.lower()
    if not target.parent.is_dir():
        raise InputError("no such folder", file=str(target.parent))
    chart = chart_of(answer)
    if suffix == ".html":
        figure = Figure(chart, answer.kind, answer.notes)
        write_output(target, page(chart.title, "", [Section("figure", "", [figure])]))
    else:
        target.write_bytes(picture(chart, suffix))
    return target
