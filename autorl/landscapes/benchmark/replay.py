"""Replay: any configuration is answered by a recorded run.

Everything is in dense arrays [configuration, seed, step] that are filled once; a look-up is
arithmetic on them, never a query. Two rules say which run answers:

* configuration: `exact` = the recorded configuration that is equal; `nearest` = the recorded one at
  the smallest Euclidean distance in the unit cube of the data set's space, where a categorical
  hyperparameter that differs, or one that is active on one side only, counts 1, and ties go to the
  lower config_id. Hyperparameters that are not given have the default of the data set's space. Only
  configurations trained with every tuning seed answer, so the optimizer sees the same ones whatever
  the seed.
* seed: tuning seed s is number s of the data set's tuning seeds in ascending order, test seed s
  number s - 100 of its test seeds (100 is the first test seed of a study file that only counts
  them). A seed past the last one is refused, because it would repeat a run that was counted
  already; with `wrap_seeds` it begins again.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from autorl.core.plain_text import counted
from autorl.core.seeds import FIRST_TEST_SEED
from autorl.core.types import Config, InputError, SeedRole, Status
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.grid import Grid, carry_forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


LookUp: TypeAlias = Literal["exact", "nearest"]
_REMEMBERED = 100_000  # configurations whose row is kept


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One run from the start, as recorded.

    Attributes:
        config_id, seed: those of the data set. (Of a predicted run: those of the run whose noise
        and end it has.)
        repeats: the seed of a count that has the same run, if the seed asked for lies past the last
        one; else None.
        status: how it ended.
        end: step it ended at; None if it is `done`, and then it goes on to the last recorded step.
        steps: recorded steps, ascending.
        values: by metric, one for each of `steps`, the last known where one is missing, NaN before
            the first.
        seconds_per_step: recorded wall seconds per environment step; None where no time was
            recorded.
    """

    config_id: int
    seed: int
    repeats: int | None
    status: Status
    end: int | None
    steps: npt.NDArray[np.int64]
    values: Mapping[str, npt.NDArray[np.float32]]
    seconds_per_step: float | None

    def ended(self, until: int) -> bool:
        """Say whether it ended before a segment to `until` is over.

        A failed run did also when it failed right there.
        """
        return self.end is not None and (
            self.end < until or (self.status.failed and self.end <= until)
        )

    def at(self, step: int) -> dict[str, float]:
        """Give the metrics at the nearest recorded step <= `step`.

        Empty before the first.
        """
        return self.through([step])[0]

    def through(self, steps: Sequence[int]) -> list[dict[str, float]]:
        """Give the metrics `at` each of several steps."""
        # A place of -1 lies before the first record, and reads the last: it is dropped below.
        places = np.searchsorted(self.steps, steps, side="right") - 1
        columns = [values[places].tolist() for values in self.values.values()]
        return [
            {
                name: value
                for name, value in zip(self.values, row, strict=True)
                if value == value and place >= 0
            }
            for place, *row in zip(places.tolist(), *columns, strict=True)
        ]


class Benchmark:
    """A data set that answers for training and scores configurations.

    The score is that of the landscape: floor applied, a failed run scores the penalty, larger or
    smaller is better as `direction` says. It can be given to `autorl.tune(benchmark, space,
    steps=benchmark.horizon)`. Pickled, it names the folder and is made again where it is used.

    Attributes:
        landscape: the data set.
        space: the landscape's search space.
        direction: maximize or minimize.
        horizon: the last recorded step.
        name: the landscape's id.
    """

    def __init__(self, landscape: Dataset, **options: object) -> None:
        self.landscape = landscape
        self.space = landscape.space
        self.grid = landscape.grid
        self.direction = landscape.manifest.objective.direction
        self.horizon = max(landscape.manifest.steps, default=0)
        self.name = landscape.manifest.id
        self._options = options
        self._table = tabulate(landscape)
        # A list: for one step bisect is 30 times as fast as numpy's searchsorted.
        self._steps: list[int] = landscape.grid.steps.tolist()

    def score(self, config: Mapping[str, object], seed: int, role: SeedRole, until: int) -> float:
        """Give the score at the nearest recorded step <= `until`.

        Raises:
            InputError: the configuration or the seed has no answer, or nothing is recorded at or
                before `until`.
        """
        raise NotImplementedError

    def last_recorded(self, until: int) -> int:
        """Find the place of the last recorded step <= `until`.

        Raises:
            InputError: there is none.
        """
        at = bisect_right(self._steps, until) - 1
        # -1 would be the last step to numpy: an answer from the future.
        if at < 0:
            raise InputError(
                f"{self.name} records nothing before step {self._steps[0]}", key="until"
            )
        return at

    def __call__(
        self,
        config: Mapping[str, object],
        *,
        seed: int = 0,
        until: int | None = None,
        role: SeedRole = "tuning",
    ) -> float:
        """Give the `score` up to a step, None = the last."""
        return self.score(config, seed, role, self.horizon if until is None else until)

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes get the folder's name: the arrays and the forest would be copied to each.
        kind: Callable[..., Benchmark] = type(self)
        return partial(kind, **self._options), (self.landscape,)


