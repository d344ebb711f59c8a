"""Representative subsets of environments.

The scores of few tasks predict the mean rank over all of them.

The method of ARLBench [1], which follows Atari-5 [2]: rank-normalise each environment, target =
mean rank over all environments, and for every subset of k environments predict the target by linear
regression with non-negative weights and no intercept; the subset with the smallest cross-validated
error wins. That winner is fragile: many subsets are as good to within noise. The selection
therefore holds all near-ties, and the cheapest of them.

References:
    [1] Becktepe et al., "ARLBench: flexible and efficient benchmarking for hyperparameter
        optimization in reinforcement learning", 2024, arXiv 2409.18827.
    [2] Aitchison, Sweetser and Hutter, "Atari-5: distilling the Arcade Learning Environment down to
        five games", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.analysis.tables import Integers
from autorl.landscapes.regression import Array
from autorl.statistics.comparison import spearman

if TYPE_CHECKING:
    import pandas as pd

FOLDS = 5  # those of ARLBench's selection script, as the seed of their shuffle
SHUFFLE_SEED = 42
TOLERANCE = 0.01  # four subsets of ARLBench's DQN landscapes lie so near the best of 715
KEEP = 1000
_MOST = 500_000  # candidate subsets: a few minutes
_PLACES = 3
_LARGEST = 6


def select_subset(
    scores: npt.ArrayLike,
    environments: Sequence[str],
    k: int,
    *,
    tolerance: float = TOLERANCE,
    costs: Sequence[float] | None = None,
    keep: int = KEEP,
) -> pd.DataFrame:
    """Find the best subsets of k environments, by exhaustive search.

    Columns: place, environments; error, the mean over the folds of 1 - Spearman between prediction
    and target; correlation, Spearman between the regression on all configurations and the target;
    unweighted, the same for the plain mean of the subset's normalised scores; weights of that
    regression, non-negative, not normalised; cost, the sum of the costs of its environments, None
    without any.

    Args:
        scores: (n configurations, m environments), mean over seeds, larger is better; NaN =
            crashed, the worst rank.
        environments: names of the columns.
        k: number of environments in a subset.
        tolerance: a subset is a near-tie if its error is at most this much above the smallest.
        costs: of one run in each environment.
        keep: most near-ties that are reported.

    Raises:
        InputError: k not in 1..m-1, fewer configurations than two per fold, too many subsets.
    """
    import pandas as pd

    table = np.asarray(scores, dtype=np.float64)
    _check(len(table), table.shape[1], k)
    columns = _ranked(table)
    # The subset's own environments are part of what it predicts, as in ARLBench.
    target = columns.mean(axis=1)
    subsets = np.array(list(combinations(range(columns.shape[1]), k)), dtype=np.int64)
    errors = _cross_validated(columns, target, subsets)
    # Stable: of equal errors the subset that comes first in the order of the columns.
    order = np.argsort(errors, kind="stable")
    tied = order[errors[order] <= errors[order[0]] + tolerance][:keep]
    rows = []
    for place, row in enumerate(tied, 1):
        subset = subsets[row]
        # The reported weights come from all configurations, not from the folds.
        weights = _weights(columns, target, subset[None, :])[0]
        rows.append(
            {
                "place": place,
                "environments": tuple(environments[column] for column in subset),
                "error": float(errors[row]),
                "correlation": float(spearman(columns @ weights, target)),
                "unweighted": float(spearman(columns[:, subset].mean(axis=1), target)),
                "weights": tuple(float(weights[column]) for column in subset),
                "cost": None if costs is None else float(sum(costs[column] for column in subset)),
            }
        )
    return pd.DataFrame(rows)


def size_table(scores: npt.ArrayLike, environments: Sequence[str]) -> pd.DataFrame:
    """Tabulate the best three subsets of each size up to 6.

    Columns: k, place, environments, error, correlation, unweighted. The table shows what a larger
    subset buys. Sizes that are not smaller than the number of environments are left out.

    Raises:
        InputError: as `select_subset`.
    """
    import pandas as pd

    # No tolerance: the places of a size are counted, however far apart they lie.
    parts = [
        select_subset(scores, environments, k, tolerance=np.inf, keep=_PLACES).assign(k=k)
        for k in range(1, min(_LARGEST + 1, len(environments)))
    ]
    columns = ["k", "place", "environments", "error", "correlation", "unweighted"]
    return pd.concat(parts, ignore_index=True)[columns]


def k_fold(n: int) -> list[tuple[Integers, Integers]]:
    """Split rows into (training rows, test rows) of each fold.

    Equal to scikit-learn's KFold(FOLDS, shuffle=True, random_state=SHUFFLE_SEED).
    """
    # The generator scikit-learn shuffles with.
    shuffled = np.random.RandomState(SHUFFLE_SEED).permutation(n)
    rows = np.arange(n)
    tests = [np.sort(part) for part in np.array_split(shuffled, FOLDS)]
    return [(np.setdiff1d(rows, test, assume_unique=True), test) for test in tests]


def _check(n: int, m: int, k: int) -> None:
    if not 1 <= k < m:
        raise InputError(f"a subset of {m} environments has 1 to {m - 1} of them, got {k}", key="k")
    # Every fold needs two configurations to test: one has no rank correlation.
    if n < 2 * FOLDS:
        raise InputError(
            f"subset selection needs at least {2 * FOLDS} configurations in common, got {n}"
        )
    # The search is exhaustive: 20 of 40 environments would be 1.4e11 subsets.
    if math.comb(m, k) > _MOST:
        raise InputError(
            f"{math.comb(m, k):,} subsets of {k} out of {m} are too many to compare; choose k",
            key="k",
        )


def _ranked(table: Array) -> Array:
    """Return the percentile ranks of columns, 0 where there is NaN."""
    from scipy.stats import rankdata

    ranks = rankdata(table, axis=0, nan_policy="omit") / (~np.isnan(table)).sum(axis=0)
    # Crashed configurations have 0, below the lowest rank, which is 1 / n.
    return np.asarray(np.nan_to_num(ranks))


def _cross_validated(columns: Array, target: Array, subsets: Integers) -> Array:
    """Average the error of each subset over the folds."""
    total = np.zeros(len(subsets))
    for train, test in k_fold(len(columns)):
        weights = _weights(columns[train], target[train], subsets)
        # BLAS may round equal predictions apart; ties must stay ties
        predicted = np.round(weights @ columns[test].T, 12)
        total += 1.0 - spearman(predicted, np.broadcast_to(target[test], predicted.shape))
    return total / FOLDS


def _weights(columns: Array, target: Array, subsets: Integers) -> Array:
    """Fit non-negative least squares without intercept for each subset.

    From subsets (c, k) to weights (c, m), zero outside the subset.

    All subsets share one QR factorisation, which leaves the least-squares problem what it was and
    makes it m rows long.
    """
    from scipy.optimize import nnls

    # With A = Q R, |A x - y|^2 is |R x - Q'y|^2 and what no x can change.
    basis, triangle = np.linalg.qr(columns)
    right = basis.T @ target
    weights = np.zeros((len(subsets), columns.shape[1]))
    for row, subset in enumerate(subsets):
        weights[row, subset] = nnls(triangle[:, subset], right)[0]
    return weights
