"""Any CSV file as a landscape, given what its columns are.

A row is one evaluation. See `mapping` for the roles of columns.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import shortened, shown
from autorl.core.types import InputError
from autorl.landscapes.importers.common import (
    Options,
    Run,
    Source,
    metric_column,
    whole_step,
    write_source,
)
from autorl.landscapes.importers.inference import clean_name, table_rows
from autorl.landscapes.importers.mapping import read_mapping
from autorl.landscapes.manifest import Manifest, Objective
from autorl.landscapes.schema import STATUSES
from autorl.space import canonical_json

if TYPE_CHECKING:
    import pandas as pd

_HEADER = 2  # the first row of data is line 2 of the file


def recognises(path: Path) -> bool:
    """Tell whether a file is a table.

    Which columns it has, only a mapping says.
    """
    return path.is_file() and path.name.endswith((".csv", ".csv.gz"))


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import one file.

    Raises:
        InputError: no mapping or a wrong one, no hyperparameter or metric among the columns, or a
            row with a cell that is not what its role says.
    """
    frame = read_csv(path)
    if not options.map:
        message = (
            "not a format that is known; for any other table say what its columns are: "
            "--map column=role"
        )
        raise InputError(message, file=str(path), key="--map")
    columns = [str(name) for name in frame]
    roles = read_mapping(options.map, columns, path)
    for role in ("hyperparameter", "metric"):
        if not roles[role]:
            raise InputError(
                f"a column has to be a {role}: --map column={role}", file=str(path), key="--map"
            )
    metrics = {name: metric_column(name) for name in roles["metric"]}
    objective = options.metric or roles["metric"][0]
    if objective not in metrics:
        raise InputError(
            f"{objective!r} is not among {', '.join(metrics)}", file=str(path), key="metric"
        )
    configs, numbers = _configurations(frame, roles, path)
    ignored = [
        name
        for name in columns
        if name not in {column for listed in roles.values() for column in listed}
    ]
    notes = (f"Columns left out: {', '.join(ignored)}.",) if ignored else ()
    source = Source(
        path=path,
        files=[path],
        id=options.named(path),
        format=f"the table {path.name}",
        configs=configs,
        runs=_runs(frame.assign(**{_NUMBER: numbers}), roles, metrics, path, options),
        objective=Objective(metrics[objective], options.direction or "maximize"),
        roles=_seed_roles(frame, roles, path),
        notes=notes,
    )
    return [write_source(source, options)]


_WHOLE_LIMIT = 2**31  # an INTEGER of the tables
_NUMBER = "\0configuration"  # no column of a file is called so


