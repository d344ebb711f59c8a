"""Transfer between environments.

Does one configuration serve many of them? Measured are the regret of transfer, and of the best
single configuration.

Scores are min-max normalised by environment, so regret is in units of each environment's range: 0 =
as good as its own best configuration, 1 = the worst of the landscape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.core.types import InputError
from autorl.landscapes.analysis.tables import unit_scores
from autorl.landscapes.regression import Array


@dataclass(frozen=True, eq=False)
class Transfer:
    """Best configurations of m environments, tried in each other.

    Attributes:
        best: row of the best configuration of each environment, (m,).
        regret: (m, m), from the row's environment to the column's.
        percentile: (m, m), share of configurations the transferred one beats there, ties counted
            half.
    """

    environments: tuple[str, ...]
    best: npt.NDArray[np.int64]
    regret: Array
    percentile: Array

    @property
    def mean_loss(self) -> float:
        """Mean regret over all ordered pairs of different environments."""
        # The diagonal, an environment's own best, is no transfer.
        return float(self.regret[~np.eye(len(self.regret), dtype=bool)].mean())


@dataclass(frozen=True, eq=False)
class BestSingle:
    """The configuration with the largest mean normalised score.

    Attributes:
        row: its row.
        losses: its regret in each environment, (m,).
    """

    row: int
    losses: Array

    @property
    def mean_loss(self) -> float:
        """Mean over environments of (best score there - its score).

        It is the generalisation gap.
        """
        return float(self.losses.mean())


def transfer_regret(
    scores: npt.ArrayLike, environments: Sequence[str], chosen_by: npt.ArrayLike | None = None
) -> Transfer:
    """Measure the regret of each environment's best configuration in the others.

    Args:
        scores: (n configurations, m environments), mean over seeds.
        environments: names of the columns.
        chosen_by: scores of the same shape that the best configurations are chosen by (tuning
            seeds, if `scores` are of test seeds); default: `scores`, which leaves a zero diagonal.
            Ties: the first row.

    Raises:
        InputError: shapes differ, fewer than two environments, or an environment in which nothing
            differs.
    """
    table, choice = _pair(scores, chosen_by)
    if table.shape[1] != len(environments) or len(environments) < 2:
        raise InputError(
            f"expected at least two environments, one per column; got {len(environments)}, "
            f"{table.shape}"
        )
    # Chosen on other seeds, a configuration is not the best by its luck on those that show it.
    best = choice.argmax(axis=0).astype(np.int64)
    tried = table[best]
    # Ties count half, so that n equal configurations are all in the middle.
    beaten = (table[:, None, :] < tried).mean(axis=0) + (table[:, None, :] == tried).mean(
        axis=0
    ) / 2
    return Transfer(tuple(environments), best, 1.0 - tried, beaten)


def best_single(scores: npt.ArrayLike, chosen_by: npt.ArrayLike | None = None) -> BestSingle:
    """Find the best configuration on average over environments.

    Beside it stands what it loses in each. The arguments are those of `transfer_regret`.
    """
    table, choice = _pair(scores, chosen_by)
    # A mean over environments needs one scale, which the normalised scores have.
    row = int(choice.mean(axis=1).argmax())
    return BestSingle(row, 1.0 - table[row])


def _pair(scores: npt.ArrayLike, chosen_by: npt.ArrayLike | None) -> tuple[Array, Array]:
    table = np.asarray(scores, dtype=np.float64)
    choice = table if chosen_by is None else np.asarray(chosen_by, dtype=np.float64)
    if table.ndim != 2 or choice.shape != table.shape:
        raise InputError(
            f"expected scores (configurations, environments) of one shape, got {table.shape}, "
            f"{choice.shape}"
        )
    return unit_scores(table), unit_scores(choice)
