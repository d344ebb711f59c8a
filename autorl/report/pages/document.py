"""Writes pages of blocks: text, facts, tables and figures.

A page is one file that needs no network, or is served with its script and style beside it. Its
content security policy lets nothing else run or be loaded: text of a study could not run even if
the template did not escape it. Charts are drawn without `eval`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, ClassVar, TypeAlias

from autorl.core.plain_text import printable
from autorl.core.types import InputError
from autorl.report.pages.chart import Chart
from autorl.report.pages.vega import PALETTES, library, picture, spec
from autorl.store.outputs import MARK

MANY_ROWS = 8
"""Rows from which on a table can be filtered."""
_NUMBER = re.compile(r"-?[\d,]*\.?\d+(e[+-]?\d+)?( \*)?|-|")


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes:
        kind: empty, `note`, `caution` or `loss`.
        points: a list below it.
    """

    text: str
    kind: str = ""
    points: tuple[str, ...] = ()
    block: ClassVar = "text"


@dataclass(frozen=True)
class Headline:
    """The result in large letters: value, name, and a line about it."""

    value: str
    name: str = ""
    about: str = ""
    block: ClassVar = "headline"


@dataclass(frozen=True)
class Bar:
    """A bar of progress, 0 to 1."""

    share: float
    block: ClassVar = "bar"


@dataclass(frozen=True)
class Code:
    """Text as it stands in a file."""

    text: str
    block: ClassVar = "code"


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads elsewhere."""

    text: str
    address: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """Rows of cells below names of columns.

    Attributes:
        header: names; empty for facts, which have theirs in the first cell.
        sortable: whether readers can sort by a column, and filter many rows.
        best: first cell of the row that stands out.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    sortable: bool = False
    best: str | None = None
    block: ClassVar = "table"

    @property
    def tools(self) -> bool:
        """Whether rows can be filtered."""
        return self.sortable and len(self.rows) >= MANY_ROWS

    @property
    def numeric(self) -> list[bool]:
        """Whether a column has numbers alone."""
        columns = zip(*self.rows, strict=True) if self.header and self.rows else ()
        return [all(_NUMBER.fullmatch(str(cell)) for cell in column) for column in columns]


@dataclass(frozen=True)
class Figure:
    """A chart with its title and text.

    Attributes:
        kind: the name of the chart, to be addressed by.
        notes: lines below it.
    """

    chart: Chart
    kind: str
    notes: tuple[str, ...] = ()
    small: bool = False
    block: ClassVar = "figure"

    @property
    def drawing(self) -> dict[str, object]:
        """The chart as Vega-Lite."""
        return spec(self.chart, small=self.small)


@dataclass(frozen=True)
class Row:
    """Blocks beside each other where there is room."""

    blocks: Sequence[Block]
    small: bool = False
    block: ClassVar = "row"


Block: TypeAlias = Text | Headline | Bar | Code | Table | Figure | Row


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        place: its id.
        title: of its heading; empty: none, and it is not in the list of parts.
        blocks: without any the part is left out.
        half: whether another one may stand beside it.
    """

    place: str
    title: str
    blocks: Sequence[Block]
    half: bool = False


@dataclass(frozen=True)
class Live:
    """Questions of a page to its server.

    Attributes:
        base: address below which it asks.
        seconds: between two questions.
    """

    base: str
    seconds: float


def page(title: str, about: str, sections: Sequence[Section], live: Live | None = None) -> str:
    """Write a whole page.

    Args:
        title: of the document and of its first heading.
        about: a line below the heading.
        sections: those without blocks are left out.
        live: of a page that is served; None: a file of its own.
    """
    scripts = () if live else (library(), script())
    hashes = " ".join(f"'sha256-{_hash(text)}'" for text in scripts)
    texts = printable(title), printable(about)
    html = _template().page(*texts, parts(sections), live, style(), scripts, hashes, MARK)
    return f"{html}".lstrip()


def parts(sections: Sequence[Section]) -> list[tuple[str, str, str, str]]:
    """Write the sections that have blocks.

    Returns:
        Place, kind, a name of the content, and HTML of each, the list of parts first.
    """
    shown = [section for section in sections if section.blocks]
    written = [("parts", "bare", str(_template().navigation(shown)))]
    written += [
        (section.place, "half" if section.half else "whole", str(_template().section(section)))
        for section in shown
    ]
    texts = ((place, kind, printable(html)) for place, kind, html in written)
    return [(place, kind, _hash(html)[:12], html) for place, kind, html in texts]


def fragment(blocks: Iterable[Block]) -> str:
    """Write blocks without script and style, charts as pictures."""
    return printable("".join(map(_still, blocks)))


def _still(block: Block) -> str:
    if isinstance(block, Row):
        return "".join(map(_still, block.blocks))
    if not isinstance(block, Figure):
        return str(_template().block(block))
    drawn = base64.b64encode(picture(block.chart, ".svg")).decode()
    notes = "".join(map(_still, (Text(f"{note}.", "note") for note in block.notes)))
    source = f"data:image/svg+xml;base64,{drawn}"
    return f'<p><img alt="{escape(block.chart.title)}" src="{source}"></p>{notes}'


def tried(make: Callable[[], Iterable[Block]], name: str) -> list[Block]:
    """Return the blocks that `make` gives, or why there are none.

    Args:
        make: gives blocks.
        name: of what it shows, for that line.
    """
    try:
        return list(make())
    except InputError as error:
        return [Text(f"{name}: {error.message}.", "note")]


def small(figures: Iterable[Block]) -> list[Block]:
    """Return figures as a row of small ones, if there are any."""
    drawn = [replace(it, small=True) if isinstance(it, Figure) else it for it in figures]
    return [Row(drawn, small=True)] if drawn else []


@cache
def style() -> str:
    """Return the style of every page."""
    light, dark = (
        ";".join(f"--{name}:{color}" for name, color in palette.items())
        for palette in PALETTES.values()
    )
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ color-scheme: light dark; {light} }}\n{dark}\n{_file('style.css')}"


@cache
def script() -> str:
    """Return the script of every page."""
    return _file("page.js")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _template() -> Any:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_file("page.html")).module


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
