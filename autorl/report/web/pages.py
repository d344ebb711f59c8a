"""Makes the live page by the components of the report.

Names, values and messages in a study are anybody's text: all of it is escaped here, and the script
of the page makes no HTML of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from autorl.plain_text import counted, shortened
from autorl.plain_values import plain
from autorl.report.configurations import MEANINGS, ConfigurationRow, header
from autorl.report.formats import candidates
from autorl.report.html import (
    curve_section,
    failures_section,
    front_section,
    headline,
    incumbent_section,
    seeds_section,
)
from autorl.report.page import document as shared
from autorl.report.page.document import table
from autorl.report.reading import StudyView, TracePoint
from autorl.report.text import interval_text, number
from autorl.report.watching import Watched, watched
from autorl.study import Result
from autorl.types import InputError

ROWS_OF_A_PAGE = 100
_MOST_FAILURES = 50
_LONGEST_NAME = 60
# What the headline says already.
_IN_HEADLINE = ("study", "state", "search ended", "test score", "gap")
_FIXED_SORTS = ("number", "state", "score", "seeds", "step")
_VALUE_SORT = "value:"


@dataclass(frozen=True)
class StudyPage:
    """A study as it is shown, all of it text.

    Attributes:
        name: of the study, as its file says.
        parts: HTML by the id of its place on the page; the table of runs and the curve apart.
        summary: cells of the study in the list of studies.
        study: what the table of runs is made of.
        result: None before anything was scored.
    """

    name: str
    parts: Mapping[str, str]
    summary: tuple[str, ...]
    study: Watched
    result: Result | None


SUMMARY_HEADER = ("study", "state", "budget", "tuning score", "test score (IQM)", "runs", "failed")


def study_page(view: StudyView) -> StudyPage:
    """Read a study and make what is shown of it first."""
    study = watched(view)
    result = None if view.record.best is None else view.result()
    parts = {"headline": headline(view, result), "progress": _progress(study)}
    if result is not None:
        incumbent = incumbent_section(candidates(view, 1))
        parts["incumbent"] = f"<h2>Incumbent</h2>{incumbent}"
        parts["seeds"] = f"<h2>Seeds</h2>{seeds_section(view, result)}"
        parts["front"] = f"<h2>Front</h2>{front_section(result)}" if result.front else ""
    parts["failures"] = f"<h2>Failures</h2>{failures_section(view, _MOST_FAILURES)}"
    return StudyPage(view.spec.name, parts, _summary(view, study, result), study, result)


def curve(trace: Sequence[TracePoint], result: Result | None) -> str:
    """Draw the incumbent over the budget.

    Empty before anything was scored.
    """
    return f"<h2>Learning</h2>{curve_section(trace, result)}" if trace else ""


@dataclass(frozen=True)
class Choice:
    """The rows of the table that are shown, and their order.

    Attributes:
        sort: one of `sorts`.
        descending: the largest first.
        page: number of the page, from 0.
        state: of the rows; empty: all.
    """

    sort: str = "number"
    descending: bool = False
    page: int = 0
    state: str = ""


def choice_of(query: Mapping[str, str], names: Sequence[str]) -> Choice:
    """Read a choice from the query of an address.

    Raises:
        InputError: a value is none of those that are allowed.
    """
    sort = query.get("sort", "number")
    allowed = (*_FIXED_SORTS, *(f"{_VALUE_SORT}{name}" for name in names))
    if sort not in allowed:
        raise InputError(
            f"expected one of {', '.join(_FIXED_SORTS)}, {_VALUE_SORT}NAME", key="sort"
        )
    order = query.get("order", "asc")
    if order not in ("asc", "desc"):
        raise InputError("expected asc or desc", key="order")
    page = query.get("page", "0")
    if not (page.isascii() and page.isdigit() and len(page) < 9):
        raise InputError("expected a number", key="page")
    return Choice(sort, order == "desc", int(page), query.get("state", ""))


def runs(study: Watched, choice: Choice) -> str:
    """Write one page of the table of runs.

    Its buttons sort, filter and turn the pages.
    """
    states = sorted({row.state for row in study.configurations})
    shown = [row for row in study.configurations if choice.state in ("", row.state)]
    shown = _sorted(shown, choice)
    last = max(0, (len(shown) - 1) // ROWS_OF_A_PAGE)
    page = min(choice.page, last)
    begin = page * ROWS_OF_A_PAGE
    rows = [
        (row.state, row.cells(study.horizon, study.names))
        for row in shown[begin : begin + ROWS_OF_A_PAGE]
    ]
    sorts = (*_FIXED_SORTS, *(f"{_VALUE_SORT}{name}" for name in study.names))
    head = "".join(
        _sorting_cell(title, sort, choice)
        for title, sort in zip(header(study.names), sorts, strict=True)
    )
    body = "".join(
        f'<tr class="{_class_of(state)}">'
        + "".join(f"<td>{escape(shortened(cell))}</td>" for cell in cells)
        + "</tr>"
        for state, cells in rows
    )
    used = [f"{name} {MEANINGS[name]}" for name in states if name in MEANINGS]
    note = escape("; ".join(["* is the incumbent", *used]))
    return (
        f"<h2>Runs</h2>{_states(states, choice)}"
        f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{_pager(page, last, len(shown))}<p class=note>{note}.</p>"
    )


def studies(rows: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """Write the list of studies.

    Each row has the address of its page, the text of the link, and the other cells.
    """
    if not rows:
        return "<p>No study here yet.</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in SUMMARY_HEADER)
    body = "".join(
        f'<tr><td><a href="{escape(address)}">{escape(shortened(name, _LONGEST_NAME))}</a></td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for address, name, cells in rows
    )
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


def shell(title: str, base: str, places: Sequence[str], seconds: float) -> str:
    """Write a page whose places the script fills.

    Args:
        title: until the study has been read.
        base: address below which the script asks.
        places: ids of its parts, the first of which shows the title meanwhile.
        seconds: between two questions.
    """
    name = escape(title)
    first, *further = places
    waiting = f"<h1>{name}</h1><p class=note>Reading…</p>"
    body = f'<div id="{first}">{waiting}</div>'
    body += "".join(f'<section id="{place}"></section>' for place in further)
    way = '<a href="/">all studies</a> · ' if base else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">'
        '<script src="/page.js" defer></script></head>'
        f'<body data-base="{escape(base)}" data-seconds="{seconds:g}">'
        f'<p class="note">{way}<span id="connection" role="status">live</span></p>'
        f"<noscript><p>This page needs JavaScript; <code>autorl report DIR</code> writes one that "
        f"does not.</p></noscript>{body}</body></html>\n"
    )


STUDY_PLACES = (
    "headline",
    "progress",
    "incumbent",
    "curve",
    "front",
    "runs",
    "seeds",
    "failures",
)


def style() -> str:
    """Return the style of the report and of the live page."""
    return shared.style() + _file("page.css")


def script() -> str:
    """Return the script of the live page and of its charts."""
    return _file("page.js") + shared.script()


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _summary(view: StudyView, study: Watched, result: Result | None) -> tuple[str, ...]:
    test = "-"
    tuning = "-"
    if result is not None:
        tuning = number(result.tuning)
    if result is not None and result.test is not None:
        test = f"{number(result.test.iqm)} {interval_text(result.test.iqm_interval)}"
    failures = len(view.record.tables.failures())
    budget = f"{study.budget_used:.0%}"
    return (study.state, budget, tuning, test, str(len(study.configurations)), str(failures))


def _progress(study: Watched) -> str:
    """Write the used budget, the runs and what workers do."""
    rows = [row for row in study.facts if row[0] not in _IN_HEADLINE]
    bar = f'<progress max="1" value="{study.budget_used:.4f}"></progress>'
    last = ""
    if study.last is not None:
        last = (
            f"<p class=note>last event: {escape(study.last.kind)}, "
            f'<time data-time="{study.last.time:.0f}"></time></p>'
        )
    return f"<h2>Progress</h2>{bar}{table((), rows)}{last}"


def _sorted(rows: Sequence[ConfigurationRow], choice: Choice) -> list[ConfigurationRow]:
    """Sort rows, those without a value last in either order."""
    valued = [(value, row) for row in rows if (value := _sort_value(row, choice.sort)) is not None]
    without = [row for row in rows if _sort_value(row, choice.sort) is None]
    valued.sort(key=lambda pair: pair[0], reverse=choice.descending)
    return [*(row for _, row in valued), *without]


def _sort_value(row: ConfigurationRow, sort: str) -> tuple[int, float, str] | None:
    """Return what orders a row: numbers before text."""
    if sort.startswith(_VALUE_SORT):
        value = plain(row.values.get(sort.removeprefix(_VALUE_SORT)))
        if value is None:
            return None
        if isinstance(value, int | float):
            return (0, float(value), "")
        return (1, 0.0, str(value))
    if sort == "state":
        return (1, 0.0, row.state)
    numbers: dict[str, float | None] = {
        "number": row.number,
        "score": row.score,
        "seeds": row.n_seeds,
        "step": row.until,
    }
    value = numbers[sort]
    # NaN is a score too, of what failed: it has no place in an order.
    return None if value is None or value != value else (0, float(value), "")


def _sorting_cell(title: str, sort: str, choice: Choice) -> str:
    order = "none"
    mark = ""
    if sort == choice.sort:
        order = "descending" if choice.descending else "ascending"
        mark = " ▼" if choice.descending else " ▲"
    name = escape(shortened(title, _LONGEST_NAME))
    button = f'<button type="button" data-sort="{escape(sort)}">{name}{mark}</button>'
    return f'<th aria-sort="{order}">{button}</th>'


def _states(states: Sequence[str], choice: Choice) -> str:
    buttons = "".join(
        f'<button type="button" data-state="{escape(name)}" '
        f'aria-pressed="{str(name == choice.state).lower()}">{escape(name or "all")}</button>'
        for name in ("", *states)
    )
    return f"<p class=choices>{buttons}</p>"


def _pager(page: int, last: int, count: int) -> str:
    if last == 0:
        return f"<p class=note>{counted(count, 'row')}</p>"
    before = f'<button type="button" data-page="{page - 1}">earlier</button>' if page else ""
    after = f'<button type="button" data-page="{page + 1}">later</button>' if page < last else ""
    return (
        f"<p class=choices>{before} page {page + 1} of {last + 1}, {counted(count, 'row')} "
        f"{after}</p>"
    )


def _class_of(state: str) -> str:
    return state if state in MEANINGS else "failed"
