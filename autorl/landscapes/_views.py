"""The DuckDB tables of a landscape.

They are views of Parquet files, or frames held in memory.

Two kinds of connection see them. Queries of this package run in a DuckDB that the process shares
(starting one takes 15 ms). A query of anyone else runs in one of the landscape's own that can reach
nothing but the landscape's tables.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from autorl.core.plain_text import encodable, shortened, shown
from autorl.core.types import InputError
from autorl.landscapes.manifest import Manifest
from autorl.landscapes.schema import (
    TABLES,
    TableName,
    Tables,
    cast_list,
    check_columns,
    identifier,
    table_columns,
    text_literal,
)
from autorl.space import Space, read_document, read_space

if TYPE_CHECKING:
    import duckdb

GUARDED_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
"""Memory of a query of anyone; what needs more is written to its private folder."""
_FAILED = "status NOT IN ('done', 'stopped')"
_MESSAGE = 150  # characters of a message of DuckDB, which may quote the query
CONFIGURATION = {
    # A query that names a function of an extension neither fetches nor loads it.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # no variable of the caller is a table
}
_EXPLAIN = re.compile(
    r"EXPLAIN\s+(ANALYZE\s+)?(\(\s*(ANALYZE|FORMAT)\b[^()]*\)\s*)?", re.IGNORECASE
)
_COMMENT = re.compile(r"\s+|--[^\n]*(\n|\Z)|/\*.*?\*/", re.DOTALL)
_engine: tuple[int, duckdb.DuckDBPyConnection] | None = None  # process id, and its DuckDB
_databases: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
_of_parents: list[duckdb.DuckDBPyConnection] = []
_starting = threading.Lock()  # two threads that open their first landscapes start one


def connect(
    folder: Path, manifest: Manifest, *, guarded: bool = False
) -> duckdb.DuckDBPyConnection:
    """Connect to the files of a landscape as views, in memory.

    More views give them meaning.

    `measured` (run_id, step, value): the objective's metric with its floor, NULL where it failed.
    `exact`: the same in the precision that configurations are ranked by.
    `penalty` (value): what a failed run scores. `scores`: both together, by run.

    Args:
        folder: of the landscape.
        manifest: of the landscape.
        guarded: whether queries of anyone may run in it: no other file, network, extension or
            setting is in reach.

    Raises:
        InputError: a file is missing, unreadable, outside the folder, or has other columns than the
            schema needs.
    """
    files = _files(folder, manifest)
    listed = [path for paths in files.values() for path in paths]
    with readable(folder):
        connection = _guarded(listed) if guarded else _connection()
        _add_views(connection, files)
        _meaning(connection, str(folder), manifest)
        connection.execute("CREATE TEMP VIEW exact AS SELECT * FROM measured")
        return connection


def file_columns(folder: Path, manifest: Manifest) -> dict[TableName, dict[str, str]]:
    """Return the DuckDB type of each column of each table.

    They need not be those of the schema.

    Raises:
        InputError: a file is missing, unreadable or outside the folder.
    """
    files = _files(folder, manifest)
    connection = _connection()
    with readable(folder):
        _add_views(connection, files)
        return {name: stored_types(connection, name) for name in files}


def connect_frames(
    tables: Tables, space: Space, manifest: Manifest, folder: Path, *, guarded: bool = False
) -> duckdb.DuckDBPyConnection:
    """Make the same tables and views over frames.

    Each is copied into memory once, with its declared types.

    Args:
        tables: the frames.
        space: of the configurations.
        manifest: of the landscape.
        folder: where they are from, for messages.
        guarded: as in `connect`.

    Raises:
        InputError: a table has wrong columns, or values of wrong types.
    """
    connection = _guarded([]) if guarded else _connection()
    with readable(folder):
        for name in TABLES:
            # Copied for this connection alone; the frame itself stays out of a query's reach.
            connection.register("frame", tables[name])
            cells = cast_list(table_columns(name, tables[name], space))
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {cells} FROM frame")
            connection.unregister("frame")
        _meaning(connection, str(folder), manifest)
        # A study ranks by every digit it scored: as FLOAT, close scores could change places.
        connection.register("frame", tables.evals)
        connection.execute(
            "CREATE TEMP TABLE exact AS SELECT run_id, step, "
            f"CAST({identifier(manifest.objective.metric)} AS DOUBLE) AS value FROM frame"
        )
        connection.unregister("frame")
        return connection


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of DuckDB into those of the landscape at a path."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise InputError(f"cannot be read: {first_line(error)}", file=str(path)) from None


def check_only_reads(connection: duckdb.DuckDBPyConnection, query: str, file: str) -> None:
    """Check that a query is exactly one that reads.

    It is a SELECT, or EXPLAIN (ANALYZE) of one.

    Raises:
        duckdb.Error: the query cannot be parsed.
        InputError: it is anything else, or has half characters (lone surrogates).
    """
    # DuckDB ends with "std::bad_cast" at a lone surrogate.
    if encodable(query) != query:
        raise InputError(
            "a query is text that can be encoded, this one has half a character", key="sql"
        )
    if not _only_reads(connection, query):
        raise InputError("expected one query that reads (SELECT ...)", file=file, key="sql")


def _only_reads(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    kinds = [statement.type.name for statement in connection.extract_statements(query)]
    if kinds == ["SELECT"]:
        return True
    text = _without_comments(query)
    # DuckDB does not name the kind of what EXPLAIN explains.
    if kinds == ["EXPLAIN"]:
        explained = _EXPLAIN.match(text)
        return explained is not None and _kinds(connection, text[explained.end() :]) == ["SELECT"]
    # A statement with a PIVOT is MULTI, in DuckDB 1 it is two, and so is COPY (PIVOT ...) TO a
    # file. Only a query can stand in FROM (...).
    pivots = (["MULTI"], ["CREATE", "SELECT"])
    return kinds in pivots and _kinds(connection, f"SELECT * FROM ({text})") == kinds


def first_line(error: Exception) -> str:
    """Cut the message of an error, without DuckDB's drawing under it.

    A line of the names that there are stays.
    """
    head, *_ = str(error).partition("\n\n")
    return shortened(" ".join(head.split()) or type(error).__name__, _MESSAGE)


def _kinds(connection: duckdb.DuckDBPyConnection, text: str) -> list[str]:
    """Return the kinds of the statements in a text.

    The list is empty if it cannot be parsed.
    """
    import duckdb

    try:
        return [statement.type.name for statement in connection.extract_statements(text)]
    except duckdb.Error:
        return []


def _without_comments(query: str) -> str:
    """Strip comments and blanks before a query, and a semicolon after it."""
    text = query
    # Blanks and comments may follow each other in any order.
    while (match := _COMMENT.match(text)) is not None:
        text = text[match.end() :]
    return text.rstrip().rstrip(";").rstrip()


def new_database(**settings: str) -> duckdb.DuckDBPyConnection:
    """Start a DuckDB in memory, with the settings of all of ours."""
    import duckdb

    database = duckdb.connect(config={**CONFIGURATION, **settings})
    _databases.add(database)
    return database


def _keep_those_of_parents() -> None:
    """Have no DuckDB end that a forked child has from its parent.

    It would wait for threads that are none of the child's, and end it by SIGSEGV.
    """
    _of_parents.extend(_databases)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_those_of_parents)


def _connection() -> duckdb.DuckDBPyConnection:
    """Open a connection of its own to the process's DuckDB.

    Other connections do not see its temporary tables.
    """
    global _engine
    with _starting:
        # A forked child must not use its parent's threads.
        if _engine is None or _engine[0] != os.getpid():
            _engine = (os.getpid(), new_database())
        return _engine[1].cursor()


def _guarded(files: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB that can read these files and nothing else.

    It changes nothing.
    """
    # A database of its own, because settings are global. Their order counts: each of the last
    # two locks those above it.
    connection = new_database()
    listed = ", ".join(map(text_literal, files))
    # Only this user reads what does not fit into memory. If the query's process is ended, the
    # folder goes with the one that its parent made.
    folder = tempfile.mkdtemp(prefix="autorl-query-")
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    connection.execute(f"SET temp_directory = {text_literal(folder)}")
    connection.execute(f"SET memory_limit = '{GUARDED_BYTES}B'")
    connection.execute(f"SET max_temp_directory_size = '{shutil.disk_usage(folder).free // 2}B'")
    connection.execute(f"SET allowed_paths = [{listed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _files(folder: Path, manifest: Manifest) -> dict[TableName, list[str]]:
    """Return the files of each table.

    Raises:
        InputError: one is missing, or a link leads out of the folder.
    """
    parts = [name for name in sorted(manifest.files) if name.startswith("evals/")]
    tables: dict[TableName, list[str]] = {
        name: [f"{name}.parquet"] for name in TABLES if name != "evals"
    }
    tables["evals"] = parts
    for name, files in tables.items():
        missing = [file for file in files if not (folder / file).is_file()]
        if missing or not files:
            what = shown(missing) if missing else "none is listed"
            raise InputError(f"the files of table '{name}' are missing: {what}", file=str(folder))
        for file in files:
            inside(folder, file)
    return {name: [str(folder / file) for file in files] for name, files in tables.items()}


def _add_views(
    connection: duckdb.DuckDBPyConnection, files: Mapping[TableName, Sequence[str]]
) -> None:
    for name, paths in files.items():
        # A view takes no parameters.
        listed = ", ".join(map(text_literal, paths))
        # A metric that was first recorded in a later part is NULL in the earlier ones.
        union = ", union_by_name = true" if len(paths) > 1 else ""
        connection.execute(
            f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{listed}]{union})"
        )


