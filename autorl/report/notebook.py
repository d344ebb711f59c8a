"""Shows spaces, studies, results, landscapes and analyses in a notebook.

Jupyter asks a value for `_repr_html_`, which values have of `core.shown`; what they show is here.
Pages are without script and style: charts are pictures.
"""

from __future__ import annotations

from contextlib import closing
from functools import singledispatch
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from autorl.core.plain_text import counted, number
from autorl.landscapes.analysis import Answer, chart_of
from autorl.landscapes.landscape import Landscape
from autorl.report.html import result_scores, study_blocks
from autorl.report.landscape_page import landscape_blocks
from autorl.report.learning import seeds_chart
from autorl.report.pages.chart import Chart
from autorl.report.pages.document import Block, Figure, Table, Text, fragment
from autorl.report.reading import StudyView, open_view
from autorl.report.text import side_by_side, space_rules, space_table
from autorl.space import Space
from autorl.study import Progress, Result, Study

_MOST_ROWS = 20


def html(value: object) -> str:
    """Write what a notebook shows of a value."""
    return fragment(blocks(value))


@singledispatch
def blocks(value: object) -> list[Block]:
    """Return what is shown of a value, by its class."""
    raise TypeError(f"nothing is drawn of a {type(value).__name__}")


@blocks.register
def _(space: Space) -> list[Block]:
    return [Table(*space_table(space)), *map(Text, space_rules(space))]


@blocks.register
def _(result: Result) -> list[Block]:
    named = [("incumbent", result.best_params)]
    chart = seeds_chart(result)
    drawn = [Figure(chart, "seeds")] if chart is not None else []
    cautions = [Text(text, "caution") for text in result.caveats]
    return [*result_scores(result), *cautions, Table(*side_by_side(named)), *drawn]


@blocks.register
def _(study: Study) -> list[Block]:
    folder = study.store.folder
    if folder is None:
        return study_blocks(StudyView(Path(), study.stored, study.store, None))
    with closing(open_view(folder)) as view:
        view.holder = None  # it is this process, which shows it and trains nothing meanwhile
        return study_blocks(view)


@blocks.register
def _(data: Landscape) -> list[Block]:
    return landscape_blocks(data)


@blocks.register
def _(answer: Answer) -> list[Block]:
    header = [str(name) for name in answer.table.columns]
    rows = answer.table.head(_MOST_ROWS).values.tolist()
    cells = [[number(it) if isinstance(it, float) else it for it in row] for row in rows]
    return [Figure(chart_of(answer), answer.kind, answer.notes), Table(header, cells)]


@blocks.register
def _(chart: Chart) -> list[Block]:
    return [Figure(chart, "")]


class LiveProgress:
    """Shows in a notebook how far a study is: `tune(..., progress=LiveProgress())`."""

    def __init__(self) -> None:
        # The notebook brings it.
        self._display: Any = import_module("IPython.display")
        self._handle: Any = None
        self._shown = ""

    def __call__(self, progress: Progress) -> None:
        """Show where the study stands, in the place of what was shown."""
        text = f"{progress.phase}: {counted(progress.settled, 'proposal')} done"
        if progress.best is not None:
            text += f", proposal {progress.best_proposal} has {number(progress.best)} (tuning)"
        bar = f'<progress max="1" value="{progress.budget_used:.3f}"></progress> {escape(text)}'
        if bar == self._shown:
            return
        self._shown = bar
        shown = self._display.HTML(bar)
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)
