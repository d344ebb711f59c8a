"""Fidelity of early training: how soon it tells the end.

Measured are the rank correlation between budgets, and what choosing early costs.

Spearman's correlation of the configurations' mean scores at two checkpoints, as DeepCAVE [1] shows
it. On ARLBench's landscapes it is about 0.5 at 10 % of training and 0.8 at half of it:
multi-fidelity search is risky early.

References:
    [1] Sass et al., "DeepCAVE: an interactive analysis tool for automated machine learning", 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autorl.landscapes.analysis.tables import learning_curves, unit_scores
from autorl.landscapes.dataset import Dataset
from autorl.landscapes.ranking import SeedSet
from autorl.landscapes.regression import Array
from autorl.statistics.correlation import spearman

if TYPE_CHECKING:
    import pandas as pd


def budget_correlation(values: npt.ArrayLike) -> Array:
    """Correlate the configurations' means between every two checkpoints.

    Spearman, from (n, s seeds, e steps) to (e, e).

    The last row is the correlation with the end of training. 0 with a checkpoint where all
    configurations are equal.
    """
    means = np.asarray(values, dtype=np.float64).mean(axis=1).T
    return spearman(means[:, None, :], means[None, :, :])


def correlation_intervals(
    values: npt.ArrayLike, resamples: int = 500, seed: int = 0
) -> tuple[Array, Array]:
    """Bootstrap intervals of `budget_correlation`'s last row.

    They are 95 % percentile intervals over configurations: (low, high).
    """
    means = np.asarray(values, dtype=np.float64).mean(axis=1)
    # Whole configurations are drawn, since the checkpoints of one depend on each other.
    rows = np.random.default_rng(seed).integers(len(means), size=(resamples, len(means)))
    # (resamples, steps, configurations)
    drawn = np.moveaxis(means[rows], 1, 2)
    low, high = np.quantile(spearman(drawn, drawn[:, -1:, :]), (0.025, 0.975), axis=0)
    return np.asarray(low), np.asarray(high)


def early_choice_regret(values: npt.ArrayLike) -> Array:
    """Measure what choosing the best at each checkpoint misses at the end.

    From (n, s, e) to (e,).

    In units of the range of final means, 0 = nothing missed. Between configurations that tie, the
    average.

    Raises:
        InputError: all configurations end with the same mean.
    """
    means = np.asarray(values, dtype=np.float64).mean(axis=1)
    final = unit_scores(means[:, -1])
    # (n, e); several leaders at a step where nobody has learned anything yet.
    leading = means == means.max(axis=0)
    return np.asarray(1.0 - (final[:, None] * leading).sum(axis=0) / leading.sum(axis=0))


def budget_table(data: Dataset, seeds: SeedSet = "all") -> pd.DataFrame:
    """Tabulate how each checkpoint tells the end, a row per checkpoint.

    Columns: step, fraction of the last step, rank correlation with it, low and high (those of
    `correlation_intervals`), and regret of choosing there.

    Raises:
        InputError: no complete configuration, or all of them end with the same mean.
    """
    import pandas as pd

    curves = learning_curves(data, seeds)
    low, high = correlation_intervals(curves.values)
    return pd.DataFrame(
        {
            "step": curves.steps,
            "fraction": curves.steps / curves.steps[-1],
            "correlation": budget_correlation(curves.values)[-1],
            "low": low,
            "high": high,
            "regret": early_choice_regret(curves.values),
        }
    )
