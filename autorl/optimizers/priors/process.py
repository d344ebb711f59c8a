"""A Gaussian process over the unit cube whose kernel is fixed.

Matérn 5/2 of the distance, a category at distance 1 of another, with the length 0.35 sqrt(d) for d
hyperparameters, beside a constant of variance 1. Values are normal scores of ranks, so that the
signal is 1 as well. Nothing is fitted: a posterior costs milliseconds, and eight results mislead no
fit.
"""

from __future__ import annotations

import numpy as np

from autorl.optimizers._pb2_gp import Conditioned
from autorl.optimizers.priors.mapping import searched
from autorl.optimizers.priors.packed import Array
from autorl.space import Space

LENGTH = 0.35
SIGNAL = 2.0  # of the kernel and the constant
NOISE = 0.5
"""Variance of one result beside the signal: seeds of recorded runs have about as much."""
TABLE_NOISE = 0.1  # of a table, whose scores are means over seeds


def normal_scores(values: Array) -> Array:
    """Spread the ranks of values as a normal distribution.

    Equal values are at one place.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def rows_of(space: Space, units: Array, used: np.ndarray | None = None) -> Array:
    """Encode places as rows of a process, in lengths of its kernel.

    Args:
        space: of the places.
        units: shape (q, d), by searched hyperparameters.
        used: a mask of the hyperparameters that have a part, shape (d,); None: all.
    """
    columns = [np.empty((len(units), 0))]  # a space may have constants alone
    items = searched(space)
    for place, item in enumerate(items):
        if used is not None and not used[place]:
            continue
        column = units[:, place]
        if item.type == "categorical":
            inside = np.clip(column, 0.0, 1.0 - 1e-9)
            number = np.floor(inside * item.n_choices)
            # Two categories are sqrt(0.5 + 0.5) apart.
            columns.append((number[:, None] == np.arange(item.n_choices)) * 0.5**0.5)
        else:
            columns.append(column[:, None])
    count = len(items) if used is None else int(used.sum())
    return np.asarray(np.column_stack(columns) / (LENGTH * max(1, count) ** 0.5))


class Process(Conditioned):
    """The belief about the value at any point.

    Args:
        points: shape (n, m), made by `rows_of`.
        values: shape (n,).
        pending: shape (k, m), under evaluation; None: none.
        noise: variance of a value.
    """

    def __init__(
        self, points: Array, values: Array, pending: Array | None = None, noise: float = NOISE
    ) -> None:
        pending = points[:0] if pending is None else pending
        super().__init__(
            points, values, pending, covariance=_covariance, signal=SIGNAL, noise=noise
        )

    def mean(self, queries: Array) -> Array:
        """Return the mean of `at` alone, at `queries`, (q, m): (q,)."""
        return np.asarray(_covariance(queries, self._points) @ self._solved)


def _covariance(a: Array, b: Array) -> Array:
    from scipy.spatial.distance import cdist

    root = 5**0.5 * cdist(a, b)
    return np.asarray(1.0 + (1.0 + root + root**2 / 3) * np.exp(-root))