def read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file, compressed or not.

    Raises:
        InputError: it cannot be read.
    """
    import pandas as pd

    try:
        return pd.read_csv(path)
    except (OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise InputError(
            f"cannot be read as CSV: {shortened(str(error), 150)}", file=str(path)
        ) from None


def _configurations(
    frame: pd.DataFrame, roles: Mapping[str, Sequence[str]], path: Path
) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """Return the configurations by number, and the number of each row.

    A configuration's number is that of the file, if it gives one.
    """
    listed = list(roles["hyperparameter"])
    numberings = [_whole(frame, name, path) for name in roles["config_id"]]
    seen: dict[str, int] = {}
    configs: dict[int, dict[str, Any]] = {}
    numbers = []
    columns = {
        clean_name(name): [_parsed(cell) for cell in frame[name].tolist()] for name in listed
    }
    for place, config in enumerate(table_rows(columns)):
        number = (
            numberings[0][place]
            if numberings
            else seen.setdefault(canonical_json(config), len(seen))
        )
        if configs.setdefault(number, config) != config:
            message = f"configuration {number} has other hyperparameters than before"
            raise InputError(message, file=str(path), line=place + _HEADER)
        numbers.append(number)
    return configs, numbers


def _parsed(cell: object) -> object:
    """Parse a list or mapping that was written as JSON text.

    Every other cell stays as it is.
    """
    if not isinstance(cell, str) or not cell.startswith(("[", "{")):
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _runs(
    frame: pd.DataFrame,
    roles: Mapping[str, Sequence[str]],
    metrics: Mapping[str, str],
    path: Path,
    options: Options,
) -> list[Run]:
    """Gather the rows of one configuration and seed into a run.

    If there is no seed and no step, every row is a run of its own.
    """
    for name in (*metrics, *roles["step"], *roles["wall_seconds"]):
        _numeric(frame, name, path)
    seeds = _whole(frame, roles["seed"][0], path) if roles["seed"] else [0] * len(frame)
    frame = frame.assign(**{"\0seed": seeds})
    alone = not roles["seed"] and not roles["step"]
    # Rows that name neither seed nor step do not say which belong together.
    keys = [_NUMBER, "\0seed"] if not alone else [frame.index]
    runs = []
    for _, rows in frame.groupby(keys, sort=True):
        first = rows.iloc[0]
        steps = [1] * len(rows)
        if roles["step"]:
            # Sorting keeps the index, which tells the line in messages.
            rows = rows.sort_values(roles["step"][0], kind="stable")
            lines = [f"line {place + _HEADER}" for place in rows.index]
            cells = rows[roles["step"][0]].tolist()
            steps = [
                whole_step(cell, options.unit, path, line)
                for cell, line in zip(cells, lines, strict=True)
            ]
        repeated = [
            place
            for place, step in zip(rows.index[1:], steps[1:], strict=True)
            if steps.count(step) > 1
        ]
        if repeated:
            message = "another row has the same configuration, seed and step"
            raise InputError(message, file=str(path), line=max(repeated) + _HEADER)
        curves = {metrics[name]: rows[name].astype(float).tolist() for name in metrics}
        # Seconds of a run add up along its rows, as in Ray's and SB3's logs: the last is the run's.
        wall = float(rows[roles["wall_seconds"][0]].iloc[-1]) if roles["wall_seconds"] else None
        status = _status(rows, roles, path)
        seed = None if alone else int(first["\0seed"])
        runs.append(Run(int(first[_NUMBER]), seed, steps, curves, status, wall_seconds=wall))
    return runs


def _status(rows: pd.DataFrame, roles: Mapping[str, Sequence[str]], path: Path) -> str:
    if not roles["status"]:
        return "done"
    status = str(rows[roles["status"][0]].iloc[-1])
    if status not in STATUSES:
        line = int(rows.index[-1]) + _HEADER
        raise InputError(
            f"status {shown(status)}; allowed: {', '.join(STATUSES)}", file=str(path), line=line
        )
    return status


def _seed_roles(
    frame: pd.DataFrame, roles: Mapping[str, Sequence[str]], path: Path
) -> dict[str, list[int]]:
    if not roles["seed_role"] or not roles["seed"]:
        return {}
    column = frame[roles["seed_role"][0]]
    wrong = column[~column.isin(["tuning", "test"])]
    if len(wrong):
        message = f"seed role {shown(wrong.iloc[0])}; allowed: tuning, test"
        raise InputError(message, file=str(path), line=int(wrong.index[0]) + _HEADER)
    seeds = frame[roles["seed"][0]]
    return {
        role: sorted({int(seed) for seed in seeds[column == role]}) for role in ("tuning", "test")
    }


def _whole(frame: pd.DataFrame, name: str, path: Path) -> list[int]:
    """Return a column of whole numbers."""
    _numeric(frame, name, path)
    column = frame[name]
    wrong = column[column.isna() | (column % 1 != 0)]
    if len(wrong):
        message = f"expected a whole number, got {wrong.iloc[0]}"
        raise InputError(message, file=str(path), key=name, line=int(wrong.index[0]) + _HEADER)
    large = column[column.abs() >= _WHOLE_LIMIT]
    if len(large):
        message = f"expected a whole number below 2^31, got {large.iloc[0]}"
        raise InputError(message, file=str(path), key=name, line=int(large.index[0]) + _HEADER)
    return [int(cell) for cell in column]


def _numeric(frame: pd.DataFrame, name: str, path: Path) -> None:
    import pandas as pd

    # An unreadable cell becomes NaN here, though it is not empty in the file.
    cells = pd.to_numeric(frame[name], errors="coerce")
    wrong = frame[name][cells.isna() & frame[name].notna()]
    if len(wrong):
        message = f"expected a number, got {shown(wrong.iloc[0])}"
        raise InputError(message, file=str(path), key=name, line=int(wrong.index[0]) + _HEADER)
