"""Reading a data set.

It is read as SQL, learning curves, a dense array of scores, and rankings.
"""

from __future__ import annotations

import threading
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autorl.landscapes._queries import Columns, Queries
from autorl.landscapes._views import (
    check_only_reads,
    connect,
    connect_frames,
    file_columns,
    first_line,
    read_own_space,
)
from autorl.landscapes.grid import PENALTY, Grid, assemble
from autorl.landscapes.manifest import MANIFEST, Manifest
from autorl.landscapes.ranking import Choice, Rule, SeedSet
from autorl.landscapes.recorded import is_study, read_study
from autorl.landscapes.schema import (
    STATUSES,
    TABLES,
    Column,
    TableName,
    check_columns,
    config_of_row,
    hyperparameter_column,
)
from autorl.landscapes.time_limit import QUERY_SECONDS, TimeLimit
from autorl.plain_text import shown
from autorl.space import Space
from autorl.statistics import Aggregate, parse_aggregate, ranking
from autorl.statistics.reductions import Reduction, parse_reduction
from autorl.types import Config, InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import duckdb
    import pandas as pd

_CHUNK = 1000  # rows of an answer that are Python objects at once


class Dataset:
    """A landscape folder, opened for reading.

    Nothing is loaded before it is asked for.

    A study's folder is one too, also while the study runs: it shows the moment it was opened.

    SQL sees the views `configs`, `runs`, `evals`, `segments` as stored, and `scores` (run_id,
    config_id, seed, seed_role, step, value): the objective with floor and penalty applied and a row
    for every step a failed run missed, safe to average. In `evals` a failed evaluation is NULL,
    which AVG skips.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        study = not (self.path / MANIFEST).is_file() and is_study(self.path)
        self._study = read_study(self.path) if study else None
        self.manifest = self._study.manifest if self._study else Manifest.read(self.path)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.manifest.id!r}, {dict(self.manifest.rows)})"

    @cached_property
    def space(self) -> Space:
        """The search space of the configurations.

        Raises `InputError` if it is not whole in a file of the folder.
        """
        return self._study.space if self._study else read_own_space(self.path)

    @cached_property
    def phases(self) -> tuple[int, ...]:
        """Steps at which phases begin, or (0,) without phases.

        Each phase begins from the best agent of the phase before.
        """
        if "phases" not in self.manifest.sampler:
            return (0,)
        # Before the first run of a study there is none.
        return self.queries.phase_starts() or (0,)

    @property
    def is_study(self) -> bool:
        """Say whether this is a study's folder, without files of the format."""
        return self._study is not None

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Columns of `evals` that are measured values."""
        fixed = {column.name for column in TABLES["evals"]}
        return tuple(name for name in self.queries.stored_types("evals") if name not in fixed)

    @cached_property
    def queries(self) -> Queries:
        """The questions that this package asks of the tables."""
        return Queries(self.path, partial(self._connect, guarded=False))

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Answer a DuckDB query over the views.

        The answer is read by `.df()`, `.fetchall()` or `.fetchnumpy()`.

        The query may be anyone's: it reaches no other file, no network, no extension and no
        setting.

        Raises:
            InputError: the query is wrong, or is not exactly one that only reads.
        """
        return self._relation(query, self._time_limit(None))

    def _relation(self, query: str, time_limit: TimeLimit) -> duckdb.DuckDBPyRelation:
        import duckdb

        try:
            # A PIVOT is answered in part when it is asked.
            with self._lock, time_limit.counted():
                check_only_reads(self._guarded_connection, query, str(self.path))
                return self._guarded_connection.sql(query)
        except (duckdb.Error, UnicodeError) as error:
            raise InputError(first_line(error), file=str(self.path), key="sql") from None

    def rows(
        self, query: str, limit: int | None = None, *, seconds: float | None = QUERY_SECONDS
    ) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Answer anyone's query, as `sql` does, by columns and rows.

        All rows come a thousand at a time.

        Args:
            query: one query that only reads.
            limit: the most rows that are wanted; no more are computed.
            seconds: the most it may take to compute them; None = no limit.

        Raises:
            InputError: the query is wrong or takes too long, also while its rows are fetched.
        """
        time_limit = self._time_limit(seconds)
        answer = self._relation(query, time_limit)
        return list(answer.columns), self._fetched(query, answer, limit, time_limit)

    def _time_limit(self, seconds: float | None) -> TimeLimit:
        return TimeLimit(self._guarded_connection, seconds, str(self.path))

    def _fetched(
        self,
        query: str,
        answer: duckdb.DuckDBPyRelation,
        limit: int | None,
        time_limit: TimeLimit,
    ) -> Iterator[tuple[Any, ...]]:
        """Fetch the rows of a query that was checked to read only.

        Without a limit, another query ends the answer.
        """
        import duckdb

        try:
            with self._lock, time_limit.counted():
                # A limit of the query, not of its answer: no more rows are computed.
                chunk = answer.limit(limit).fetchall() if limit is not None else []
                unlimited = self._guarded_connection.execute(query) if limit is None else None
            while unlimited is not None:
                with time_limit.counted():
                    chunk = unlimited.fetchmany(_CHUNK)
                if not chunk:
                    return
                yield from chunk
        except (duckdb.Error, ValueError, OverflowError) as error:  # Python has no such date, say
            raise InputError(first_line(error), file=str(self.path), key="sql") from None
        yield from chunk

    def stored_columns(self) -> dict[TableName, dict[str, str]]:
        """Give the DuckDB type of each stored column, by table.

        They need not be those of the schema.
        """
        if self._study is None:
            return file_columns(self.path, self.manifest)
        return {name: self.queries.stored_types(name) for name in TABLES}

    def check_table(self, name: TableName, more: Sequence[Column] = ()) -> None:
        """Raise `InputError` unless a table has its columns, and `more`.

        `runs` and `evals` are always checked.
        """
        stored = self.queries.stored_types(name)
        check_columns(name, stored, str(self.path), [*TABLES[name], *more])

    @cached_property
    def grid(self) -> Grid:
        """The objective of all runs trained from the start, as an array.

        It is loaded once.
        """
        # A run that continues another one is no score of its configuration alone.
        scratch = self._runs.loc[self._runs["start_step"] == 0]
        runs = [
            scratch[name].tolist()
            for name in ("run_id", "config_id", "seed", "seed_role", "status")
        ]
        failed = not set(runs[-1]) <= {"done", "stopped"}
        columns = self._measured()
        config_ids = self.queries.config_ids()
        penalty = self.queries.penalty() if failed else np.nan
        # NULL comes masked in arrays, as None in lists.
        ids = [number for number in config_ids if number is not None]
        nameless = len(ids) < len(config_ids)
        if nameless or np.ma.is_masked(columns["run_id"]) or np.ma.is_masked(columns["step"]):
            raise InputError(
                "an evaluation without a run or step, or a configuration without an id",
                file=str(self.path),
            )
        # A study ranks by every digit it scored: as float32, close scores could change places.
        precision = np.float64 if self._study else np.float32
        values = np.ma.filled(np.ma.asarray(columns["value"], dtype=precision), np.nan)
        evals = (
            np.asarray(columns["run_id"], dtype=np.int64),
            np.asarray(columns["step"], dtype=np.int64),
            values,
        )
        return assemble(list(zip(*runs, strict=True)), evals, penalty, self.manifest.steps, ids)

    def _measured(self) -> Columns:
        """Read the columns run_id, step and value of the objective.

        Those of a study have every digit it scored by.
        """
        if self._study is None:
            return self.queries.objective_values()
        evals = self._study.tables.evals
        columns = {"run_id": "run_id", "step": "step", "value": self.manifest.objective.metric}
        return {name: evals[column].to_numpy() for name, column in columns.items()}

    def config(self, config_id: int) -> Config:
        """Give the configuration of an id.

        Raises `InputError` if there is none, or its values are not in the space.
        """
        row = self._config_rows.get(config_id)
        if row is None:
            raise InputError(f"no configuration {config_id} in {self.manifest.id}", key="config_id")
        try:
            config = config_of_row(self.space, row)
            self.space.check(config)
        except InputError as error:
            message = f"configuration {config_id} is not in the space: {error}"
            raise InputError(message, file=str(self.path)) from None
        # A cell of a stranger's table: JSON that is none, a number that is text.
        except (ValueError, TypeError, OverflowError) as error:
            message = f"configuration {config_id} cannot be read: {shown(str(error))}"
            raise InputError(message, file=str(self.path)) from None
        return config

    def rule(
        self,
        by: str | Aggregate | None = None,
        reduce: str | Reduction | None = None,
        default: str = "iqm",
    ) -> Rule:
        """Say how configurations are ranked.

        What is not given is what the study that made the landscape did.

        Args:
            by: aggregate over seeds.
            reduce: of a run's curve: `last`, `best`, `auc`, `mean_last(k)`.
            default: the aggregate where none is given or recorded; the reduction is `last` then.

        Raises:
            InputError: no such aggregate or reduction.
        """
        recorded = self.manifest.evaluation
        recorded_origin = "the study's own" if self.is_study else "as recorded"
        stored = {
            name: recorded_origin if name in recorded else "default"
            for name in ("aggregate", "reduce")
        }
        of_aggregate = stored["aggregate"] if by is None else "as asked"
        of_reduction = stored["reduce"] if reduce is None else "as asked"
        origin = f"aggregate {of_aggregate}, reduction {of_reduction}"
        if of_aggregate == of_reduction:
            origin = of_aggregate
        by = by if by is not None else recorded.get("aggregate", default)
        reduce = reduce if reduce is not None else recorded.get("reduce", "last")
        return Rule(parse_aggregate(by, key="by"), parse_reduction(reduce), origin)

    def best(
        self,
        seeds: SeedSet = "tuning",
        by: str | Aggregate | None = None,
        step: int | None = None,
        reduce: str | Reduction | None = None,
    ) -> Choice:
        """Choose the best configuration over the seeds of a role.

        Curves count up to `step` (None = the last).

        Aggregate and reduction are those of `rule`. Only configurations with a score for every seed
        of the role compete. Ties: larger mean, lower standard deviation, lower config_id.

        Raises:
            InputError: no such role, step or aggregate, or no configuration has all seeds.
        """
        rule = self.rule(by, reduce)
        at = self.grid.step_position(step)
        row = int(self.ranked(seeds, rule, at)[0])
        tuning, test = (self._over(role, rule, at, row, seeds) for role in ("tuning", "test"))
        value = self._over(seeds, rule, at, row, seeds)
        config_id = int(self.grid.config_ids[row])
        assert value is not None  # the ranking holds complete rows only
        tested = seeds == "tuning" and "test" in self.grid.roles
        failed_tests = self._failed_tests(row, at) if tested else 0
        return Choice(
            config_id=config_id,
            config=self.config(config_id),
            value=value,
            tuning=tuning,
            test=test,
            by=rule.aggregate.name,
            seeds=seeds,
            step=int(self.grid.steps[at]),
            reduce=rule.reduction.name,
            origin=rule.origin,
            failed_tests=failed_tests,
        )

    def top(
        self,
        n: int = 10,
        seeds: SeedSet = "tuning",
        by: str | Aggregate | None = None,
        step: int | None = None,
        reduce: str | Reduction | None = None,
    ) -> pd.DataFrame:
        """List the n best configurations, best first.

        Columns are config_id, the aggregate over tuning and over test seeds, and the
        hyperparameters.

        Raises:
            InputError: as `best`.
        """
        import pandas as pd

        rule = self.rule(by, reduce)
        at = self.grid.step_position(step)
        rows = self.ranked(seeds, rule, at)[:n]
        table: dict[str, list[Any]] = {
            "config_id": [int(self.grid.config_ids[row]) for row in rows]
        }
        for role in ("tuning", "test"):
            if role in self.grid.roles:
                table[f"{role}_{rule.aggregate.name}"] = [
                    self._over(role, rule, at, int(row), seeds) for row in rows
                ]
        return pd.DataFrame(table).merge(self._configs, on="config_id", how="left")

    def curves(self, config_id: int) -> pd.DataFrame:
        """Give the learning curves of a configuration as stored.

        Columns are run_id, seed, seed_role, status, step and every metric.

        Raises:
            InputError: there is no such configuration.
        """
        import pandas as pd

        runs = self._runs
        evals = self._evals
        rows = np.flatnonzero(runs["config_id"].to_numpy() == config_id)
        # A configuration without a run has no rows; one that is not there is an error.
        if not len(rows):
            self.config(config_id)
        rows = rows[np.argsort(runs["seed"].to_numpy()[rows], kind="stable")]
        ids = runs["run_id"].to_numpy()[rows]
        stored = evals["run_id"].to_numpy()
        begin = np.searchsorted(stored, ids)
        end = np.searchsorted(stored, ids, side="right")
        # Places begin..end of every run, one run after the other: 0.8 ms in 102,400 evaluations.
        of_run = np.repeat(rows, end - begin)
        picked = np.arange(len(of_run)) + np.repeat(
            begin - np.cumsum(end - begin) + (end - begin), end - begin
        )
        of_runs = {
            name: runs[name].array.take(of_run)
            for name in ("run_id", "seed", "seed_role", "status")
        }
        return pd.DataFrame(
            of_runs | {name: evals[name].array.take(picked) for name in evals if name != "run_id"}
        )

    def to_pandas(self) -> pd.DataFrame:
        """Give one row per evaluation, with its run and configuration."""
        return self.queries.joined()

    @cached_property
    def _runs(self) -> pd.DataFrame:
        """The table of runs by run_id, without what all share.

        Raises:
            InputError: a cell is empty, a run is there twice, or a status is none there is.
        """
        runs = self.queries.runs()
        empty = [str(name) for name in runs if runs[name].isna().any()]
        if empty:
            raise InputError(
                f"table 'runs' has empty cells in {', '.join(empty)}", file=str(self.path)
            )
        repeated = np.flatnonzero(np.diff(runs["run_id"].to_numpy()) == 0)
        if len(repeated):
            number = runs["run_id"].iloc[repeated[0]]
            raise InputError(f"table 'runs' has run_id {number} twice", file=str(self.path))
        unknown = set(runs["status"].unique()) - set(STATUSES)
        if unknown:
            message = (
                f"table 'runs' has status {shown(min(unknown))}; allowed: {', '.join(STATUSES)}"
            )
            raise InputError(message, file=str(self.path))
        return runs

    @cached_property
    def _evals(self) -> pd.DataFrame:
        """The table of evaluations in memory, by run_id and step."""
        return self.queries.evaluations()

    @cached_property
    def _configs(self) -> pd.DataFrame:
        """Hyperparameters by config_id."""
        return self.queries.hyperparameters()

    @cached_property
    def _config_rows(self) -> dict[int, dict[Hashable, Any]]:
        """Rows of `configs` by id.

        Every hyperparameter has a column of its type.
        """
        self.check_table(
            "configs", [hyperparameter_column(item) for item in self.space.hyperparameters.values()]
        )
        return {int(row["config_id"]): row for row in self._configs.to_dict("records")}

    @cached_property
    def _guarded_connection(self) -> duckdb.DuckDBPyConnection:
        return self._connect(guarded=True)

    def _connect(self, *, guarded: bool) -> duckdb.DuckDBPyConnection:
        if self._study is not None:
            return connect_frames(
                self._study.tables, self._study.space, self.manifest, self.path, guarded=guarded
            )
        return connect(self.path, self.manifest, guarded=guarded)

    def ranked(self, seeds: SeedSet, rule: Rule, at: int) -> npt.NDArray[np.int64]:
        """Rank the grid's rows that have all seeds of a role.

        The best comes first, by the curves up to position `at`.

        Raises:
            InputError: no configuration has a score for every seed.
        """
        table = self._sign * self._reduced(rule, at)[:, self.grid.seed_positions(seeds)]
        complete = np.flatnonzero(~np.isnan(table).any(axis=1))
        if not len(complete):
            raise InputError(self._nobody(seeds, at), file=str(self.path), key="step")
        order: npt.NDArray[np.int64] = complete[ranking(table[complete], rule.aggregate)]
        return order

    def _nobody(self, seeds: SeedSet, at: int) -> str:
        """Say why no configuration can be ranked at a step."""
        step = int(self.grid.steps[at])
        starts = self.phases
        if len(starts) == 1 or step <= starts[1]:
            return f"no configuration has a score for every {seeds} seed at step {step}"
        return (
            f"at step {step} there is no best configuration: "
            f"phases begin at steps {', '.join(map(str, starts))}, each "
            "from the best agent of the one before; "
            f"ask at a step up to {starts[1]}, or compare the phases"
        )

    @property
    def _sign(self) -> float:
        return -1.0 if self.manifest.objective.direction == "minimize" else 1.0

    def _reduced(self, rule: Rule, at: int) -> npt.NDArray[np.float64]:
        """Reduce each curve up to position `at` to a number.

        Shape (configurations, seeds).
        """
        return self.grid.reduced(
            rule.reduction, at, self.manifest.evaluation.get("steps", ()), self._sign
        )

    def _failed_tests(self, row: int, at: int) -> int:
        return int(self._failed(row, self.grid.seed_positions("test"), at).sum())

    def _failed(self, row: int, places: npt.NDArray[np.int64], at: int) -> npt.NDArray[np.bool_]:
        """Mark the seeds of a row that had failed by position `at`."""
        filled = self.grid.filled
        if filled is None:
            return np.zeros(len(places), dtype=bool)
        return np.asarray(filled[row, places, at] == PENALTY)

    def _over(self, seeds: str, rule: Rule, at: int, row: int, chosen_on: SeedSet) -> float | None:
        """Aggregate one row over the seeds of a role.

        None without any seeds, or if a value is missing.
        """
        if seeds != "all" and seeds not in self.grid.roles:
            return None
        places = self.grid.seed_positions(seeds)
        # Where the reduction chooses a step, seeds that did not choose it are read at the step that
        # is best on those that did: their own best step would be chosen on the test.
        if rule.reduction.chooses_step and seeds != chosen_on:
            columns = self.grid.columns(at, self.manifest.evaluation.get("steps", ()))
            curves = self._sign * self.grid.values[row][:, columns].astype(np.float64)
            means = [
                rule.aggregate(column) for column in curves[self.grid.seed_positions(chosen_on)].T
            ]
            values = self._sign * curves[places, int(np.argmax(means))]
        else:
            values = self._reduced(rule, at)[row, places]
        # A failed test run is left out unless the landscape states a penalty: what it has otherwise
        # is the worst value of others, which is no test score.
        if seeds == "test" and chosen_on == "tuning":
            failed = self._failed(row, places, at)
            stated = self.manifest.objective.penalty is not None and not failed.all()
            values = values if stated else values[~failed]
        return (
            None
            if not len(values) or np.isnan(values).any()
            else self._sign * rule.aggregate(self._sign * values)
        )
