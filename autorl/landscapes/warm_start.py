"""Configurations to begin a study with, from a landscape or a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import shortened, shown
from autorl.core.types import Config, InputError
from autorl.landscapes.library import find_landscape
from autorl.space import Document, Space

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset


def starting_configurations(
    source: str, top: int, sql: str | None = None, *, folder: str | Path | None = None
) -> list[tuple[str, Config]]:
    """Give up to `top` configurations, best first, with their origin in words.

    If there is no query they are the best over tuning seeds (`Landscape.top`): test seeds choose
    nothing, here neither.

    Args:
        source: a landscape's id or folder, or a study's folder.
        top: how many.
        sql: a query: the configurations of its column `config_id`, in its order.
        folder: where a relative source begins; if it is not there, at the working folder.

    Raises:
        InputError: nothing is there, the query is wrong or has no column `config_id`, or no
            configuration is ranked.
    """
    from autorl.landscapes.dataset import Dataset  # a study file without a source needs none

    path = find_landscape(source, folder=folder)
    if path is None:
        raise InputError(f"no landscape or study {source!r}: give an id or a folder that holds one")
    landscape = Dataset(path)
    ids = _queried(landscape, sql) if sql is not None else landscape.top(top)["config_id"].tolist()
    # A query may give a configuration once for each of its rows.
    chosen = list(dict.fromkeys(int(config_id) for config_id in ids))[:top]
    return [
        (f"configuration {number} of {landscape.manifest.id}", landscape.config(number))
        for number in chosen
    ]


def _queried(landscape: Dataset, sql: str) -> list[Any]:
    columns, rows = landscape.rows(sql)
    if "config_id" not in columns:
        has = shortened(", ".join(columns), 100)
        raise InputError(f"the query needs a column config_id; it has {has}", key="sql")
    place = columns.index("config_id")
    numbers = [row[place] for row in rows if row[place] is not None]
    if not numbers:
        raise InputError("the query finds no configuration", key="sql")
    wrong = next((number for number in numbers if not isinstance(number, int)), None)
    if wrong is not None:
        raise InputError(f"config_id is a whole number, the query has {shown(wrong)}", key="sql")
    return numbers


def fitting(
    space: Space, chosen: Sequence[tuple[str, Mapping[str, object]]]
) -> tuple[list[Config], list[tuple[str, InputError]]]:
    """Part the configurations in the space from the problems of others."""
    inside = list[Config]()
    outside = list[tuple[str, InputError]]()
    for label, config in chosen:
        try:
            inside.append(space.config(config))
        except InputError as error:
            outside.append((label, error))
    return inside, outside


def misfit(
    misfits: Sequence[tuple[str, InputError]], document: Document, *, listed: bool
) -> InputError:
    """Make one error of all misfits, a line for each.

    A semicolon stands between joined lines.
    """

    def located(label: str, error: InputError) -> InputError:
        name = f".{error.key}" if error.key else ""
        if listed:
            return document.located(InputError(error.message, key=f"{label}{name}"))
        return document.located(InputError(f"{label}{name}: {error.message}", key="warm_start"))

    first, *later = [located(label, error) for label, error in misfits]
    first.message = ";\n".join([first.message, *map(str, later)])
    return first
