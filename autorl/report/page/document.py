"""A page in one file: frame, tables, style and script.

The content security policy of a page lets nothing be loaded, and no script run but its own, which
is named by its hash: text of a study could not run even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from autorl.types import InputError

MANY_ROWS = 8
"""Rows from which on a table can be filtered."""


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading.

    Attributes:
        place: its id.
        title: of the heading; empty: none, and it is not in the list of parts.
        html: what it says, escaped; empty: the part is left out.
    """

    place: str
    title: str
    html: str


def page(title: str, first: str, sections: Sequence[Section]) -> str:
    """Write a whole page.

    Args:
        title: of the document, not escaped.
        first: HTML that stands before everything else.
        sections: the rest; those without HTML are left out.
    """
    shown = [section for section in sections if section.html]
    links = "".join(
        f'<a href="#{section.place}">{escape(section.title)}</a>'
        for section in shown
        if section.title
    )
    nav = f'<nav aria-label="parts of this page">{links}</nav>' if links else ""
    body = "".join(
        f'<section id="{section.place}"><h2>{escape(section.title)}</h2>{section.html}</section>'
        for section in shown
    )
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"base-uri 'none'; form-action 'none'; script-src '{script_hash()}'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style()}</style></head><body>{first}{nav}{body}"
        f"<script>{script()}</script></body></html>\n"
    )


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    sortable: bool = False,
    best: Callable[[Sequence[object]], bool] | None = None,
) -> str:
    """Write a table, all text escaped, that scrolls where too wide.

    Args:
        header: names of columns; empty: no header.
        rows: of cells.
        sortable: columns can be sorted by, and many rows filtered.
        best: says which rows stand out.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    names = [
        f'<button type="button" class="sort">{escape(name)}</button>' if sortable else escape(name)
        for name in header
    ]
    attribute = ' aria-sort="none"' if sortable else ""
    head = "".join(f'<th scope="col"{attribute}>{name}</th>' for name in names)
    # Values, origins and messages are text of users and of their scripts.
    body = "".join(
        ('<tr class="best">' if best is not None and best(row) else "<tr>")
        + "".join(f"<td>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in cells
    )
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    kind = "wide" if header else "wide facts"
    plain = f'<div class="{kind}"><table>{top}<tbody>{body}</tbody></table></div>'
    if not sortable or len(cells) < MANY_ROWS:
        return plain
    tools = (
        '<div class=tools><input type="search" class="filter" placeholder="filter rows" '
        f'aria-label="filter rows"> <output class=note>{len(cells)} rows</output></div>'
    )
    return f'<div class="filtered">{tools}{plain}</div>'


def tried(make: Callable[[], str], name: str) -> str:
    """Return what `make` writes, or a line that says why it cannot.

    Args:
        make: writes HTML.
        name: of what it shows, for that line.
    """
    try:
        return make()
    except InputError as error:
        return f"<p class=note>{escape(name)}: {escape(error.message)}.</p>"


@cache
def style() -> str:
    """Return the style of every page."""
    return (files(__package__) / "style.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the script of every page."""
    return (files(__package__) / "charts.js").read_text(encoding="utf-8")


@cache
def script_hash() -> str:
    """Return the script's hash as a content security policy names it."""
    digest = hashlib.sha256(script().encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
