"""Rules about the numbers.

They concern the order of steps, bounds, failures, copied seeds and shifted rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autorl.landscapes.bounds import outside_bounds
from autorl.statistics import ranks

if TYPE_CHECKING:
    from autorl.landscapes.dataset import Dataset

_COPIED = 0.5  # share of identical curves at which one seed is a copy of another
_REUSED = 0.2  # share of equal evaluations at which two seeds seem to share evaluation episodes ...
_REUSED_FACTOR = 4.0  # ... if it is this many times the median over pairs of seeds
_SIGMAS = 4.0
_ALMOST_ONE = 0.9999
_CONFIGURATIONS = 8  # fewer say nothing about ranks
_ENOUGH = 20  # evaluations needed to say what share is equal
_DROP = 0.4  # fall in rank correlation between neighbouring steps that learning does not explain
_BLOCK = 2048  # groups of seeds that are counted at once
_TELLING = 3  # distinct values that make a curve worth comparing (a curve of zeros is no evidence)


def steps_increase(landscape: Dataset) -> Iterator[str]:
    """A run's evaluations are stored at rising steps after its start.

    No step is there twice. A published counter reset.
    """
    rows = landscape.own_query(
        "SELECT run_id, step, start_step FROM evals JOIN runs USING (run_id)"
    ).fetchnumpy()
    early = int(np.count_nonzero(rows["step"] <= rows["start_step"]))
    if early:
        yield f"{early} evaluations lie at or before the start of their run"
    order = landscape.own_query("SELECT run_id, step FROM evals").fetchnumpy()
    same_run = order["run_id"][1:] == order["run_id"][:-1]
    back = np.flatnonzero(same_run & (order["step"][1:] <= order["step"][:-1]))
    if len(back):
        run = order["run_id"][back[0]]
        yield f"{len(back)} evaluations do not come after the one before, e.g. in run {run}"
    unknown = sorted(set(np.unique(order["step"]).tolist()) - set(landscape.manifest.steps))
    if unknown:
        yield f"evaluations at steps the manifest does not list: {unknown[:5]}"


def bounded_returns(landscape: Dataset) -> Iterator[str]:
    """Values lie in the range of the environment.

    Published traces held another environment's values.
    """
    yield from outside_bounds(landscape, landscape.manifest.return_bounds)


def failures_marked(landscape: Dataset) -> Iterator[str]:
    """A missing value belongs to a run marked as failed.

    So no average drops it unseen; a published notebook did.
    """
    count, run = landscape.own_query(
        "SELECT count(*), min(run_id) FROM measured JOIN runs USING (run_id) WHERE value IS NULL "
        "AND status IN ('done', 'stopped')"
    ).fetchall()[0]
    if count:
        yield f"{count} values are missing in runs that are not marked as failed, e.g. run {run}"


def independent_seeds(landscape: Dataset) -> Iterator[str]:
    """No seed is a copy of another.

    In a published set seed 0 equalled seed 3 in 501 of 573 groups.
    """
    for first, second, identical, telling in _identical(landscape):
        if identical > _COPIED * telling:
            yield f"seed {second} repeats seed {first} in {identical} of {telling} configurations"


def distinct_curves(landscape: Dataset) -> Iterator[str]:
    """Seeds of a configuration have their own curves and evaluation episodes."""
    pairs = list(_identical(landscape))
    for first, second, identical, telling in pairs:
        if 0 < identical <= _COPIED * telling:
            yield (
                f"seeds {first} and {second} have the same curve in {identical} of {telling} "
                "configurations"
            )
    grid = landscape.grid
    equal = _equal_shares(grid.values)
    typical = float(np.median([share for _, _, share in equal])) if equal else 0.0
    copied = {
        (first, second)
        for first, second, identical, telling in pairs
        if identical > _COPIED * telling
    }
    for i, j, share in equal:
        names = (int(grid.seeds[i]), int(grid.seeds[j]))
        if share > max(_REUSED, _REUSED_FACTOR * typical) and names not in copied:
            yield (
                f"seeds {names[0]} and {names[1]} share {share:.0%} of their evaluations; "
                f"other pairs {typical:.0%}"
            )


def adjacent_checkpoints_agree(landscape: Dataset) -> Iterator[str]:
    """Ranks of configurations change gradually from step to step.

    Published last rows belonged to other runs.
    """
    grid = landscape.grid
    complete = ~np.isnan(grid.values).any(axis=(1, 2))
    means = grid.values[complete].astype(np.float64).mean(axis=1)
    if len(means) < _CONFIGURATIONS:
        return
    # Of the difference of two correlations after Fisher's transformation.
    allowed = _SIGMAS * np.sqrt(2 / (len(means) - 3))
    best = -1.0
    for position in range(1, len(grid.steps)):
        agreement = _spearman(means[:, position - 1], means[:, position])
        if (
            agreement < best - _DROP
            and np.arctanh(min(best, _ALMOST_ONE)) - np.arctanh(agreement) > allowed
        ):
            yield (
                f"configurations at step {grid.steps[position]} rank unlike those at step "
                f"{grid.steps[position - 1]} (correlation {agreement:.2f}, before {best:.2f}): "
                "rows of other runs?"
            )
            return
        best = max(best, agreement)


def _identical(landscape: Dataset) -> Iterator[tuple[int, int, int, int]]:
    """Yield the pairs of seeds with identical curves.

    Each is (seed, seed, configurations with identical curves, configurations with curves worth
    comparing). Pairs without an identical curve are left out: there is no need to compare every
    seed with every other.
    """
    grid = landscape.grid
    ordered = np.sort(grid.values, axis=2)
    distinct = 1 + np.count_nonzero(np.diff(ordered, axis=2) > 0, axis=2)
    telling = (distinct >= _TELLING) & ~np.isnan(grid.values).any(axis=2)
    group, seed = _groups_of_equal_curves(grid.values, telling)
    together = pairs_together(group, seed, len(grid.seeds))
    for i, j in np.argwhere(np.triu(together, 1)).tolist():
        yield (
            int(grid.seeds[i]),
            int(grid.seeds[j]),
            int(together[i, j]),
            int((telling[:, i] & telling[:, j]).sum()),
        )


def _groups_of_equal_curves(
    values: npt.NDArray[np.float32], telling: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Group the equal curves of (configurations, seeds, steps).

    Returned are the number of the group and the place of the seed, for every curve.

    Curves that are not `telling` (configurations, seeds) have a group each. Seeds of a
    configuration are ordered by a hash of their curve, and neighbours compared exactly: a
    dictionary of a million curves grew faster than the data.
    """
    curves = values + values.dtype.type(0)  # 0 and -0 are equal, their bits are not
    bits = curves.view(f"u{curves.itemsize}")
    factors = np.random.default_rng(0).integers(2**64, size=values.shape[2], dtype=np.uint64)
    digests = (bits * factors).sum(axis=2)
    seed = np.argsort(digests, axis=1, kind="stable")
    ordered = np.take_along_axis(curves, seed[:, :, np.newaxis], axis=1)
    compared = np.take_along_axis(telling, seed, axis=1)
    begins = np.ones(telling.shape, dtype=np.int64)
    differ = (ordered[:, 1:] != ordered[:, :-1]).any(axis=2)
    begins[:, 1:] = differ | ~compared[:, 1:] | ~compared[:, :-1]
    return np.cumsum(begins.ravel()) - 1, seed.ravel()


