"""Rows on standard output: a plain table, or a JSON list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.cli.options import print_json, say
from autorl.core.plain_text import number
from autorl.core.plain_values import json_value
from autorl.landscapes import Manifest
from autorl.report.table import columns

if TYPE_CHECKING:
    import pandas as pd


def show_written(manifests: Iterable[Manifest], out: Path, *, as_json: bool) -> None:
    """Print the landscapes a command wrote below `out`."""
    rows = []
    for manifest in manifests:
        counts = [manifest.rows[name] for name in ("configs", "runs", "evals")]
        rows.append((manifest.id, *counts, str(out / manifest.id)))
    show_rows(
        ("landscape", "configurations", "runs", "evaluations", "folder"), rows, as_json=as_json
    )


def show_rows(header: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print rows as a table, or as a JSON list of objects."""
    if as_json:
        documents = [
            {name: json_value(value) for name, value in zip(header, row, strict=True)}
            for row in rows
        ]
        print_json(documents)
    else:
        cells = ([cell(json_value(value)) for value in row] for row in rows)
        say(columns(header, cells, indent=""))


def rows_of(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """List the rows of a frame, missing cells as None."""
    import pandas as pd

    rows = []
    # Plain tuples: no field of a named one could be called `optimizer.lr`.
    for row in frame.itertuples(index=False, name=None):
        # pandas writes what is missing as NaN, NaT, NA or None; tables and JSON know one kind.
        cells = [None if pd.isna(value) else value for value in row]
        rows.append(tuple(cells))
    return rows


def cell(value: object) -> str:
    """Write a value in a table, a dash where there is none."""
    return number(value) if isinstance(value, float | None) else str(value)
