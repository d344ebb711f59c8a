"""Figures of answers.

PNG, SVG and PDF are drawn by matplotlib, interactive HTML by plotly. Both come with the extra
`plots`.

`figure_of` returns a matplotlib Figure of its own, without touching pyplot's global state, and
`interactive` a plotly Figure, to be changed before it is shown. `save` writes a file: an SVG of the
same answer is the same file every time, and an HTML file holds plotly.js, so that it opens without
a network.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from autorl.landscapes.analysis._answer import Answer
from autorl.landscapes.analysis._interactive import draw as draw_interactive
from autorl.landscapes.analysis._interactive import page
from autorl.landscapes.analysis.kinds import chart_of
from autorl.types import InputError

Figure: TypeAlias = Any  # matplotlib.figure.Figure, which is imported when a figure is drawn
STATIC = (".png", ".svg", ".pdf")
SUFFIXES = (*STATIC, ".html")


def figure_of(answer: Answer) -> Figure:
    """Draw an answer as a matplotlib Figure.

    Raises:
        InputError: matplotlib is not installed.
    """
    from autorl.landscapes.analysis._static import draw

    return draw(chart_of(answer), _library("matplotlib", "matplotlib.figure").Figure)


def interactive(answer: Answer) -> Any:
    """Draw an answer as a plotly Figure.

    Raises:
        InputError: plotly is not installed.
    """
    plotly = _library("plotly", "plotly.graph_objects")
    return draw_interactive(chart_of(answer), plotly)


def save(answer: Answer, path: str | Path) -> Path:
    """Draw an answer into a file.

    The suffix decides: .png, .svg, .pdf or .html.

    Raises:
        InputError: another suffix, no such folder, or the library is not installed.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"expected a file name that ends in {', '.join(SUFFIXES)}; got {target.name!r}",
            key="out",
        )
    if not target.parent.is_dir():
        raise InputError("no such folder", file=str(target.parent))
    if suffix == ".html":
        text = page(interactive(answer), chart_of(answer))
        target.write_text(text, encoding="utf-8")
        return target
    figure = figure_of(answer)
    # The same answer is the same file: no date in it, and ids of an SVG hashed with a fixed salt.
    stamped = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with _library("matplotlib", "matplotlib").rc_context(
        {"svg.hashsalt": "autorl", "svg.fonttype": "none"}
    ):
        figure.savefig(target, dpi=150, metadata=stamped[suffix])
    return target


def _library(name: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"this figure needs {name}: pip install 'autorl[plots]'") from None
