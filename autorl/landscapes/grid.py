"""A landscape's objective as a dense array: [configuration, seed, step].

It is for look-ups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.statistics.reductions import Reduction
from autorl.types import InputError

Integers: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.floating[Any]]
PENALTY = 1
CARRIED = 2


@dataclass(frozen=True, eq=False)
class Grid:
    """Scores of runs trained from the start, one axis per factor.

    Attributes:
        values: float32, of a study float64, (configurations, seeds, steps), in the metric's own
            direction, floor and penalty applied. NaN: this configuration was not trained with this
            seed, or not evaluated at this step.
        config_ids, seeds, steps: the axes, ascending.
        roles: seed role of each seed.
        filled: (configurations, seeds, steps): 0 where a value was recorded, `PENALTY` where a run
            had failed, `CARRIED` where it had stopped itself and keeps its last value. None where
            all values were recorded.
    """

    values: Scores
    config_ids: Integers
    seeds: Integers
    roles: tuple[str, ...]
    steps: Integers
    filled: npt.NDArray[np.int8] | None = None

    def reduced(
        self, reduction: Reduction, at: int, steps: Collection[int] = (), sign: float = 1.0
    ) -> npt.NDArray[np.float64]:
        """Reduce each run's curve up to position `at` to one number.

        Shape (configurations, seeds), NaN where a curve lacks a value.

        A run that had failed by then has the penalty, one that had stopped itself the reduction of
        what it recorded.

        Args:
            reduction: of larger-is-better values.
            at: position of the last step that counts.
            steps: the steps before it that count; none given = all of them.
            sign: -1 where smaller values are better.
        """
        # The usual case needs no copy of the curves.
        last = self.values[:, :, at].astype(np.float64)
        if reduction.window is None and not reduction.chooses_step and reduction.name == "last":
            return last
        columns = self.columns(at, steps)
        curves = sign * self.values[:, :, columns].astype(np.float64)
        result = np.asarray(sign * reduction.stacked(curves))
        if self.filled is None:
            return result
        origin = self.filled[:, :, columns]
        # A stopped run is reduced over what it recorded: the values it was given after that would
        # weigh its last one more.
        for row, place in zip(*np.nonzero(origin[:, :, -1] == CARRIED), strict=True):
            recorded = curves[row, place][origin[row, place] != CARRIED]
            result[row, place] = sign * float(reduction.stacked(recorded))
        return np.where(origin[:, :, -1] == PENALTY, last, result)

    def columns(self, at: int, steps: Collection[int] = ()) -> list[int]:
        """Return positions of the steps up to `at` that count.

        They are those among `steps` (none given = all), and `at`.
        """
        return [
            place
            for place in range(at + 1)
            if place == at or not steps or int(self.steps[place]) in steps
        ]

    def lookup(
        self, config_ids: npt.ArrayLike, seeds: npt.ArrayLike, steps: npt.ArrayLike
    ) -> Scores:
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

    def value(self, config_id: int, seed: int, step: int) -> float:
        """Look one value up, as `lookup` but without arrays.

        It is for callers that need a single run at a time.

        Raises:
            InputError: an id, seed or step is not in the data set.
        """
        # A dictionary answers for one value faster than `searchsorted` in an array of one.
        configs, seeds, steps = self._places
        try:
            return float(self.values[configs[config_id], seeds[seed], steps[step]])
        except KeyError:
            # Raises the error that names what is wrong.
            return float(self.lookup(config_id, seed, step))

    @cached_property
    def _places(self) -> tuple[dict[int, int], ...]:
        axes = (self.config_ids, self.seeds, self.steps)
        return tuple({int(item): place for place, item in enumerate(axis)} for axis in axes)

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


def assemble(
    runs: Sequence[tuple[int, int, int, str, str]],
    evals: tuple[Integers, Integers, Scores],
    penalty: float,
    steps: Sequence[int],
    config_ids: Sequence[int],
) -> Grid:
    """Make the grid of runs and evaluations.

    Runs are (run_id, config_id, seed, seed_role, status), evaluations (run_ids, steps, values).

    A failed run scores `penalty` wherever it has no value. A stopped run keeps its last value. A
    run that is done and lacks a value has NaN there.

    Raises:
        InputError: two runs of one configuration and seed with different values at one step, or a
            seed with two roles.
    """
    roles: dict[int, str] = {}
    for _, _, seed, role, _ in runs:
        if roles.setdefault(seed, role) != role:
            raise InputError(f"seed {seed} has two roles, {roles[seed]} and {role}", key="seeds")
    # 1. the axes, ascending
    seeds, ids, axis = (
        np.array(sorted(set(numbers)), dtype=np.int64) for numbers in (roles, config_ids, steps)
    )
    values = np.full((len(ids), len(seeds), len(axis)), np.nan, dtype=evals[2].dtype)
    # 2. recorded values, by position in the flattened array
    flat = values.reshape(-1, len(axis))  # a view: (configurations * seeds, steps)
    numbers = np.array([run[0] for run in runs], dtype=np.int64)
    cells = np.searchsorted(ids, [run[1] for run in runs]) * len(seeds) + np.searchsorted(
        seeds, [run[2] for run in runs]
    )
    order = np.argsort(numbers)  # run ids follow neither configurations nor seeds
    run_ids, at, measured = evals
    run_places, run_known = _find(numbers[order], run_ids)
    step_places, step_known = _find(axis, at)
    placed = run_known & step_known
    targets = cells[order[run_places[placed]]] * len(axis) + step_places[placed]
    flat.reshape(-1)[targets] = measured[placed]
    # Of two runs in one cell the later one was written. An optimizer's runs may hold a
    # configuration twice, with the same values; NaN is unlike itself, and no second result.
    unlike = np.flatnonzero(
        (flat.reshape(-1)[targets] != measured[placed]) & ~np.isnan(measured[placed])
    )
    if len(unlike):
        row, place = divmod(int(targets[unlike[0]]), len(axis))
        config_id = ids[row // len(seeds)]
        seed = seeds[row % len(seeds)]
        raise InputError(
            f"configuration {config_id} was trained twice from the start with seed {seed}, with "
            "two results at step "
            f"{axis[place]}"
        )
    # 3. what runs that ended before their time lack
    filled = None if {run[4] for run in runs} <= {"done"} else np.zeros(values.shape, dtype=np.int8)
    for cell, run in zip(cells, runs, strict=True):
        if run[4] == "done":
            continue
        assert filled is not None
        missing = np.isnan(flat[cell])
        if run[4] == "stopped":
            flat[cell] = carry_forward(flat[cell])
        else:
            flat[cell] = np.where(missing, values.dtype.type(penalty), flat[cell])
        code = CARRIED if run[4] == "stopped" else PENALTY
        filled.reshape(-1, len(axis))[cell] = np.where(missing & ~np.isnan(flat[cell]), code, 0)
    return Grid(values, ids, seeds, tuple(roles[int(seed)] for seed in seeds), axis, filled)


def carry_forward(curves: Scores) -> Scores:
    """Give each gap (NaN) along the last axis the value before it.

    Gaps at the beginning stay.
    """
    places = np.where(np.isnan(curves), -1, np.arange(curves.shape[-1]))
    last = np.maximum.accumulate(places, axis=-1)
    filled = np.take_along_axis(curves, np.maximum(last, 0), axis=-1)
    return np.where(last >= 0, filled, np.float32(np.nan))
