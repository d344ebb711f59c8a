"""The DuckDB tables of a landscape: views of Parquet files, or frames held in memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from autorl.landscapes.manifest import Manifest
from autorl.landscapes.schema import TABLES, Tables, cast_list, table_columns
from autorl.space import Space
from autorl.types import InputError

if TYPE_CHECKING:
    import duckdb

_FAILED = "status NOT IN ('done', 'stopped')"
_engine: tuple[int, duckdb.DuckDBPyConnection] | None = None  # process id, and its DuckDB: starting one takes 15 ms
_starting = threading.Lock()


def connect(folder: Path, manifest: Manifest) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with the files of a landscape as views, and three that give them meaning.

    `measured` (run_id, step, value): the objective's metric with its floor, NULL where it failed. `penalty` (value):
    what a failed run scores. `scores`: both together, by run.

    Raises:
        InputError: a file is missing, unreadable, or the objective's metric is not recorded.
    """
    import duckdb

    try:
        return _meaning(_files(_connection(), folder, manifest), str(folder), manifest)
    except duckdb.Error as error:
        raise InputError(f"cannot be read: {first_line(error)}", file=str(folder)) from None


def connect_frames(tables: Tables, space: Space, manifest: Manifest) -> duckdb.DuckDBPyConnection:
    """The same tables and views over frames: each is copied into memory once, with its declared types.

    Raises:
        InputError: a table has wrong columns.
    """
    connection = _connection()
    for name in TABLES:
        connection.register("frame", tables[name])
        cells = cast_list(table_columns(name, tables.columns(name), space))
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {cells} FROM frame")
        connection.unregister("frame")
    return _meaning(connection, manifest.id, manifest)


def first_line(error: Exception) -> str:
    """The message of an error without the drawing that DuckDB puts under it."""
    return str(error).splitlines()[0]


def _connection() -> duckdb.DuckDBPyConnection:
    """A connection of its own to the process's DuckDB: what is temporary in it, nobody else sees."""
    import duckdb

    global _engine
    with _starting:
        if _engine is None or _engine[0] != os.getpid():  # a forked child must not use its parent's threads
            _engine = (os.getpid(), duckdb.connect())
        return _engine[1].cursor()


def _files(connection: duckdb.DuckDBPyConnection, folder: Path, manifest: Manifest) -> duckdb.DuckDBPyConnection:
    parts = [name for name in sorted(manifest.files) if name.startswith("evals/")]
    tables = {name: [f"{name}.parquet"] for name in ("configs", "runs", "segments")} | {"evals": parts}
    for name, files in tables.items():
        missing = [file for file in files if not (folder / file).is_file()]
        if missing or not files:
            raise InputError(
                f"the files of table '{name}' are missing: {missing or 'none is listed'}", file=str(folder)
            )
        listed = ", ".join("'" + str(folder / file).replace("'", "''") + "'" for file in files)
        union = ", union_by_name = true" if len(files) > 1 else ""
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{listed}]{union})")
    return connection


def _meaning(connection: duckdb.DuckDBPyConnection, where: str, manifest: Manifest) -> duckdb.DuckDBPyConnection:
    objective = manifest.objective
    columns = [row[0] for row in connection.execute("DESCRIBE evals").fetchall()]
    if objective.metric not in columns:
        raise InputError(f"the objective's metric {objective.metric!r} is not among {columns}", file=where)
    metric = f'"{objective.metric}"'
    raised = metric if objective.floor is None else f"greatest({metric}, {objective.floor!r})"
    connection.execute(
        f"CREATE TEMP VIEW measured AS SELECT run_id, step, "
        f"CAST(CASE WHEN {metric} IS NOT NULL AND NOT isnan({metric}) THEN {raised} END AS FLOAT) AS value FROM evals"
    )
    worst = "min" if objective.direction == "maximize" else "max"
    constant = f"SELECT CAST({objective.penalty!r} AS FLOAT) AS value"
    recorded = f"SELECT {worst}(value) AS value FROM measured"
    connection.execute(f"CREATE TEMP VIEW penalty AS {recorded if objective.penalty is None else constant}")
    connection.execute(
        "CREATE TEMP VIEW scores AS "
        "SELECT run_id, config_id, seed, seed_role, each.step, "
        f"coalesce(measured.value, CASE WHEN {_FAILED} THEN penalty.value END) AS value "
        "FROM penalty, runs CROSS JOIN (SELECT DISTINCT step FROM evals) AS each "
        "LEFT JOIN measured USING (run_id, step) "
        f"WHERE each.step > start_step AND (measured.step IS NOT NULL OR {_FAILED})"
    )
    return connection
