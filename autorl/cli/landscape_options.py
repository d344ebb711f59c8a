"""Look-ups and output that commands of `autorl landscape` share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.cli.options import print_json, say
from autorl.core.plain_text import number
from autorl.core.plain_values import json_value
from autorl.core.types import InputError
from autorl.landscapes import (
    Landscape,
    Manifest,
    find_landscape,
    list_landscapes,
    load_landscape,
    shipped_root,
)
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
        print_json(json_value([dict(zip(header, row, strict=True)) for row in rows]))
    else:
        cells = ([cell(json_value(value)) for value in row] for row in rows)
        say(columns(header, cells, indent=""))


def rows_of(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """List the rows of a frame, missing cells as None."""
    import pandas as pd

    # Plain tuples: no field of a named one could be called `optimizer.lr`.
    rows = frame.itertuples(index=False, name=None)
    # pandas writes what is missing as NaN, NaT, NA or None; tables and JSON know one kind.
    return [tuple(None if pd.isna(value) else value for value in row) for row in rows]


def cell(value: object) -> str:
    """Write a value in a table, a dash where there is none."""
    return number(value) if isinstance(value, float | None) else str(value)


ROOT = Path("landscapes")


def landscapes_of(sources: list[str]) -> list[Landscape]:
    """Open the landscapes that words stand for, each once.

    A word is an id, a folder, or a folder of many.

    A folder of many may be a path, or the beginning of an id below ./landscapes or among the
    shipped ones.
    """
    landscapes: dict[Path, Landscape] = {}
    for source in sources:
        for landscape in _below(source) or [load_landscape(source)]:
            landscapes.setdefault(landscape.path.resolve(), landscape)
    return list(landscapes.values())


def _below(source: str) -> list[Landscape]:
    """List the landscapes of a folder of many, by its word.

    The word may stand for several places; the first that has landscapes counts.
    """
    if find_landscape(source):
        return []
    # In the order in which `find_landscape` looks for a single one.
    folders = [Path(source), ROOT / source]
    shipped = shipped_root()
    if shipped is not None:
        folders.append(shipped / source)
    for folder in folders:
        paths = list(list_landscapes(folder).values()) if folder.is_dir() else []
        if paths:
            return [Landscape(path) for path in paths]
    return []


def role(text: str | None) -> Any:
    """Check a seed role.

    None is left to the analysis.
    """
    if text is not None and text not in ("tuning", "test", "all"):
        raise InputError(f"expected tuning, test or all, got {text!r}", key="--seeds")
    return text