class Replay(Benchmark):
    """The runs trained from the start, in memory.

    Args:
        wrap_seeds: whether seeds past the last recorded one of their role begin again instead of
            being refused.

    Raises:
        InputError: no configuration was trained with every tuning seed, or all were trained in
            phases.
    """

    def __init__(
        self, landscape: Dataset, lookup: LookUp = "nearest", wrap_seeds: bool = False
    ) -> None:
        if lookup not in get_args(LookUp):
            message = f"expected {' or '.join(get_args(LookUp))}, got {lookup!r}"
            raise InputError(message, key="lookup")
        super().__init__(landscape, lookup=lookup, wrap_seeds=wrap_seeds)
        self.lookup = lookup
        self.wrap_seeds = wrap_seeds
        self._rows: dict[Config, int] = {}
        self._places: dict[tuple[str, int], int] = {}
        # Whatever the seed asked for, the same configurations answer: those with all tuning seeds.
        over = "tuning" if "tuning" in self.grid.roles else "all"
        complete = self._table.trained[:, self.grid.seed_positions(over)].all(axis=1)
        self._answering = np.flatnonzero(complete)
        if not len(self._answering):
            raise InputError(
                "no configuration was trained with every tuning seed", file=str(landscape.path)
            )

    def run(
        self, config: Mapping[str, object], seed: int, role: SeedRole = "tuning"
    ) -> RecordedRun:
        """Find the recorded run that answers for a configuration and a seed.

        Raises:
            InputError: the configuration is not in the data set's space, or with `exact` not in the
                data set; it has no seeds of this role; the configuration was not trained with this
                seed.
        """
        row = self.row(config)
        place = self.seed_place(seed, role)
        table = self._table
        if not table.trained[row, place]:
            raise InputError(
                f"configuration {self.grid.config_ids[row]} was not trained with {role} seed "
                f"{self.grid.seeds[place]}; ask for fewer seeds, or none of this role",
                file=str(self.landscape.path),
            )
        seconds = float(table.seconds[row, place])
        values = {name: curves[row, place] for name, curves in table.curves.items()}
        rate = None if np.isnan(seconds) else seconds
        return table.run(row, place, values, rate, self.repeated(seed, role))

    def score(self, config: Mapping[str, object], seed: int, role: SeedRole, until: int) -> float:
        """Look up the score at the nearest recorded step <= `until`.

        Raises:
            InputError: as `run`, or nothing is recorded at or before `until`.
        """
        row = self.row(config)
        place = self.seed_place(seed, role)
        at = self.last_recorded(until)
        value: float = self.grid.values.item(row, place, at)
        # Only NaN differs from itself; `math.isnan` would be a call more on the hot path.
        if value != value:
            raise InputError(
                f"configuration {self.grid.config_ids[row]} has no score for {role} seed "
                f"{self.grid.seeds[place]} at step {self._steps[at]}"
            )
        return value

    def row(self, config: Mapping[str, object]) -> int:
        """Find the row of the grid that answers for a configuration."""
        key = config if isinstance(config, Config) else Config(config)
        row = self._rows.get(key)
        if row is None:
            row = self._find(self.space.config(key))
            # Bounds the memory: a search asks for ever new configurations.
            if len(self._rows) >= _REMEMBERED:
                self._rows.clear()
            self._rows[key] = row
        return row

    def seed_place(self, seed: int, role: SeedRole) -> int:
        """Find the place on the seed axis that answers for a seed.

        Raises:
            InputError: there are no seeds of this role, or this one is past the last and may not
                begin again.
        """
        place = self._places.get((role, seed))
        if place is None:
            self.check_seeds([seed], role)
            places = self.grid.seed_positions(role)
            # The remainder matters with `wrap_seeds` only: without it such seeds were refused.
            place = self._places[role, seed] = int(places[(seed - first_seed(role)) % len(places)])
        return place

    def repeated(self, seed: int, role: SeedRole) -> int | None:
        """Find the seed whose runs a seed past the last one repeats.

        The result is None if it is not past the last.
        """
        number = seed - first_seed(role)
        count = len(self.grid.seed_positions(role))
        return None if 0 <= number < count else first_seed(role) + number % count

    def check_seeds(self, seeds: Iterable[int], role: SeedRole) -> None:
        """Raise `InputError` if a seed has no recorded run.

        Not where seeds may begin again.
        """
        count = len(self.grid.seed_positions(role))
        first = first_seed(role)
        wrong = [seed for seed in seeds if not first <= seed < first + count]
        if wrong and not self.wrap_seeds:
            raise InputError(
                f"{self.landscape.manifest.id} records {counted(count, f'{role} seed')}, "
                f"{first}..{first + count - 1} in a study; "
                f"seed {wrong[0]} would repeat one of them (`wrap_seeds: true` allows that)",
                key=f"seeds.{role}",
            )

    @cached_property
    def _units(self) -> npt.NDArray[np.float64]:
        """Points of the unit cube: (answering configurations, hyperparameters)."""
        ids = (int(self.grid.config_ids[row]) for row in self._answering)
        return np.array([self.space.to_unit(self.landscape.config(number)) for number in ids])

    @cached_property
    def _hashes(self) -> dict[str, int]:
        places = {int(number): row for row, number in enumerate(self.grid.config_ids)}
        hashes = self.landscape.queries.config_hashes()
        return {config_hash: places[config_id] for config_id, config_hash in hashes}

    def _find(self, config: Config) -> int:
        if self.lookup == "exact":
            row = self._hashes.get(self.space.config_hash(config))
            if row is None:
                raise InputError(
                    f"{dict(config)} is not in {self.landscape.manifest.id}; "
                    "`lookup: nearest` takes any"
                )
            return row
        # argmin takes the first of equal distances, which is the lower config_id.
        return int(self._answering[self._squared_distances(config).argmin()])

    def neighbours(
        self, config: Mapping[str, object]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Rows that can answer for a configuration, nearest first, and distances.

        They are Euclidean ones of the unit cube. The lower config_id of equally near rows comes
        first.
        """
        squares = self._squared_distances(self.space.config(config))
        order = np.argsort(squares, kind="stable")
        return self._answering[order], np.sqrt(squares[order])

    def _squared_distances(self, config: Config) -> npt.NDArray[np.float64]:
        """Return squared distances in the unit cube, one for each answering configuration."""
        # (configurations, hyperparameters); NaN where a hyperparameter is inactive.
        point = self.space.to_unit(config)
        unlike = np.isnan(self._units) != np.isnan(point)
        gap = np.nan_to_num(self._units - point)
        # Choices have no order: any other one is as far away as the ends of a range.
        kinds = [item.type == "categorical" for item in self.space.hyperparameters.values()]
        gap[:, kinds] = gap[:, kinds] != 0
        gap[unlike] = 1.0
        return np.asarray((gap**2).sum(axis=1))


def first_seed(role: SeedRole) -> int:
    """Return a role's first seed if a study file gives a count."""
    return FIRST_TEST_SEED if role == "test" else 0


@dataclass(frozen=True, eq=False)
class Table:
    """Runs as arrays over (configuration, seed).

    Attributes:
        grid: the axes.
        status: how each ended; empty where there is none.
        trained: whether there is one, to its end.
        ends: the step it was cut at; -1 = it went on to the last.
        seconds: wall seconds per step, NaN if unknown.
        curves: by metric, over (configuration, seed, step); the last known value where one is
            missing.
    """

    grid: Grid
    status: npt.NDArray[np.str_]
    trained: npt.NDArray[np.bool_]
    ends: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    curves: dict[str, npt.NDArray[np.float32]]

    def run(
        self,
        row: int,
        place: int,
        values: Mapping[str, npt.NDArray[np.float32]],
        seconds_per_step: float | None,
        repeats: int | None = None,
    ) -> RecordedRun:
        """Make a run of these values, ended as that of a cell."""
        end = int(self.ends[row, place])
        return RecordedRun(
            config_id=int(self.grid.config_ids[row]),
            seed=int(self.grid.seeds[place]),
            repeats=repeats,
            status=Status(str(self.status[row, place])),
            end=None if end < 0 else end,
            steps=self.grid.steps,
            values=values,
            seconds_per_step=seconds_per_step,
        )


def tabulate(landscape: Dataset) -> Table:
    """Arrange the runs trained from the start on the grid's axes.

    Raises:
        InputError: it was trained in phases.
    """
    if len(landscape.phases) > 1:
        raise InputError(
            f"in phases: runs from scratch end at step {landscape.phases[1]}, "
            "so whole runs cannot be replayed",
            file=str(landscape.path),
        )
    grid = landscape.grid
    shape = grid.shape[:2]
    # In the order of their lengths: of two runs of one cell the longer one is kept.
    runs = landscape.queries.runs_from_scratch()
    rows = np.searchsorted(grid.config_ids, runs["config_id"])
    places = np.searchsorted(grid.seeds, runs["seed"])
    status = np.full(shape, "", dtype="<U16")
    steps = np.full(shape, np.nan)
    seconds = np.full(shape, np.nan)
    status[rows, places] = runs["status"].astype("<U16")
    steps[rows, places] = np.ma.filled(
        np.ma.asarray(runs["environment_steps"], dtype=np.float64), np.nan
    )
    seconds[rows, places] = np.ma.filled(
        np.ma.asarray(runs["wall_seconds"], dtype=np.float64), np.nan
    )
    cut = (status != "") & (status != Status.DONE.value)
    objective = landscape.manifest.objective
    curves = {name: np.empty(grid.shape, dtype=np.float32) for name in landscape.metrics}
    ends = np.empty(shape, dtype=np.int64)
    measured = np.empty(shape, dtype=bool)
    scored_last = np.empty(shape, dtype=bool)
    for block in grid.blocks():
        columns = landscape.queries.metric_values(landscape.metrics, grid.runs_of(block))
        for name, curve in curves.items():
            scores = name == objective.metric
            values = grid.arranged(columns, block, grid.steps, name, alike=scores)
            if scores:
                floor = -np.inf if objective.floor is None else objective.floor
                values = np.maximum(values, np.float32(floor))  # NaN stays NaN
                scored = ~np.isnan(values)
                stopped = status[block] == Status.STOPPED.value
                ends[block] = _ends(grid.steps, scored, steps[block], stopped)
                measured[block] = scored.any(axis=2)
                scored_last[block] = scored[:, :, -1]
            curve[block] = carry_forward(values)
    # A cut run has its result, the penalty or its last value; one that is done needs a last score.
    trained = cut | scored_last
    # Imported runs may lack counted steps: those with a score are taken to reach the last step.
    lasting = np.where(np.isnan(steps) & measured, float(grid.steps[-1]), steps)
    # `where` computes both branches, and runs that failed at once have 0 steps.
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(lasting > 0, seconds / lasting, np.nan)
    return Table(grid, status, trained, np.where(cut, ends, -1), rate, curves)


def _ends(
    axis: npt.NDArray[np.int64],
    known: npt.NDArray[np.bool_],
    steps: npt.NDArray[np.float64],
    stopped: npt.NDArray[np.bool_],
) -> npt.NDArray[np.int64]:
    """Find where each run that was cut ended: (configurations, seeds).

    A failed run: at its first evaluation without a value, or earlier where fewer steps were
    counted. A stopped run: at the steps counted, or at its last evaluation.
    """
    missing = ~known
    # argmax finds the first True, and 0 where there is none: hence the `any` before it.
    first_missing = np.where(missing.any(axis=2), axis[missing.argmax(axis=2)], axis[-1])
    last_known = np.where(
        known.any(axis=2), axis[known.shape[2] - 1 - known[:, :, ::-1].argmax(axis=2)], 0
    )
    # fmin: a run without counted steps (NaN) ends at its first missing evaluation.
    failed_end = np.fmin(first_missing, steps)
    # A stop may lie between evaluations: counted steps say where, the last score only nearly.
    stopped_end = np.where(np.isnan(steps), last_known, steps)
    return np.maximum(np.where(stopped, stopped_end, failed_end), 0).astype(np.int64)
