"""A landscape's objective by configuration, seed and step.

The axes are read once. Scores are read from the tables when they are asked for: one step of all
configurations, or the curves of some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.statistics.reductions import Reduction, never_reached

if TYPE_CHECKING:
    from autorl.landscapes._queries import Columns, Queries
    from autorl.landscapes.manifest import Manifest

Integers: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[np.floating[Any]]
PENALTY = 1
CARRIED = 2
_CELLS = 2**20  # scores in memory at once where curves of all configurations are looked at


class Scores(NamedTuple):
    """Scores of runs trained from the start.

    Attributes:
        values: in the metric's own direction, floor and penalty applied. NaN: this configuration
            was not trained with this seed, or not evaluated at this step.
        filled: 0 where a value was recorded, `PENALTY` where a run had failed, `CARRIED` where it
            had stopped itself and keeps its last value.
    """

    values: Array
    filled: npt.NDArray[np.int8]


class Grid:
    """The axes of a landscape's scores, and the scores themselves on demand.

    A failed run scores the penalty wherever it has no value. A stopped run keeps its last value. A
    run that is done and lacks a value has NaN there.

    Args:
        queries: asks the landscape's tables.
        manifest: of the landscape.
        precision: of scores.

    Attributes:
        config_ids, seeds, steps: the axes, ascending.
        roles: seed role of each seed.

    Raises:
        InputError: the table of runs cannot be read, a seed has two roles, an evaluation has no run
            or step, or a run names no configuration.
    """

    def __init__(
        self, queries: Queries, manifest: Manifest, precision: type[np.floating[Any]] = np.float32
    ) -> None:
        runs = queries.runs()
        # A run that continues another one is no score of its configuration alone.
        scratch = runs["start_step"] == 0
        run_ids, configs, seeds, ended = (
            runs[name][scratch] for name in ("run_id", "config_id", "seed", "ended")
        )
        roles = queries.seed_roles()
        self.config_ids = queries.config_ids()
        self.seeds = np.array(sorted(roles), dtype=np.int64)
        self.steps = np.array(sorted(manifest.steps), dtype=np.int64)
        self.roles = tuple(roles[seed] for seed in self.seeds.tolist())
        rows, is_there = _find(self.config_ids, configs)
        if not is_there.all():
            raise InputError(f"run {run_ids[~is_there][0]} names no configuration of the table")
        self._run_ids = run_ids
        self._cells = rows * len(self.seeds) + np.searchsorted(self.seeds, seeds)
        self._ended = np.zeros((len(self.config_ids), len(self.seeds)), dtype=np.int8)
        np.maximum.at(self._ended.reshape(-1), self._cells, ended)
        self._queries = queries
        self._precision = precision
        self._sign = manifest.objective.sign
        self._counting = manifest.evaluation.get("steps", ())
        self._at: dict[int, Scores] = {}
        self._reduced: dict[tuple[str, int], npt.NDArray[np.float64]] = {}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of configurations, seeds and steps."""
        return len(self.config_ids), len(self.seeds), len(self.steps)

    @cached_property
    def values(self) -> Array:
        """All scores in memory, for look-ups: (configurations, seeds, steps)."""
        values = np.empty(self.shape, dtype=self._precision)
        for rows in self.blocks():
            values[rows] = self.curves(rows).values
        return values

    def blocks(self) -> Iterator[slice]:
        """Yield ranges of configurations whose curves fit into memory.

        There is at least one range, which may be empty.
        """
        size = max(1, _CELLS // max(1, len(self.seeds) * len(self.steps)))
        count = len(self.config_ids)
        yield from (slice(row, min(row + size, count)) for row in range(0, max(1, count), size))

    def curves(self, rows: slice, at: int | None = None) -> Scores:
        """Read the curves of a range of configurations.

        They end at position `at` of the steps, None = the last.
        """
        axis = self.steps if at is None else self.steps[: at + 1]
        runs = self.runs_of(rows)
        evals = self._queries.objective_values(runs, int(axis[-1]))
        values = self.arranged(evals, rows, axis)
        missing = np.isnan(values)
        stopped = self._ended[rows] == CARRIED
        if stopped.any():
            values[stopped] = carry_forward(values[stopped])
        return self._filled(values, missing, rows)

    def whole_curves(self, role: str, columns: Sequence[int] | None = None) -> Array:
        """Read the curves of the seeds of a role.

        At positions of steps, None = all.
        """
        seeds = self.seed_positions(role)
        chosen = slice(None) if columns is None else columns
        return np.concatenate(
            [self.curves(rows).values[:, seeds][:, :, chosen] for rows in self.blocks()]
        )

    def at(self, place: int) -> Scores:
        """Read the scores at the position of one step: (configurations, seeds)."""
        if place not in self._at:
            rows = slice(0, len(self.config_ids))
            axis = self.steps[place : place + 1]
            values = self.arranged(self._queries.objective_at(int(axis[0])), rows, axis)
            missing = np.isnan(values)
            stopped = missing & (self._ended == CARRIED)[:, :, None]
            if stopped.any():
                last = self._queries.last_values_of_stopped(self.steps[:place].tolist())
                last["step"][:] = axis[0]
                values[stopped] = self.arranged(last, rows, axis)[stopped]
            values, filled = self._filled(values, missing, rows)
            self._at[place] = Scores(values[:, :, 0], filled[:, :, 0])
        return self._at[place]

    def reduced(self, reduction: Reduction, at: int) -> npt.NDArray[np.float64]:
        """Reduce each run's curve up to position `at` to one number.

        Shape (configurations, seeds), NaN where a curve lacks a value.

        A run that had failed by then has the penalty, one that had stopped itself the reduction of
        what it recorded.

        Args:
            reduction: of larger-is-better values.
            at: position of the last step that counts.
        """
        key = reduction.name, at
        if key not in self._reduced:
            if reduction.name == "last":
                self._reduced[key] = self.at(at).values.astype(np.float64)
            else:
                parts = [self._reduced_part(reduction, at, rows) for rows in self.blocks()]
                self._reduced[key] = np.concatenate(parts)
        return self._reduced[key]

    def _reduced_part(self, reduction: Reduction, at: int, rows: slice) -> npt.NDArray[np.float64]:
        scores = self.curves(rows, at)
        columns = self.columns(at)
        curves = self._sign * scores.values[:, :, columns].astype(np.float64)
        origin = scores.filled[:, :, columns]
        axis = self.steps[columns]
        sign = reduction.sign(self._sign)
        horizon = int(self.steps[-1])
        result = np.asarray(sign * reduction.at(axis, horizon, self._sign)(curves))
        # A stopped run is reduced over what it recorded: the values it was given after that would
        # weigh its last one more.
        for row, place in zip(*np.nonzero(origin[:, :, -1] == CARRIED), strict=True):
            recorded = origin[row, place] != CARRIED
            reduced = reduction.at(axis[recorded], horizon, self._sign)
            result[row, place] = sign * float(reduced(curves[row, place][recorded]))
        penalty = scores.values[:, :, at] if reduction.goal is None else never_reached(horizon)
        return np.where(origin[:, :, -1] == PENALTY, penalty, result)

    def columns(self, at: int) -> list[int]:
        """Return positions of the steps up to `at` that count.

        They are those that the manifest says runs are reduced over (none = all), and `at`.
        """
        return [
            place
            for place in range(at + 1)
            if place == at or not self._counting or int(self.steps[place]) in self._counting
        ]

    def lookup(
        self, config_ids: npt.ArrayLike, seeds: npt.ArrayLike, steps: npt.ArrayLike
    ) -> Array:
        """Look values up at triples of equal (or broadcastable) shape.

        NaN where nothing was recorded.

        Raises:
            InputError: an id, seed or step is not in the data set.
        """
        places = (
            _positions(self.config_ids, config_ids, "config_id"),
            _positions(self.seeds, seeds, "seed"),
            _positions(self.steps, steps, "step"),
        )
        return np.asarray(self.values[places])

    def seed_positions(self, role: str) -> Integers:
        """Return positions of the seeds of a role: `tuning`, `test` or `all`."""
        chosen = [index for index, own_role in enumerate(self.roles) if role in ("all", own_role)]
        if not chosen:
            raise InputError(
                f"no seeds of role {role!r}; this data set has {sorted(set(self.roles))}",
                key="seeds",
            )
        return np.array(chosen, dtype=np.int64)

    def step_position(self, step: int | None) -> int:
        """Return the position of a step, None = the last one."""
        return len(self.steps) - 1 if step is None else int(_positions(self.steps, step, "step"))

    def arranged(
        self,
        evals: Columns,
        rows: slice,
        axis: Integers,
        column: str = "value",
        *,
        alike: bool = True,
    ) -> Array:
        """Arrange a column of evaluations as (configurations, seeds, steps).

        NaN where there is none. Evaluations of other runs and steps are left out. Two runs of one
        configuration and seed have to be `alike`, else the later one counts.

        Raises:
            InputError: two runs of one configuration and seed have different values at one step.
        """
        shape = (rows.stop - rows.start, len(self.seeds), len(axis))
        values = np.full(shape, np.nan, dtype=self._precision)
        steps, on_axis = _find(axis, np.asarray(evals["step"], dtype=np.int64))
        # The rows of a run stand together, so that its place is found once.
        run_ids = np.asarray(evals["run_id"], dtype=np.int64)
        begins = np.flatnonzero(np.diff(run_ids, prepend=run_ids[:1] - 1))
        runs, inside = _find(self._run_ids, run_ids[begins])
        first = self._cells[runs] - rows.start * len(self.seeds)
        inside &= (first >= 0) & (first < shape[0] * shape[1])
        lengths = np.diff(begins, append=len(run_ids))
        placed = on_axis & np.repeat(inside, lengths)
        targets = (np.repeat(first * len(axis), lengths) + steps)[placed]
        measured = np.ma.filled(np.ma.asarray(evals[column], dtype=self._precision), np.nan)[placed]
        flat = values.reshape(-1)
        flat[targets] = measured
        # The later of two runs in one cell was written. An optimizer's runs may hold a
        # configuration twice, with the same values; NaN is unlike itself, and no second result.
        unlike = np.flatnonzero((flat[targets] != measured) & ~np.isnan(measured))
        if alike and len(unlike):
            row, seed, step = np.unravel_index(targets[unlike[0]], shape)
            raise InputError(
                f"configuration {self.config_ids[rows.start + row]} was trained twice from the "
                f"start with seed {self.seeds[seed]}, with two results at step {axis[step]}"
            )
        return values

    def runs_of(self, rows: slice) -> Integers:
        """List the runs of a range of configurations, ascending."""
        first = rows.start * len(self.seeds)
        inside = (self._cells >= first) & (self._cells < rows.stop * len(self.seeds))
        return np.asarray(self._run_ids[inside])

    def _filled(self, values: Array, missing: npt.NDArray[np.bool_], rows: slice) -> Scores:
        """Give failed runs the penalty where they have no value.

        With it goes which values were not recorded.
        """
        ended = self._ended[rows][:, :, None]
        failed = missing & (ended == PENALTY)
        if failed.any():
            values[failed] = self._penalty
        return Scores(values, np.where(missing & ~np.isnan(values), ended, np.int8(0)))

    @cached_property
    def _penalty(self) -> float:
        return self._queries.penalty()


def _positions(axis: Integers, wanted: npt.ArrayLike, name: str) -> Integers:
    values = np.asarray(wanted)
    places, is_there = _find(axis, values)
    if not is_there.all():
        first = np.atleast_1d(values)[~np.atleast_1d(is_there)][0]
        nearest = int(axis[np.abs(axis - first).argmin()])
        raise InputError(
            f"{first} is not in this data set ({axis[0]}..{axis[-1]}); the nearest is {nearest}",
            key=name,
        )
    return places


def _find(axis: Integers, wanted: npt.NDArray[np.int64]) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Find places of values on an ascending axis.

    Also returns which of them are there.
    """
    if not len(axis):
        return np.zeros(wanted.shape, dtype=np.int64), np.zeros(wanted.shape, dtype=bool)
    places = np.minimum(np.searchsorted(axis, wanted), len(axis) - 1)
    return np.asarray(places, dtype=np.int64), np.asarray(axis[places] == wanted)


def carry_forward(curves: Array) -> Array:
    """Give each gap (NaN) along the last axis the value before it.

    Gaps at the beginning stay.
    """
    places = np.where(np.isnan(curves), -1, np.arange(curves.shape[-1]))
    last = np.maximum.accumulate(places, axis=-1)
    filled = np.take_along_axis(curves, np.maximum(last, 0), axis=-1)
    return np.where(last >= 0, filled, np.float32(np.nan))
