"""The arrays that the analyses work on, cut out of landscapes.

They are final scores, learning curves and scores by task.

Scores are larger-is-better here: those of a landscape that is minimised change their sign. A failed
run scores the landscape's penalty. Configurations without a score for every seed asked for are left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import Array
from autorl.space import unknown_key
from autorl.statistics import min_max

if TYPE_CHECKING:
    import pandas as pd

Integers: TypeAlias = npt.NDArray[np.int64]
_BEST = 5  # configurations whose curves are shown
_RESAMPLES = 1000
_QUANTILES = {"low": 0.1, "median": 0.5, "high": 0.9}


@dataclass(frozen=True, eq=False)
class Curves:
    """Learning curves of the configurations of one landscape.

    Attributes:
        values: (n configurations, s seeds, e steps), larger is better, no NaN.
        config_ids, steps: the axes beside seeds.
    """

    values: Array
    config_ids: Integers
    steps: Integers

    @property
    def final(self) -> Array:
        """Scores at the last step, (n configurations, s seeds)."""
        return np.asarray(self.values[:, :, -1])

    @property
    def means(self) -> Array:
        """Mean over seeds at the last step, (n configurations,)."""
        return np.asarray(self.final.mean(axis=1))


@dataclass(frozen=True, eq=False)
class TaskTable:
    """Last scores of the same configurations in several environments.

    Attributes:
        runs: of each environment (n configurations, s seeds), larger is better.
        config_ids: the rows.
        environments: the columns.
    """

    runs: list[Array]
    config_ids: Integers
    environments: list[str]

    @property
    def values(self) -> Array:
        """Means over seeds, (n configurations, m environments)."""
        return np.stack([runs.mean(axis=1) for runs in self.runs], axis=1)


def learning_curves(data: Dataset, seeds: SeedSet = "all") -> Curves:
    """Return the curves of the complete configurations.

    They have a score for every seed at every step that any run from scratch reached.

    Raises:
        InputError: no seeds of that role, or no complete configuration.
    """
    values = data.grid.whole_curves(seeds).astype(np.float64)
    # Later phases have steps of their own, which no run from scratch has a score at.
    steps = np.flatnonzero(~np.isnan(values).all(axis=(0, 1)))
    return _complete(data, seeds, steps, values[:, :, steps])


def final_scores(data: Dataset, seeds: SeedSet = "all", step: int | None = None) -> Curves:
    """Return the scores at one step (None = the last).

    They are curves of length 1. Other steps may be missing.

    Raises:
        InputError: no seeds of that role, no such step, or no complete configuration.
    """
    place = data.grid.step_position(step)
    scores = data.grid.at(place).values[:, data.grid.seed_positions(seeds)]
    values = scores[:, :, None].astype(np.float64)  # means over seeds are not in single precision
    return _complete(data, seeds, np.array([place]), values)


def common_seeds(landscapes: Sequence[Dataset], step: int | None = None) -> SeedSet:
    """Choose `all` seeds, or `tuning` if few configurations have test seeds.

    Few are fewer than half of the configurations with all tuning seeds, as in a study that trains
    only its best configurations on test seeds.
    """

    def complete(data: Dataset, role: str) -> int:
        scores = data.grid.at(data.grid.step_position(step)).values
        values = scores[:, data.grid.seed_positions(role)]
        return int((~np.isnan(values).any(axis=1)).sum())

    # A study tests its best configurations alone: `all` would leave out nearly all the others.
    few = (
        {"tuning", "test"} <= set(data.grid.roles)
        and 2 * complete(data, "all") < complete(data, "tuning")
        for data in landscapes
    )
    return "tuning" if any(few) else "all"


def task_table(
    landscapes: Sequence[Dataset],
    seeds: SeedSet = "all",
    first: int | None = None,
    clip: Mapping[str, float] | None = None,
) -> TaskTable:
    """Average the last scores of configurations that all landscapes share.

    The mean is over seeds.

    Configurations are paired by `config_id`: landscapes built from one sampler and seed give one id
    to one point of the unit cube, also where the ranges of a hyperparameter differ between domains.
    Over one space, where most ids stand for other configurations, equal configurations are paired,
    and the ids are those of the first landscape.

    Args:
        landscapes: one per environment, over the same hyperparameters.
        seeds: the seed role that is averaged over.
        first: keep the configurations with an id below this one only.
        clip: {environment: value}; a run's score below it counts as it, before the mean over seeds.
            Beside the floor of the landscape's own objective.

    Raises:
        InputError: fewer than two landscapes, other hyperparameters in one of them, nothing in
            common, or an environment to clip that is not there.
    """
    if len(landscapes) < 2:
        raise InputError(
            f"comparing environments needs at least two landscapes, got {len(landscapes)}"
        )
    names = landscapes[0].space.names
    for data in landscapes[1:]:
        # Bounds may differ: ARLBench's spaces do between domains, over the same unit cube.
        if data.space.names != names:
            raise InputError(
                f"{data.manifest.id} has other hyperparameters than {landscapes[0].manifest.id}: "
                f"{sorted(set(data.space.names) ^ set(names))}"
            )
    environments = [data.manifest.environment for data in landscapes]
    limits = dict(clip or {})
    for name in limits:
        if name not in environments:
            raise InputError(unknown_key(name, environments), key="clip")
    parts = [final_scores(data, seeds) for data in landscapes]
    ids = _paired_ids(landscapes, parts)
    shared = reduce(np.intersect1d, ids)
    shared = shared[shared >= 0]
    shared = shared if first is None else shared[shared < first]
    if len(shared) < 2:
        raise InputError("the landscapes have fewer than two complete configurations in common")
    runs = []
    for data, part, paired in zip(landscapes, parts, ids, strict=True):
        order = np.argsort(paired)
        rows = order[np.searchsorted(paired, shared, sorter=order)]
        # Before the mean: one run at -1e22, as PPO has on Brax, would decide it.
        runs.append(_raised(part.final[rows], data, limits))
    # Several algorithms or copies on one environment: the id tells them apart.
    unique = len(set(environments)) == len(environments)
    labels = environments if unique else [data.manifest.id for data in landscapes]
    return TaskTable(runs, shared, labels)


def paired_tables(landscapes: Sequence[Dataset], roles: Sequence[SeedSet]) -> list[TaskTable]:
    """Tabulate configurations with all scores on the seeds of every role.

    Raises:
        InputError: as `task_table`.
    """
    tables = [task_table(landscapes, seeds) for seeds in roles]
    # A configuration may lack a score for some seed of one role: both tables need the same rows.
    ids = reduce(np.intersect1d, [table.config_ids for table in tables])
    paired = []
    for table in tables:
        rows = np.searchsorted(table.config_ids, ids)
        paired.append(TaskTable([runs[rows] for runs in table.runs], ids, table.environments))
    return paired


def phase_scores(
    data: Dataset, seeds: SeedSet = "all"
) -> tuple[Array, list[int], list[int], list[int]]:
    """Read the scores of a landscape at the end of each phase.

    All runs that start at one step are a phase. Kept are the configurations with a score for every
    seed in every phase.

    Returns:
        Scores (p phases, n configurations, s seeds), config_ids, and the first and the last step of
        each phase.

    Raises:
        InputError: fewer than two phases, or no such configuration.
    """
    chosen = data.grid.seeds[data.grid.seed_positions(seeds)]
    rows = data.queries.scores_at_phase_ends()
    rows = rows[rows["seed"].isin(chosen)]
    ends = rows.groupby("start_step")["step"].max()
    starts = ends.index.tolist()
    if len(starts) < 2:
        raise InputError(f"no phases: all runs start at step {starts}", file=str(data.path))
    # A cell is the mean, should a seed be there more than once.
    tables = [
        rows[rows["start_step"] == start]
        .pivot_table(index="config_id", columns="seed", values="value")
        .reindex(columns=chosen)
        .dropna()
        for start in starts
    ]
    shared = sorted(set.intersection(*(set(table.index) for table in tables)))
    if not shared:
        raise InputError(
            "no configuration has a score for every seed in every phase", file=str(data.path)
        )
    values = np.stack([table.loc[shared].to_numpy(np.float64) for table in tables])
    return data.manifest.objective.sign * values, shared, starts, ends.tolist()


def best_curves(curves: Curves, ranked: Sequence[int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the best configurations' curves, and quantiles of all curves.

    First: place, config_id, step, mean over the seeds, and low and high of its percentile interval
    (NaN with one seed). Second: step, and the 10 %, 50 % and 90 % quantiles (low, median, high) of
    the means of all configurations; `attrs` counts configurations and seeds.
    """
    import pandas as pd

    # The ranking asks for the seeds to choose on alone: some of it may have no whole curve to show.
    shown = [config_id for config_id in ranked if config_id in curves.config_ids][:_BEST]
    seeds = curves.values.shape[1]
    # Student's t covers more of a mean, but reaches beyond what a return can be
    # (`benchmarks/results/error_rates.md`).
    shares = resample_shares(seeds)[1:]
    rows = []
    for place, config_id in enumerate(shown, 1):
        values = curves.values[np.searchsorted(curves.config_ids, config_id)]
        span = np.quantile(shares @ values, (0.025, 0.975), axis=0)
        low, high = span if seeds > 1 else np.full_like(span, np.nan)
        for row in zip(curves.steps.tolist(), values.mean(axis=0), low, high, strict=True):
            rows.append((place, config_id, *row))
    means = curves.values.mean(axis=1)  # (configurations, steps)
    band = {name: np.quantile(means, share, axis=0) for name, share in _QUANTILES.items()}
    quantiles = pd.DataFrame({"step": curves.steps, **band})
    quantiles.attrs |= {"configurations": len(means), "seeds": seeds}
    columns = ["place", "config_id", "step", "mean", "low", "high"]
    return pd.DataFrame(rows, columns=columns), quantiles