def pairs_together(
    group: npt.NDArray[np.int64], seed: npt.NDArray[np.int64], seeds: int
) -> npt.NDArray[np.int64]:
    """Count in how many groups each pair of seeds is together.

    From (members,) to (seeds, seeds). A product of matrices and no loop over pairs: where hundreds
    of seeds are copies, a loop never ended.

    Args:
        group: of each member, ascending; no seed is twice in one.
        seed: of each member.
        seeds: how many there are.
    """
    several = np.bincount(group, minlength=1)[group] > 1
    _, row = np.unique(group[several], return_inverse=True)
    member = seed[several]
    together = np.zeros((seeds, seeds))
    for begin in range(0, int(row.max(initial=-1)) + 1, _BLOCK):
        first, last = np.searchsorted(row, (begin, begin + _BLOCK))
        indicator = np.zeros((_BLOCK, seeds))
        indicator[row[first:last] - begin, member[first:last]] = 1.0
        together += indicator.T @ indicator
    return together.astype(np.int64)


def _equal_shares(values: npt.NDArray[np.float32]) -> list[tuple[int, int, float]]:
    """Compute the share of equal evaluations per pair of seeds.

    Returned is (i, j, share). Values that occur in over 1 % of all cells are left out.
    """
    present = ~np.isnan(values)
    distinct, counts = np.unique(values[present], return_counts=True)
    common = distinct[counts > max(2, 0.01 * values.size)]
    seeds = values.shape[1]
    cells = np.moveaxis(values, 1, 2).reshape(-1, seeds)
    usable = np.moveaxis(present & ~np.isin(values, common), 1, 2).reshape(-1, seeds)
    comparable = (usable.T.astype(np.float64) @ usable.astype(np.float64)).astype(np.int64)
    # Sorted within a cell, not all together: that grew faster than the data set (exponent 1.3
    # at 1e7 evaluations).
    ordered = np.where(usable, cells, np.nan)
    seed = np.argsort(ordered, axis=1, kind="stable")
    ordered = np.take_along_axis(ordered, seed, axis=1)
    # Of groups of equal evaluations: NaN equals nothing.
    begins = np.ones(ordered.shape, dtype=np.int64)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = np.cumsum(begins.ravel()) - 1
    shares = pairs_together(group, seed.ravel(), seeds) / np.maximum(comparable, 1)
    return [
        (i, j, float(shares[i, j]))
        for i, j in np.argwhere(np.triu(comparable >= _ENOUGH, 1)).tolist()
    ]


def _spearman(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    """Compute the rank correlation, 0 if one side is constant."""
    a = ranks(first)
    b = ranks(second)
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
