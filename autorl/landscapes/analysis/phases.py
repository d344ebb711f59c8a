"""Phases of training compared, after AutoRL landscapes [1].

They tell whether the landscape changes while training goes on.

In a landscape with phases every configuration is trained from scratch in the first one, and from
the best agent of the phase before in each later one. If the best configuration differs from phase
to phase, a schedule can beat every fixed configuration.

References:
    [1] Mohan, Benjamins, Wienecke, Dockhorn and Lindauer, "AutoRL hyperparameter landscapes",
        AutoML 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.analysis.tables import Integers, unit_scores
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import Array
from autorl.statistics.correlation import spearman

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Phases:
    """Scores at the end of each phase.

    Attributes:
        scores: (p phases, n configurations, s seeds), larger is better, no NaN.
        starts, ends: first and last step of each phase, (p,).
    """

    scores: Array
    config_ids: Integers
    seeds: Integers
    starts: Integers
    ends: Integers


@dataclass(frozen=True, eq=False)
class PhaseComparison:
    """The likeness of phases.

    Attributes:
        best: row of the best configuration of each phase by its mean over seeds, (p,).
        correlation: Spearman of the configurations' means between every two phases, (p, p).
        regret: loss of the row phase's best configuration in the column phase, (p, p); 0 for the
            best there, 1 for the worst.
        schedule_gain: gain of choosing anew in each phase over the best fixed configuration: the
            least mean regret over phases of any configuration.
    """

    best: Integers
    correlation: Array
    regret: Array
    schedule_gain: float


def compare_phases(scores: npt.ArrayLike) -> PhaseComparison:
    """Compare phases by scores (p phases, n configurations, s seeds).

    Raises:
        InputError: fewer than two phases, or one in which all configurations score the same.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 3 or len(table) < 2:
        raise InputError(
            "expected scores (phases, configurations, seeds) of at least two phases, got "
            f"{table.shape}"
        )
    means = table.mean(axis=2)
    # Normalised by phase: scores of an early one have another range.
    relative = unit_scores(means.T).T
    best = means.argmax(axis=1).astype(np.int64)
    correlation = spearman(means[:, None, :], means[None, :, :])
    # Choosing anew has no regret in any phase: what the best fixed configuration has is its gain.
    schedule_gain = float((1.0 - relative).mean(axis=0).min())
    return PhaseComparison(best, correlation, 1.0 - relative[:, best].T, schedule_gain)


def phase_scores(data: Dataset, seeds: SeedSet = "all") -> Phases:
    """Read the scores of a landscape at the end of each phase.

    All runs that start at one step are a phase.

    Kept are the configurations with a score for every seed in every phase.

    Raises:
        InputError: fewer than two phases, or no such configuration.
    """
    chosen = data.grid.seeds[data.grid.seed_positions(seeds)]
    rows = data.queries.scores_at_phase_ends()
    rows = rows[rows["seed"].isin(chosen)]
    starts = np.sort(rows["start_step"].unique())
    if len(starts) < 2:
        raise InputError(
            f"no phases: all runs start at step {starts.tolist()}", file=str(data.path)
        )
    tables = [_phase(rows[rows["start_step"] == start], chosen) for start in starts]
    shared = sorted(set.intersection(*(set(table.index) for table in tables)))
    if not shared:
        raise InputError(
            "no configuration has a score for every seed in every phase", file=str(data.path)
        )
    scores = data.manifest.objective.sign * np.stack(
        [table.loc[shared].to_numpy(np.float64) for table in tables]
    )
    ends = np.array([rows.loc[rows["start_step"] == start, "step"].max() for start in starts])
    return Phases(scores, np.array(shared), chosen, starts.astype(np.int64), ends.astype(np.int64))


def _phase(rows: pd.DataFrame, seeds: Integers) -> pd.DataFrame:
    """Tabulate configurations x seeds of one phase, complete rows only.

    A cell is the mean, should a seed be there more than once.
    """
    table = rows.pivot_table(index="config_id", columns="seed", values="value", aggfunc="mean")
    return table.reindex(columns=seeds).dropna()
