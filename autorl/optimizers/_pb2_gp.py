"""The surrogate of PB2: a Gaussian process whose knowledge fades.

It fades with time (Bogunovic et al. 2016). NumPy and SciPy.

A point is a row: time, level, numeric hyperparameters in the unit cube, categories as numbers. With
D_j the distance of two points in column j (absolute in time, squared in level and numbers, 0 or 1
in categories),

    cov(a, b) = signal * exp(-sum_j weight_j D_j(a, b)) + noise [a is b]

so the covariance falls by exp(-weight_0) from one generation to the next: (1 - omega)^(1/2) in
Bogunovic's notation. All parameters are fitted on logarithms, as the mode of the posterior under
wide normal priors: with eight observations the likelihood alone would believe anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

CONTEXT = 2  # columns before the hyperparameters: time and level
JITTER = 1e-8  # added to the noise, for factors of points that are all but equal
ITERATIONS = 25  # of a fit: the cap that keeps one ask within its time
LIMITS = (-9.0, 5.0)  # of every logarithm: 0.0001 to 148


@dataclass(frozen=True)
class Prior:
    """Normal prior of the logarithms of the parameters.

    Shape (m + 2,) each. They come in the order weight_0, ..., weight_m-1, signal, noise.
    """

    mean: Array
    sd: Array


def prior(n_numeric: int, n_categories: int) -> Prior:
    """Make the prior for so many numbers and categories.

    Weights shrink with the number of hyperparameters, so that distances of random points stay of
    order one.
    """
    weights = [np.log(0.3), np.log(2.0)]  # time, level
    weights += [np.log(8.0 / max(1, n_numeric))] * n_numeric + [
        np.log(1.0 / max(1, n_categories))
    ] * n_categories
    mean = [*weights, 0.0, np.log(0.1)]
    sd = [1.0, 1.0, *[1.5] * n_numeric, *[1.0] * n_categories, 1.0, 1.5]
    return Prior(np.array(mean), np.array(sd))


def distances(a: Array, b: Array, n_numeric: int) -> Array:
    """Return the distance of every two points in each column.

    Shape (m, len(a), len(b)).
    """
    gaps: Array = a.T[:, :, None] - b.T[:, None, :]
    first = CONTEXT + n_numeric  # column of categories
    gaps[0] = np.abs(gaps[0])
    gaps[1:first] **= 2
    gaps[first:] = gaps[first:] != 0
    return gaps


def weighted_distances(a: Array, b: Array, n_numeric: int, weights: Array) -> Array:
    """Return the weighted sum of `distances` over the columns.

    Args:
        a: shape (p, m).
        b: shape (q, m).
        n_numeric: how many columns hold numeric hyperparameters.
        weights: shape (m,).

    Returns:
        Shape (p, q).
    """
    from scipy.spatial.distance import cdist

    first = CONTEXT + n_numeric  # column of categories
    root = np.sqrt(weights[1:first])
    # Not by `distances`, which would make an array of shape (m, p, q) at every ask.
    total: Array = cdist(a[:, 1:first] * root, b[:, 1:first] * root, "sqeuclidean")
    total += weights[0] * np.abs(a[:, :1] - b[:, 0])
    for column in range(first, a.shape[1]):
        total += weights[column] * (a[:, column, None] != b[None, :, column])
    return total


def fit(
    points: Array, values: Array, n_numeric: int, start: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Find weights, signal and noise at the mode of their posterior.

    Args:
        points: shape (n, m).
        values: shape (n,), of mean about 0 and deviation about 1.
        n_numeric: how many columns hold numeric hyperparameters.
        start: an earlier fit to go on from; None = the prior's mean.
    """
    from scipy.optimize import minimize

    n, m = points.shape
    beliefs = prior(n_numeric, m - CONTEXT - n_numeric)
    # Once for all iterations, and flat: a weighted sum of the columns is then one product.
    gaps = distances(points, points, n_numeric).reshape(m, n * n)
    guess = beliefs.mean if start is None else np.array(start)
    optimum = minimize(
        _negative_log_posterior,
        guess,
        (gaps, values, beliefs),
        jac=True,
        method="L-BFGS-B",
        bounds=[LIMITS] * (m + 2),
        options={"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS},
    )
    return tuple(float(f"{value:.6g}") for value in optimum.x)


def _negative_log_posterior(
    logs: Array, gaps: Array, values: Array, beliefs: Prior
) -> tuple[float, Array]:
    """Return the negative log posterior and its gradient."""
    from scipy.linalg import cho_solve, cholesky

    n = len(values)
    weights = np.exp(logs[:-2])
    signal = np.exp(logs[-2])
    noise = np.exp(logs[-1])
    smooth = signal * np.exp(-(weights @ gaps)).reshape(n, n)
    # Scores are finite: `History` refuses others.
    lower = cholesky(smooth + (noise + JITTER) * np.eye(n), lower=True, check_finite=False)
    solved = cho_solve((lower, True), values, check_finite=False)
    away = (logs - beliefs.mean) / beliefs.sd
    # Rasmussen and Williams 2006, (5.8), without the constant, and the prior. log|K| / 2 is the
    # sum of the logarithms of the factor's diagonal.
    value = 0.5 * values @ solved + np.log(np.diag(lower)).sum() + 0.5 * away @ away
    # (5.9): tr((K^-1 - alpha alpha^T) dK) / 2, with dK by the logarithm of each parameter.
    inner = cho_solve((lower, True), np.eye(n), check_finite=False) - np.outer(solved, solved)
    slope = (inner * smooth).ravel()
    gradient = 0.5 * np.concatenate(
        [-weights * (gaps @ slope), [slope.sum()], [noise * np.trace(inner)]]
    )
    return float(value), gradient + away / beliefs.sd


class Conditioned:
    """A Gaussian process, given observations.

    Args:
        points, values: shape (n, m) and (n,): the observations.
        pending: shape (k, m): points under evaluation. They narrow the deviation, so that copies
            that are decided together spread out (Desautels et al. 2014), and leave the mean alone.
        covariance: of points of shape (p, m) and (q, m), without noise: (p, q).
        signal: covariance of a point with itself.
        noise: variance of an observation beside it.

    Attributes:
        values: the observations.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        pending: Array,
        *,
        covariance: Callable[[Array, Array], Array],
        signal: float,
        noise: float,
    ) -> None:
        from scipy.linalg import cho_solve, cholesky

        n = len(points)
        self.values = values
        self._points = points
        self._seen = np.concatenate([points, pending])
        self._covariance = covariance
        self._signal = signal
        # The observations' own factor is the corner of that of all points.
        self._lower: Array = cholesky(
            covariance(self._seen, self._seen) + noise * np.eye(len(self._seen)),
            lower=True,
            check_finite=False,
        )
        self._solved: Array = cho_solve((self._lower[:n, :n], True), values, check_finite=False)

    def at(self, queries: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at `queries`, (q, m): (q,) each."""
        from scipy.linalg import solve_triangular

        # Rasmussen and Williams 2006, algorithm 2.1, with the variance without the noise.
        between = self._covariance(self._seen, queries)
        half = solve_triangular(self._lower, between, lower=True, check_finite=False)
        variance = self._signal - (half**2).sum(axis=0)
        mean = between[: len(self._points)].T @ self._solved
        return mean, np.sqrt(np.maximum(variance, 1e-12))  # rounding may bring it below zero


class Posterior(Conditioned):
    """The belief about the value at any point.

    Args:
        logs: as `fit` returns them.
        points, values, pending: as `Conditioned` takes them.
        n_numeric: how many columns hold numeric hyperparameters.
    """

    def __init__(
        self, logs: Sequence[float], points: Array, values: Array, pending: Array, n_numeric: int
    ) -> None:
        weights = np.exp(np.array(logs[:-2]))
        signal = math.exp(logs[-2])

        def smooth(a: Array, b: Array) -> Array:
            return np.asarray(signal * np.exp(-weighted_distances(a, b, n_numeric, weights)))

        noise = math.exp(logs[-1]) + JITTER
        super().__init__(points, values, pending, covariance=smooth, signal=signal, noise=noise)