def resample_shares(count: int) -> Array:
    """Give each of `count` things its share, then that of resamples."""
    equal = np.full(count, 1 / count)
    drawn = np.random.default_rng(0).multinomial(count, equal, _RESAMPLES) / count
    return np.vstack([equal, drawn])


def unit_scores(scores: npt.ArrayLike) -> Array:
    """Normalise scores by column: worst 0, best 1.

    Scores are (n, m tasks) or (n,), and the normalisation is min-max.

    Raises:
        InputError: all scores of a column are equal.
        ValueError: a score is not finite.
    """
    table = np.asarray(scores, dtype=np.float64)
    columns = table[:, None] if table.ndim == 1 else table
    flat = np.flatnonzero(np.ptp(columns, axis=0) == 0.0).tolist()
    if flat:
        where = f" in columns {flat}" if table.ndim > 1 else ""
        raise InputError(
            f"all configurations score the same{where}, so there is nothing to compare"
        )
    return np.asarray(min_max(columns).reshape(table.shape))


def _raised(scores: Array, data: Dataset, limits: Mapping[str, float]) -> Array:
    """Raise scores below the limit of their environment to it.

    The limit is one of values of the metric.
    """
    # A floor is given in the metric's own sign, scores here are larger-is-better.
    limit = limits.get(data.manifest.environment, -np.inf)
    if data.manifest.objective.direction == "minimize":
        return np.asarray(np.minimum(scores, -limit))
    return np.asarray(np.maximum(scores, limit))


