"""The questions this package asks about landscapes, in SQL.

`Queries` asks the tables and views of an open landscape (`_views.py`), `ParquetFiles` the files
that are being written, the functions SQLite files of other tools. Rules ask their own questions
(`_rules.py`).

References:
    [OWASP] OWASP Foundation, "CSV Injection",
        https://owasp.org/www-community/attacks/CSV_Injection.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy.typing as npt

from autorl.landscapes._views import first_line, new_database, readable, stored_types
from autorl.landscapes.schema import Column, TableName, cast_list, identifier, text_literal
from autorl.types import InputError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""Arrays of one length by column, masked where a cell is NULL."""

# Full-width signs as well [OWASP].
_FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"  # how a formula begins, in Python and in DuckDB
# Equal rows give equal files; and rows of one run stand together.
_SORTED_BY: Mapping[TableName, str] = {
    "configs": "config_id",
    "runs": "run_id",
    "evals": "run_id, step",
    "segments": "run_id, from_step, segment",
}


class Measurement(NamedTuple):
    """An evaluation of a run.

    The value is None where a failed run missed it.
    """

    run_id: int
    config_id: int
    seed: int
    status: str
    step: int
    value: float | None
    wall_seconds: float | None


class Queries:
    """The questions about a landscape's tables, each answered at once.

    Args:
        path: of the landscape, for messages.
        connect: makes the connection, when the first question is asked.
    """

    def __init__(self, path: Path, connect: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._path = path
        self._connect = connect
        # One connection answers one thread at a time.
        self._lock = threading.Lock()

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._connect()

    def ask(self, query: str, parameters: Sequence[object] = ()) -> duckdb.DuckDBPyRelation:
        """Answer a query of this package.

        No part of its text is a stranger's: values are parameters.

        Raises:
            InputError: the tables cannot answer it.
        """
        import duckdb

        try:
            with self._lock:
                return self._connection.sql(query, params=list(parameters) or None)
        except duckdb.Error as error:
            raise InputError(first_line(error), file=str(self._path)) from None

    def number(self, query: str, parameters: Sequence[object] = ()) -> int:
        """Answer a query whose answer is one whole number."""
        return int(self.ask(query, parameters).fetchall()[0][0])

    def _answer(self, query: str, parameters: Sequence[object] = ()) -> pd.DataFrame:
        frame: pd.DataFrame = self.ask(query, parameters).df()
        return frame

    def _columns(self, query: str) -> Columns:
        columns: Columns = self.ask(query).fetchnumpy()
        return columns

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give the connection to read whole columns by."""
        with readable(self._path), self._lock:
            yield self._connection

    def _frame(self, query: str) -> pd.DataFrame:
        with self._reading() as connection:
            return connection.execute(query).df()

    def stored_types(self, table: TableName) -> dict[str, str]:
        """Return the DuckDB type of each column of a table."""
        with self._lock:
            return stored_types(self._connection, table)

    # Whole tables.

    def table(self, name: TableName) -> pd.DataFrame:
        """Return a table as it is stored."""
        return self._answer(f"SELECT * FROM {name}")

    def runs(self) -> pd.DataFrame:
        """Return the runs by run_id, without what all share."""
        # A stored seed may have any type of whole numbers (`check_columns`); here it has one.
        return self._frame(
            "SELECT run_id, config_id, CAST(seed AS INTEGER) AS seed, seed_role, status, "
            "start_step FROM runs ORDER BY run_id"
        )

    def evaluations(self) -> pd.DataFrame:
        """Return the evaluations by run_id and step."""
        return self._frame("SELECT * FROM evals ORDER BY run_id, step")

    def hyperparameters(self) -> pd.DataFrame:
        """Return the hyperparameters of each config_id."""
        return self._frame("SELECT * EXCLUDE (config_hash, origin) FROM configs")

    def joined(self) -> pd.DataFrame:
        """Return one row per evaluation, with its run and configuration."""
        return self._answer(
            "SELECT * FROM evals JOIN runs USING (run_id) JOIN configs USING (config_id) "
            "ORDER BY run_id, step"
        )

    def flat_table(self, *, for_spreadsheets: bool = False) -> duckdb.DuckDBPyRelation:
        """Return one row per evaluation, the columns of its run first.

        Args:
            for_spreadsheets: whether text that a spreadsheet would take for a formula, in a cell or
                in the name of a column, begins with an apostrophe.
        """
        query = (
            "SELECT * FROM runs JOIN evals USING (run_id) JOIN configs USING (config_id) "
            "ORDER BY run_id, step"
        )
        rows = self.ask(query)
        if not for_spreadsheets:
            return rows
        cells = [_no_formula(*column) for column in zip(rows.columns, rows.types, strict=True)]
        return self.ask(f"SELECT {', '.join(cells)} FROM ({query})")

    # Configurations.

    def config_ids(self) -> list[int | None]:
        """Return the ids of the configurations in the order of the table."""
        with self._reading() as connection:
            rows = connection.execute("SELECT CAST(config_id AS INTEGER) FROM configs").fetchall()
        return [row[0] for row in rows]

    def config_hashes(self) -> list[tuple[int, str]]:
        """Return the id and hash of every configuration."""
        return self.ask("SELECT config_id, config_hash FROM configs").fetchall()

    def origins(self) -> dict[int, str]:
        """Return who proposed each configuration, by config_id."""
        return dict(self.ask("SELECT config_id, origin FROM configs").fetchall())

    # Runs.

    def runs_by_status(self) -> dict[str, int]:
        """Count the runs of each status."""
        query = "SELECT status, count(*) FROM runs GROUP BY status ORDER BY status"
        return dict(self.ask(query).fetchall())

    def phase_starts(self) -> tuple[int, ...]:
        """Return the steps at which runs begin, ascending."""
        rows = self.ask("SELECT DISTINCT start_step FROM runs ORDER BY start_step").fetchall()
        return tuple(int(row[0]) for row in rows)

    def runs_from_scratch(self) -> Columns:
        """Return the runs trained from step 0, the shortest first."""
        return self._columns(
            "SELECT run_id, config_id, seed, status, environment_steps, wall_seconds FROM runs "
            "WHERE start_step = 0 ORDER BY environment_steps NULLS FIRST, run_id"
        )

    # Scores.

    def evaluation_count(self) -> int:
        """Count the evaluations."""
        return self.number("SELECT count(*) FROM evals")

    def metric_values(self, metrics: Sequence[str]) -> Columns:
        """Return run_id, step and these metrics of every evaluation, as stored."""
        listed = ", ".join(identifier(name) for name in metrics)
        return self._columns(f"SELECT run_id, step, {listed} FROM evals ORDER BY run_id, step")

    def objective_values(self) -> Columns:
        """Return run_id, step and value of the objective, its floor applied."""
        with self._reading() as connection:
            columns: dict[str, Any] = connection.execute(
                "SELECT run_id, step, value FROM measured"
            ).fetchnumpy()
        return columns

    def penalty(self) -> float:
        """Return what a failed run scores, NaN where no run was measured."""
        # NULL where no run was measured: there is no worst value to take.
        with self._reading() as connection:
            value = connection.execute("SELECT value FROM penalty").fetchall()[0][0]
        return float("nan") if value is None else float(value)

    def outside(
        self, low: float | None, high: float | None
    ) -> tuple[int, float | None, float | None]:
        """Count the values outside bounds, None = unbounded.

        Returned are the count, the least and the greatest of them.
        """
        tests = [
            # A parameter: the manifest of a stranger states these numbers.
            f"value {comparison} ?"
            for comparison, limit in (("<", low), (">", high))
            if limit is not None
        ]
        if not tests:
            return 0, None, None
        count, least, greatest = self.ask(
            f"SELECT count(*), min(value), max(value) FROM measured WHERE {' OR '.join(tests)}",
            [limit for limit in (low, high) if limit is not None],
        ).fetchall()[0]
        return count, least, greatest

    def scores_at_phase_ends(self) -> pd.DataFrame:
        """Return start_step, step, config_id, seed and value of each phase's last step."""
        # All runs that begin at one step are a phase; QUALIFY keeps the last step of each.
        return self._answer(
            "SELECT start_step, step, config_id, scores.seed AS seed, value FROM scores "
            "JOIN (SELECT run_id, start_step FROM runs) USING (run_id) WHERE value IS NOT NULL "
            "QUALIFY step = max(step) OVER (PARTITION BY start_step)"
        )

    def history_from_scratch(self) -> list[Measurement]:
        """Return the evaluations of runs trained from scratch, in order.

        A failed run has one at every step that any such run was evaluated at.
        """
        # The cross join gives every run every step; those a sound run lacks go again.
        rows = self.ask(
            "SELECT run_id, config_id, seed, status, step, value, wall_seconds FROM runs "
            "CROSS JOIN "
            "(SELECT DISTINCT step FROM evals JOIN runs USING (run_id) WHERE start_step = 0) "
            "LEFT JOIN measured USING (run_id, step) "
            "WHERE start_step = 0 AND (measured.run_id IS NOT NULL "
            "OR status NOT IN ('done', 'stopped')) ORDER BY run_id, step"
        ).fetchall()
        return [Measurement(*row) for row in rows]

    def means_over_seeds(
        self, metrics: Sequence[str], role: str, counted: str, n_seeds: int
    ) -> pd.DataFrame:
        """Average metrics over the seeds of a role, by configuration and step.

        Kept are those where the metric `counted` has a value for each of `n_seeds` seeds.

        Returns:
            Columns config_id, step and the metrics.
        """
        names = [identifier(name) for name in metrics]
        means = ", ".join(f"avg({name}) AS {name}" for name in names)
        return self._answer(
            f"SELECT config_id, step, {means} FROM evals JOIN runs USING (run_id) "
            "WHERE seed_role = ? GROUP BY config_id, step "
            f"HAVING count({identifier(counted)}) = ? ORDER BY config_id, step",
            [role, n_seeds],
        )


def _no_formula(name: str, type: object) -> str:
    """Write a column as SQL that no spreadsheet takes for a formula.

    Neither a text in it nor its name is taken for one. Numbers stored as text stay as they are.
    """
    column = identifier(name)
    safe_name = f"'{name}" if re.match(_FORMULA, name) else name
    header = identifier(safe_name)
    if str(type) != "VARCHAR":
        return f"{column} AS {header}"
    # "-1.5" is a number, which no spreadsheet runs.
    formula = f"regexp_matches({column}, '{_FORMULA}') AND TRY_CAST({column} AS DOUBLE) IS NULL"
    return f"CASE WHEN {formula} THEN chr(39) || {column} ELSE {column} END AS {header}"


class ParquetFiles:
    """Parquet files, asked and written by a DuckDB of their own."""

    def __init__(self) -> None:
        # One thread: the bytes written depend on nothing but the rows.
        self._connection = new_database(threads="1")

    def types(self, file: Path) -> list[tuple[str, str]]:
        """Return (column, DuckDB type) of a file, in its order."""
        rows = self._connection.execute(
            "DESCRIBE SELECT * FROM read_parquet(?)", [[str(file)]]
        ).fetchall()
        return [(str(row[0]), str(row[1])) for row in rows]

    def count(self, files: Sequence[Path]) -> int:
        """Count the rows of files."""
        rows = self._connection.execute(
            "SELECT count(*) FROM read_parquet(?)", [[str(file) for file in files]]
        ).fetchall()
        return int(rows[0][0])

    def ids(self, file: Path, key: str) -> set[int | str]:
        """Return the values of a table's key."""
        frame = self._connection.execute(f"SELECT {key} FROM read_parquet(?)", [str(file)]).df()
        return set(frame[key])

    def rows(self, files: Sequence[Path]) -> pd.DataFrame:
        """Return the rows of files.

        A cell is NULL where its file lacks a column that another has.
        """
        return self._connection.execute(
            "SELECT * FROM read_parquet(?, union_by_name = true)", [[str(file) for file in files]]
        ).df()

    def write(
        self,
        frame: pd.DataFrame,
        columns: Sequence[Column],
        name: TableName,
        target: Path,
        and_rows_of: Path | None = None,
    ) -> None:
        """Write the columns of a frame with their declared types, sorted.

        The rows of an older file are added.

        Raises:
            InputError: a number is too large for its column, or a cell of another type.
        """
        import duckdb

        self._connection.register("frame", frame)
        # COPY takes no parameters.
        query = f"SELECT {cast_list(columns)} FROM frame"
        if and_rows_of is not None:
            older = text_literal(str(and_rows_of))
            query += f" UNION ALL BY NAME SELECT * FROM read_parquet({older})"
        # Aside and renamed, so that a file is whole or not there.
        temporary = target.with_suffix(".tmp")
        try:
            self._connection.execute(
                f"COPY (SELECT * FROM ({query}) ORDER BY {_SORTED_BY[name]}) "
                f"TO {text_literal(str(temporary))} (FORMAT parquet, COMPRESSION zstd)"
            )
        except duckdb.ConversionException as error:
            raise InputError(f"table '{name}': {first_line(error)}") from None
        finally:
            self._connection.unregister("frame")
        os.replace(temporary, target)


def sqlite_tables(file: Path) -> set[str]:
    """Return the names of the tables in an SQLite file.

    Raises:
        sqlite3.Error: it is not one.
    """
    with closing(connect_read_only(file)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {row[0] for row in rows}


def connect_read_only(file: Path) -> sqlite3.Connection:
    """Connect to an SQLite file that is not ours to change."""
    return sqlite3.connect(f"file:{file.resolve().as_posix()}?mode=ro", uri=True)


def fill_sqlite_tables(file: Path, tables: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
    """Insert rows into tables of an SQLite file, all or none.

    Rows of a table have the same columns.

    Raises:
        sqlite3.Error: there is no such table or column.
    """
    with closing(sqlite3.connect(file)) as connection, connection:
        for table, rows in tables.items():
            # A landscape without a complete configuration has no trials.
            if not rows:
                continue
            columns = list(rows[0])
            places = ", ".join(f":{column}" for column in columns)
            connection.executemany(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows
            )
