"""The questions this package asks about landscapes, in SQL.

`Queries` asks the tables and views of an open landscape (`_views.py`), `ParquetFiles` the files
that are being written. Rules ask their own questions (`_rules.py`).

References:
    [OWASP] OWASP Foundation, "CSV Injection",
        https://owasp.org/www-community/attacks/CSV_Injection.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted, shown
from autorl.core.types import InputError
from autorl.landscapes._views import first_line, new_database, readable, stored_types
from autorl.landscapes.schema import (
    STATUSES,
    Column,
    TableName,
    cast_list,
    identifier,
    text_literal,
)

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""Arrays of one length by column, masked where a cell is NULL."""

_LARGEST = 2**63 - 1
_MOST_RANGES = 32  # of runs in one query; more are read with all between them
# Full-width signs as well [OWASP].
_FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"  # how a formula begins, in Python and in DuckDB
# Equal rows give equal files; and rows of one run stand together.
_SORTED_BY: Mapping[TableName, str] = {
    "configs": "config_id",
    "runs": "run_id",
    "evals": "run_id, step",
    "segments": "run_id, from_step, segment",
}

_CURVES = (
    "SELECT run_id, CAST(seed AS INTEGER) AS seed, seed_role, status, evals.* EXCLUDE (run_id) "
    "FROM runs JOIN evals USING (run_id) WHERE config_id = ? ORDER BY runs.seed, run_id, step"
)
_FLAT = (
    "SELECT * FROM runs JOIN evals USING (run_id) JOIN configs USING (config_id) "
    "ORDER BY run_id, step"
)


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
        """Answer a query of this package when it is fetched.

        One thread may fetch at a time. No part of its text is a stranger's: values are parameters.

        Raises:
            InputError: the tables cannot answer it.
        """
        import duckdb

        try:
            with self._lock:
                return self._connection.sql(query, params=list(parameters) or None)
        except duckdb.Error as error:
            raise InputError(first_line(error), file=str(self._path)) from None

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Answer a query of this package by its rows."""
        rows: list[tuple[Any, ...]] = self._found(query, parameters, "fetchall")
        return rows

    def number(self, query: str, parameters: Sequence[object] = ()) -> int:
        """Answer a query whose answer is one whole number."""
        return int(self.rows(query, parameters)[0][0])

    def _columns(self, query: str, parameters: Sequence[object] = ()) -> Columns:
        columns: Columns = self._found(query, parameters, "fetchnumpy")
        return columns

    def frame(self, query: str, parameters: Sequence[object] = ()) -> pd.DataFrame:
        """Answer a query of this package by a frame."""
        frame: pd.DataFrame = self._found(query, parameters, "df")
        return frame

    def _found(self, query: str, parameters: Sequence[object], how: str) -> Any:
        # A connection refuses a second query until the first one's answer is fetched.
        with readable(self._path), self._lock:
            return getattr(self._connection.execute(query, list(parameters) or None), how)()

    def _wrong(self, message: str) -> InputError:
        return InputError(message, file=str(self._path))

    def stored_types(self, table: TableName) -> dict[str, str]:
        """Return the DuckDB type of each column of a table."""
        with self._lock:
            return stored_types(self._connection, table)

    # Whole tables.

    def table(self, name: TableName) -> pd.DataFrame:
        """Return a table as it is stored."""
        return self.frame(f"SELECT * FROM {name}")

    def runs(self) -> Columns:
        """Return run_id, config_id, seed, start_step and `ended` of the runs by run_id.

        `ended` is 0 of a run that is done, 1 of one that failed, 2 of one that was stopped.

        Raises:
            InputError: a cell is empty, a run is there twice, a status is unknown, or an evaluation
                has no run or step.
        """
        if self.number("SELECT count(*) FROM evals WHERE run_id IS NULL OR step IS NULL"):
            raise self._wrong("an evaluation without a run or step")
        names = ("run_id", "config_id", "seed", "seed_role", "status", "start_step")
        counts = ", ".join(f"count(*) - count({name})" for name in names)
        empties = self.rows(f"SELECT {counts} FROM runs")[0]
        empty = [name for name, count in zip(names, empties, strict=True) if count]
        if empty:
            raise self._wrong(f"table 'runs' has empty cells in {', '.join(empty)}")
        unknown = sorted(set(self.runs_by_status()) - set(STATUSES))
        if unknown:
            allowed = ", ".join(STATUSES)
            raise self._wrong(f"table 'runs' has status {shown(unknown[0])}; allowed: {allowed}")
        # A stored number may have any type of whole numbers (`check_columns`).
        runs = self._columns(
            "SELECT CAST(run_id AS BIGINT) AS run_id, CAST(config_id AS BIGINT) AS config_id, "
            "CAST(seed AS BIGINT) AS seed, CAST(start_step AS BIGINT) AS start_step, "
            "CASE status WHEN 'done' THEN 0::TINYINT WHEN 'stopped' THEN 2::TINYINT "
            "ELSE 1::TINYINT END AS ended FROM runs ORDER BY run_id"
        )
        repeated = np.flatnonzero(np.diff(runs["run_id"]) == 0)
        if len(repeated):
            raise self._wrong(f"table 'runs' has run_id {runs['run_id'][repeated[0]]} twice")
        return runs

    def seed_roles(self) -> dict[int, str]:
        """Return the role of each seed that a run from scratch has.

        Raises:
            InputError: a seed has two roles.
        """
        roles: dict[int, str] = {}
        for seed, role in self.rows(
            "SELECT DISTINCT CAST(seed AS BIGINT), seed_role FROM runs WHERE start_step = 0 "
            "ORDER BY ALL"
        ):
            if roles.setdefault(seed, role) != role:
                raise InputError(
                    f"seed {seed} has two roles, {roles[seed]} and {role}", key="seeds"
                )
        return roles

    def tasks(self) -> dict[str, list[int]]:
        """List the seeds of each environment."""
        tasks: dict[str, list[int]] = {}
        for seed, name in self.rows(
            "SELECT DISTINCT CAST(seed AS BIGINT), environment FROM runs WHERE start_step = 0 "
            "ORDER BY ALL"
        ):
            tasks.setdefault(name, []).append(seed)
        return tasks

    def sizes(self, environment: str) -> dict[int, float]:
        """Return the metric `parameters` of each config_id on a task."""
        return dict(
            self.rows(
                "SELECT CAST(r.config_id AS BIGINT), max(e.parameters) FROM evals e "
                "JOIN runs r USING (run_id) WHERE r.environment = ? GROUP BY ALL",
                [environment],
            )
        )

    def curves(self, config_id: int) -> pd.DataFrame:
        """Return the evaluations of a configuration as stored, by seed and step."""
        return self.frame(_CURVES, [config_id])

    def curve_rows(self, config_id: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return columns and rows of `curves`, without pandas."""
        return self.ask(_CURVES, [config_id]).columns, self.rows(_CURVES, [config_id])

    def hyperparameters(self) -> pd.DataFrame:
        """Return the hyperparameters of each config_id."""
        return self.frame("SELECT * EXCLUDE (config_hash, origin) FROM configs")

    def joined(self) -> pd.DataFrame:
        """Return one row per evaluation, with its run and configuration."""
        return self.frame(_FLAT)

    def flat_table(self, *, for_spreadsheets: bool = False) -> duckdb.DuckDBPyRelation:
        """Return one row per evaluation, the columns of its run first.

        Args:
            for_spreadsheets: whether text that a spreadsheet would take for a formula, in a cell or
                in the name of a column, begins with an apostrophe.
        """
        rows = self.ask(_FLAT)
        if not for_spreadsheets:
            return rows
        cells = [_no_formula(*column) for column in zip(rows.columns, rows.types, strict=True)]
        return self.ask(f"SELECT {', '.join(cells)} FROM ({_FLAT})")

    # Configurations.

    def config_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the configurations, ascending.

        Raises:
            InputError: a configuration has none.
        """
        ids = self._columns("SELECT CAST(config_id AS BIGINT) AS id FROM configs ORDER BY id")["id"]
        if np.ma.is_masked(ids):
            raise self._wrong("a configuration without an id")
        return np.unique(ids)

    def config_hashes(self) -> list[tuple[int, str]]:
        """Return the id and hash of every configuration."""
        return self.rows("SELECT config_id, config_hash FROM configs")

    def origins(self) -> dict[int, str]:
        """Return who proposed each configuration, by config_id."""
        return dict(self.rows("SELECT config_id, origin FROM configs"))

    # Runs.

    def runs_by_status(self) -> dict[str, int]:
        """Count the runs of each status."""
        query = "SELECT status, count(*) FROM runs GROUP BY status ORDER BY status"
        return dict(self.rows(query))

    def phase_starts(self) -> tuple[int, ...]:
        """Return the steps at which runs begin, ascending."""
        rows = self.rows("SELECT DISTINCT start_step FROM runs ORDER BY start_step")
        return tuple(int(row[0]) for row in rows)

    def last_step_from_scratch(self) -> int | None:
        """Return the last step that runs from scratch have scores at."""
        rows = self.rows(
            "SELECT max(step) FROM measured JOIN runs USING (run_id) "
            "WHERE start_step = 0 AND value IS NOT NULL"
        )
        return None if rows[0][0] is None else int(rows[0][0])

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

    def metric_values(self, metrics: Sequence[str], runs: npt.NDArray[np.int64]) -> Columns:
        """Return run_id, step and metrics of runs, as stored.

        Evaluations of other runs may be among them.
        """
        listed = ", ".join(identifier(name) for name in metrics)
        return self._of_runs(f"SELECT run_id, step, {listed} FROM evals", runs)

    def objective_values(self, runs: npt.NDArray[np.int64], until: int) -> Columns:
        """Return run_id, step and value of the objective of runs.

        Its floor is applied. Evaluations of other runs may be among them, later steps are not.
        """
        return self._of_runs("SELECT run_id, step, value FROM exact", runs, until)

    def objective_at(self, step: int) -> Columns:
        """Return run_id, step and value of the objective at a step."""
        return self._columns("SELECT run_id, step, value FROM exact WHERE step = ?", [step])

    def last_values_of_stopped(self, steps: Sequence[int]) -> Columns:
        """Return run_id, step and value of the last scores of stopped runs.

        The last at one of the steps counts. There is one score for each configuration and seed that
        a stopped run from scratch has.
        """
        return self._columns(
            "SELECT run_id, step, value FROM exact JOIN runs USING (run_id) "
            "WHERE status = 'stopped' AND start_step = 0 AND NOT isnan(value) "
            "AND step IN (SELECT unnest(CAST(? AS BIGINT[]))) "
            "QUALIFY row_number() OVER (PARTITION BY config_id, seed ORDER BY step DESC) = 1",
            [list(steps)],
        )

    def _of_runs(self, query: str, runs: npt.NDArray[np.int64], until: int = _LARGEST) -> Columns:
        """Answer a query over the evaluations of runs up to a step.

        Runs are in ascending order, as in the file: DuckDB reads only their ranges.
        """
        begins = runs[np.diff(runs, prepend=runs[:1] - 2) > 1]
        ends = runs[np.diff(runs, append=runs[-1:] + 2) > 1]
        if len(begins) > _MOST_RANGES:
            begins, ends = begins[:1], ends[-1:]
        ranges = np.stack([begins, ends], axis=1)
        inside = " OR ".join(["run_id BETWEEN ? AND ?"] * len(ranges)) or "FALSE"
        return self._columns(
            f"{query} WHERE ({inside}) AND step <= ?", [*ranges.ravel().tolist(), until]
        )

    def common_values(self, most: int) -> npt.NDArray[np.floating[Any]]:
        """Return the scores that more than so many evaluations have."""
        # Few buckets hold so many scores: groups of all different scores would need much memory.
        return self._columns(
            "WITH hashed AS NOT MATERIALIZED "
            "(SELECT value, hash(value) % 65536 AS bucket FROM exact WHERE NOT isnan(value)), "
            "full_buckets AS (SELECT bucket FROM hashed GROUP BY bucket HAVING count(*) > ?) "
            "SELECT value FROM hashed SEMI JOIN full_buckets USING (bucket) "
            "GROUP BY value HAVING count(*) > ? ORDER BY value",
            [most, most],
        )["value"]

    def penalty(self) -> float:
        """Return what a failed run scores, NaN where no run was measured."""
        # NULL where no run was measured: there is no worst value to take.
        value = self.rows("SELECT value FROM penalty")[0][0]
        return float("nan") if value is None else float(value)

    def outside(self, low: float | None, high: float | None) -> list[str]:
        """Say how many values of the objective lie outside bounds.

        Values of any run count; None is unbounded. The list is empty where none lies outside.
        """
        # Parameters: the manifest of a stranger states these numbers.
        count, least, greatest = self.rows(
            "SELECT count(*), min(value), max(value) FROM measured "
            "WHERE value < CAST(? AS DOUBLE) OR value > CAST(? AS DOUBLE)",
            [low, high],
        )[0]
        where = f"outside [{low}, {high}], from {least} to {greatest}"
        return [f"{counted(count, 'value', 'lie')} {where}"] if count else []

    def scores_at_phase_ends(self) -> pd.DataFrame:
        """Return start_step, step, config_id, seed and value of each phase's last step."""
        # All runs that begin at one step are a phase; QUALIFY keeps the last step of each.
        return self.frame(
            "SELECT start_step, step, config_id, scores.seed AS seed, value FROM scores "
            "JOIN (SELECT run_id, start_step FROM runs) USING (run_id) WHERE value IS NOT NULL "
            "QUALIFY step = max(step) OVER (PARTITION BY start_step)"
        )

    def history_from_scratch(self) -> list[Measurement]:
        """Return the evaluations of runs trained from scratch, in order.

        A failed run has one at every step that any such run was evaluated at.
        """
        # The cross join gives every run every step; those a sound run lacks go again.
        rows = self.rows(
            "SELECT run_id, config_id, seed, status, step, value, wall_seconds FROM runs "
            "CROSS JOIN "
            "(SELECT DISTINCT step FROM evals JOIN runs USING (run_id) WHERE start_step = 0) "
            "LEFT JOIN measured USING (run_id, step) "
            "WHERE start_step = 0 AND (measured.run_id IS NOT NULL "
            "OR status NOT IN ('done', 'stopped')) ORDER BY run_id, step"
        )
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
        return self.frame(
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
        rows = self.rows([file])
        return [(name, str(type)) for name, type in zip(rows.columns, rows.types, strict=True)]

    def count(self, files: Sequence[Path]) -> int:
        """Count the rows of files."""
        return len(self.rows(files))

    def ids(self, file: Path, key: str) -> set[int | str]:
        """Return the values of a table's key."""
        return {row[0] for row in self.rows([file]).select(key).fetchall()}

    def rows(self, files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
        """Return the rows of files, to be fetched.

        A cell is NULL where its file lacks a column that another has.
        """
        return self._connection.read_parquet([str(file) for file in files], union_by_name=True)

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