def _paired_ids(landscapes: Sequence[Dataset], parts: Sequence[Curves]) -> list[Integers]:
    """Return ids of each part as the first landscape counts them.

    -1 where that has no such configuration. Imported values may differ by round-off: ids of which
    most stand for the same configurations stay as they are.

    Raises:
        InputError: over one space, a landscape shares few configurations with the first.
    """
    firsts: dict[str, tuple[str, dict[int, str]]] = {}
    paired: list[Integers] = []
    for data, part in zip(landscapes, parts, strict=True):
        hashes = dict(data.queries.config_hashes())
        # Compare one space only: over other spaces equal points have other values and hashes.
        name, first = firsts.setdefault(data.space.hash, (data.manifest.id, hashes))
        config_ids = part.config_ids.tolist()
        common = [config_id for config_id in config_ids if config_id in first]
        differing = sum(first[config_id] != hashes[config_id] for config_id in common)
        if differing <= len(common) / 2:
            paired.append(part.config_ids)
            continue
        # Imported landscapes may count their configurations from 1.
        of_first = {config_hash: config_id for config_id, config_hash in first.items()}
        ids = np.array([of_first.get(hashes[config_id], -1) for config_id in config_ids])
        if (ids >= 0).sum() <= len(common) / 2:
            raise InputError(
                f"config_ids of {data.manifest.id} stand for other configurations than those of "
                f"{name}, so their scores cannot be paired: build landscapes with one sampler and "
                "seed"
            )
        paired.append(ids)
    return paired


def _complete(data: Dataset, seeds: SeedSet, steps: Integers, values: Array) -> Curves:
    """Keep the configurations with all values (configurations, seeds of the role, steps)."""
    grid = data.grid
    complete = ~np.isnan(values).any(axis=(1, 2))
    if not len(steps) or not complete.any():
        where = f"at step {grid.steps[steps[0]]}" if len(steps) == 1 else "at every step"
        # Runs of a first phase end early: the message names the last step they have.
        last = data.queries.last_step_from_scratch()
        if len(steps) == 1 and last is not None and last < grid.steps[steps[0]]:
            where += f"; runs from scratch end at step {last}: ask for it, or compare phases"
        raise InputError(
            f"no configuration has a score for every seed ({seeds}) {where}", file=str(data.path)
        )
    scores = data.manifest.objective.sign * values[complete]
    return Curves(scores, grid.config_ids[complete], grid.steps[steps])
