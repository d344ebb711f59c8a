"""Reading a data set.

It is read as SQL, learning curves, scores by configuration and seed, and rankings.
"""

from __future__ import annotations

import threading
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import shown
from autorl.core.types import Config, InputError
from autorl.landscapes._queries import Queries
from autorl.landscapes._views import (
    check_only_reads,
    connect,
    connect_frames,
    file_columns,
    first_line,
    read_own_space,
)
from autorl.landscapes.grid import PENALTY, Grid
from autorl.landscapes.library import is_study, read_study
from autorl.landscapes.manifest import MANIFEST, Manifest
from autorl.landscapes.query_process import QUERY_SECONDS, answer
from autorl.landscapes.ranking import Choice, Rule, SeedSet, TaskValue
from autorl.landscapes.schema import TABLES, TableName, check_columns, config_of_row
from autorl.space import Space
from autorl.statistics import Aggregate, parse_aggregate, ranking
from autorl.statistics.reductions import Reduction, parse_reduction

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    import duckdb
    import pandas as pd


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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.path),)

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
        return Queries(self.path, self._connector)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Answer a DuckDB query over the views.

        The answer is read by `.df()`, `.fetchall()` or `.fetchnumpy()`.

        It reaches no other file, no network, no extension and no setting. Reading its answer takes
        the time and the memory that it takes: ask a query of others by `rows`.

        Raises:
            InputError: the query is wrong, or is not exactly one that only reads.
        """
        import duckdb

        try:
            with self._lock:
                check_only_reads(self._guarded_connection, query, str(self.path))
                return self._guarded_connection.sql(query)
        except (duckdb.Error, UnicodeError) as error:
            raise InputError(first_line(error), file=str(self.path), key="sql") from None

    def rows(
        self, query: str, limit: int | None = None, *, seconds: float | None = QUERY_SECONDS
    ) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Answer anyone's query, as `sql` does, by columns and rows.

        It runs in a process of its own, which ends at the limits of time and memory.

        Args:
            query: one query that only reads.
            limit: the most rows that are wanted; no more are computed.
            seconds: the most it may take to compute them; None = no limit.

        Raises:
            InputError: the query is wrong or takes too much, also while its rows are fetched.
        """
        connect = partial(self._connector, guarded=True)
        return answer(connect, query, limit, seconds, str(self.path))

    def stored_columns(self) -> dict[TableName, dict[str, str]]:
        """Give the DuckDB type of each stored column, by table.

        The schema may have other types.
        """
        if self._study is None:
            return file_columns(self.path, self.manifest)
        return {name: self.queries.stored_types(name) for name in TABLES}

    def check_table(self, name: TableName, space: Space | None = None) -> None:
        """Raise `InputError` unless a table has its columns.

        `configs` needs those of a space too. `runs` and `evals` are always checked.
        """
        check_columns(name, self.queries.stored_types(name), str(self.path), space)

    @cached_property
    def grid(self) -> Grid:
        """The objective of runs from scratch by configuration, seed and step."""
        return Grid(self.queries, self.manifest, np.float64 if self._study else np.float32)

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

        Arguments that are not given follow the study that made the landscape.

        Args:
            by: aggregate over seeds.
            reduce: of a run's curve: `last`, `best`, `auc`, `mean_last(k)`, `time_to(score)`.
            default: the aggregate where none is given or recorded; the reduction is `last` then.

        Raises:
            InputError: no such aggregate or reduction.
        """
        recorded = self.manifest.evaluation
        stored = "the study's own" if self.is_study else "as recorded"
        origins = [
            "as asked" if option is not None else stored if name in recorded else "default"
            for name, option in (("aggregate", by), ("reduce", reduce))
        ]
        origin = origins[0]
        if origin != origins[1]:
            origin = f"aggregate {origin}, reduction {origins[1]}"
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
        by_task: dict[str, Any] = {}
        if seeds == "tuning" and len(tasks := self.queries.tasks()) > 1:
            by_task, test = self._by_task(tasks, rule, at, row)
        value = self._over(seeds, rule, at, row, seeds)
        config_id = int(self.grid.config_ids[row])
        assert value is not None  # the ranking holds complete rows only
        tested = seeds == "tuning" and "test" in self.grid.roles
        failed_tests = int(self._failed(row, "test", at).sum()) if tested else 0
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
            **by_task,
        )

    def _by_task(
        self, tasks: Mapping[str, Sequence[int]], rule: Rule, at: int, row: int
    ) -> tuple[dict[str, Any], float | None]:
        """Part the scores of a row by task.

        Args:
            tasks: seeds of each.
            rule: of the ranking, over tuning seeds.
            at: position of the last step that counts.
            row: of the grid.

        Returns:
            Fields of its `Choice`, and its score on test seeds of tasks it was not chosen on; if
            there are none, on those of all tasks.
        """

        def over(role: str, names: Iterable[str]) -> float | None:
            only = [seed for name in names for seed in tasks[name]]
            return self._over(role, rule, at, row, "tuning", only)

        values = [TaskValue(name, over("tuning", [name]), over("test", [name])) for name in tasks]
        tuned = [value.task for value in values if value.tuning is not None]
        untuned = [value.task for value in values if value.tuning is None]
        tuning = over("tuning", tuned)
        seen = over("test", tuned)
        new = over("test", untuned)
        sign = rule.reduction.sign(self.manifest.objective.sign)
        fields: dict[str, Any] = {"tasks": tuple(sorted(values, key=lambda v: v.tuning is None))}
        if tuning is not None and seen is not None:
            fields["gap_of_seeds"] = sign * (tuning - seen)
        if seen is not None and new is not None:
            fields["gap_of_tasks"] = sign * (seen - new)
        return fields, new if untuned else seen

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
        curves = self.queries.curves(config_id)
        # A configuration without a run has no rows; one that is not there is an error.
        if not len(curves):
            self.config(config_id)
        return curves

    def curve_rows(self, config_id: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Give the columns and rows of `curves`, without pandas.

        Raises:
            InputError: there is no such configuration.
        """
        columns, rows = self.queries.curve_rows(config_id)
        if not rows:
            self.config(config_id)
        return columns, rows

    def to_pandas(self) -> pd.DataFrame:
        """Give one row per evaluation, with its run and configuration."""
        return self.queries.joined()

    @cached_property
    def _configs(self) -> pd.DataFrame:
        """Hyperparameters by config_id."""
        return self.queries.hyperparameters()

    @cached_property
    def _config_rows(self) -> dict[int, dict[Hashable, Any]]:
        """Rows of `configs` by id.

        Every hyperparameter has a column of its type.
        """
        self.check_table("configs", self.space)
        return {int(row["config_id"]): row for row in self._configs.to_dict("records")}

    @cached_property
    def _guarded_connection(self) -> duckdb.DuckDBPyConnection:
        return self._connector(guarded=True)

    @property
    def _connector(self) -> Callable[..., duckdb.DuckDBPyConnection]:
        """Opens a DuckDB of the tables, in any process."""
        if self._study is None:
            return partial(connect, self.path, self.manifest)
        return partial(
            connect_frames, self._study.tables, self._study.space, self.manifest, self.path
        )

    def ranked(self, seeds: SeedSet, rule: Rule, at: int) -> npt.NDArray[np.int64]:
        """Rank the grid's rows that have all seeds of a role.

        The best comes first, by the curves up to position `at`.

        Raises:
            InputError: no configuration has a score for every seed.
        """
        scores = self.grid.reduced(rule.reduction, at)[:, self.grid.seed_positions(seeds)]
        table = rule.reduction.sign(self.manifest.objective.sign) * scores
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

    def _failed(self, row: int, role: str, at: int) -> npt.NDArray[np.bool_]:
        """Mark the seeds of a row that had failed by position `at`."""
        return np.asarray(self.grid.at(at).filled[row, self.grid.seed_positions(role)] == PENALTY)

    def _over(
        self,
        seeds: str,
        rule: Rule,
        at: int,
        row: int,
        chosen_on: SeedSet,
        only: Sequence[int] | None = None,
    ) -> float | None:
        """Aggregate one row over seeds of a role.

        Over all of them, or over `only` some. None without any seeds, or if a value is missing.
        """
        if seeds != "all" and seeds not in self.grid.roles:
            return None
        sign = rule.reduction.sign(self.manifest.objective.sign)
        places = self.grid.seed_positions(seeds)
        if only is not None:
            places = places[np.isin(self.grid.seeds[places], only)]
        # If the reduction chooses a step, seeds that did not choose it are read at the step that
        # is best on those that did: their own best step would be chosen on the test.
        if rule.reduction.chooses_step and seeds != chosen_on:
            scores = self.grid.curves(slice(row, row + 1), at).values[0]
            curves = sign * scores[:, self.grid.columns(at)].astype(np.float64)
            means = [
                rule.aggregate(column) for column in curves[self.grid.seed_positions(chosen_on)].T
            ]
            values = sign * curves[places, int(np.argmax(means))]
        else:
            values = self.grid.reduced(rule.reduction, at)[row, places]
        # A failed test run is left out unless the landscape states a penalty: what it has otherwise
        # is the worst value of others, which is no test score.
        if seeds == "test" and chosen_on == "tuning":
            failed = self.grid.at(at).filled[row, places] == PENALTY
            stated = self.manifest.objective.penalty is not None and not failed.all()
            values = values if stated else values[~failed]
        if not len(values) or np.isnan(values).any():
            return None
        return sign * rule.aggregate(sign * values)
