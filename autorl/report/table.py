"""Tables of text, as commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autorl.core.plain_text import printable


def columns(header: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "  ") -> str:
    """Lay cells out in columns as wide as their widest cell.

    Columns are two spaces apart.
    """
    table = [[one_line(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]
    return "\n".join((indent + line).rstrip() for line in lines)


def one_line(text: str) -> str:
    """Return `text` as one line.

    A line feed in text of others cannot pass for a line of ours.
    """
    return printable(text, keep_lines=False)


def aligned(rows: Iterable[tuple[str, str]], indent: str = "") -> list[str]:
    """Lay names and texts out in lines."""
    named = list(rows)
    width = max((len(name) for name, _ in named), default=0)
    return [one_line(f"{indent}{name.ljust(width)}  {text}") for name, text in named]


def table_of(rows: Iterable[Mapping[str, object]]) -> tuple[list[str], list[list[object]]]:
    """Part rows of named cells, at least one, into header and cells."""
    named = list(rows)
    return list(named[0]), [list(row.values()) for row in named]