def stored_types(connection: duckdb.DuckDBPyConnection, table: TableName) -> dict[str, str]:
    """Return the DuckDB type of each column of a table."""
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {table}").fetchall()}


def inside(folder: Path, file: str) -> Path:
    """Return the path of a file of a landscape.

    Raises:
        InputError: it is not in the folder, because a link leads out of it, or is not a file.
    """
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"{shortened(file)} is a link to a file outside the folder", file=str(folder)
        )
    if path.exists() and not path.is_file():
        raise InputError(f"{shortened(file)} is not a regular file", file=str(folder))
    return path


def read_own_space(folder: Path) -> Space:
    """Read the search space in the folder of a landscape.

    Raises:
        InputError: it is not there, not a space, or it names another file.
    """
    file = inside(folder, "space.yaml")
    document = read_document(file)
    if isinstance(document.data, dict) and "extends" in document.data:
        raise document.error(
            "the space of a landscape is whole: it extends no other file", "extends"
        )
    try:
        return read_space(document.data)
    except InputError as error:
        raise document.located(error) from None


def _meaning(connection: duckdb.DuckDBPyConnection, where: str, manifest: Manifest) -> None:
    objective = manifest.objective
    # Other tables are checked where their columns are used (`Dataset.check_table`).
    check_columns("runs", stored_types(connection, "runs"), where)
    columns = stored_types(connection, "evals")
    check_columns("evals", columns, where)
    if objective.metric not in columns:
        message = (
            f"the objective's metric {shown(objective.metric)} is not among "
            f"{shown(list(columns), 100)}"
        )
        raise InputError(message, file=where)
    metric = identifier(objective.metric)
    # A view takes no parameters; variables of the connection do, and no query can set them. Put
    # into the text, a stranger's "floor" could be SQL.
    connection.execute("SET VARIABLE objective_floor = ?", [objective.floor])
    connection.execute("SET VARIABLE objective_penalty = ?", [objective.penalty])
    raised = (
        metric if objective.floor is None else f"greatest({metric}, getvariable('objective_floor'))"
    )
    # NaN is DuckDB's greatest number: no floor would raise it, and `max` would choose it. FLOAT, as
    # stored: with the floor, a variable, it is a DOUBLE.
    connection.execute(
        f"CREATE TEMP VIEW measured AS SELECT run_id, step, "
        f"CAST(CASE WHEN {metric} IS NOT NULL AND NOT isnan({metric}) THEN {raised} END AS FLOAT) "
        "AS value FROM evals"
    )
    worst = "min" if objective.direction == "maximize" else "max"
    constant = "SELECT CAST(getvariable('objective_penalty') AS FLOAT) AS value"
    recorded = f"SELECT {worst}(value) AS value FROM measured"
    penalty = recorded if objective.penalty is None else constant
    connection.execute(f"CREATE TEMP VIEW penalty AS {penalty}")
    # A failed run has a row for every step it missed: a published notebook dropped such runs from
    # its averages.
    connection.execute(
        "CREATE TEMP VIEW scores AS "
        "SELECT run_id, config_id, seed, seed_role, each.step, "
        f"coalesce(measured.value, CASE WHEN {_FAILED} THEN penalty.value END) AS value "
        "FROM penalty, runs CROSS JOIN (SELECT DISTINCT step FROM evals) AS each "
        "LEFT JOIN measured USING (run_id, step) "
        f"WHERE each.step > start_step AND (measured.step IS NOT NULL OR {_FAILED})"
    )
