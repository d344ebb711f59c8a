"""Tables of text, as commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
