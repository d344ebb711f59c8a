"""The surrogate of PB2: a Gaussian process whose knowledge fades with time (Bogunovic et al. 2016). NumPy and SciPy.

A point is a row: time, level, numeric hyperparameters in the unit cube, categories as numbers. With D_j the distance of
two points in column j (absolute in time, squared in level and numbers, 0 or 1 in categories),

    cov(a, b) = signal * exp(-sum_j weight_j D_j(a, b)) + noise [a is b]

so the covariance falls by exp(-weight_0) from one generation to the next: (1 - omega)^(1/2) in Bogunovic's notation.
All parameters are fitted on logarithms, as the mode of the posterior under wide normal priors: with eight observations
the likelihood alone would believe anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

CONTEXT = 2  # columns before the hyperparameters: time and level
JITTER = 1e-8
ITERATIONS = 25  # of a fit: the cap that keeps one ask within its time
LIMITS = (-9.0, 5.0)  # of every logarithm


@dataclass(frozen=True)
class Prior:
    """Normal prior of the logarithms, in the order weight_0, ..., weight_m-1, signal, noise. Shape (m + 2,) each."""

    mean: Array
    sd: Array


def prior(n_numeric: int, n_categories: int) -> Prior:
    """Weights shrink with the number of hyperparameters, so that distances of random points stay of order one."""
    weights = [np.log(0.1), np.log(2.0)]  # time, level
    weights += [np.log(2.0 / max(1, n_numeric))] * n_numeric + [np.log(1.0 / max(1, n_categories))] * n_categories
    mean = [*weights, 0.0, np.log(0.1)]
    sd = [1.0, 1.0, *[1.5] * n_numeric, *[1.0] * n_categories, 1.0, 1.5]
    return Prior(np.array(mean), np.array(sd))


def distances(a: Array, b: Array, n_numeric: int) -> Array:
    """Shape (m, len(a), len(b)): the distance of every two points in each column."""
    differences: Array = np.moveaxis(a[:, None, :] - b[None, :, :], 2, 0)
    first = CONTEXT + n_numeric
    return np.concatenate(
        [np.abs(differences[:1]), differences[1:first] ** 2, (differences[first:] != 0).astype(np.float64)]
    )


def fit(points: Array, values: Array, n_numeric: int, start: Sequence[float] | None = None) -> tuple[float, ...]:
    """The logarithms of weights, signal and noise at the mode of their posterior, to six digits.

    Args:
        points: shape (n, m).
        values: shape (n,), of mean about 0 and deviation about 1.
        n_numeric: how many columns hold numeric hyperparameters.
        start: an earlier fit to go on from; None = the prior's mean.
    """
    from scipy.optimize import minimize

    n, m = points.shape
    known = prior(n_numeric, m - CONTEXT - n_numeric)
    apart = distances(points, points, n_numeric).reshape(m, n * n)
    found = minimize(
        _negative_log_posterior,
        known.mean if start is None else np.array(start),
        (apart, values, known),
        jac=True,
        method="L-BFGS-B",
        bounds=[LIMITS] * (m + 2),
        options={"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS},
    )
    return tuple(float(f"{value:.6g}") for value in found.x)


def _negative_log_posterior(logs: Array, apart: Array, values: Array, known: Prior) -> tuple[float, Array]:
    """With its gradient."""
    from scipy.linalg import cho_solve, cholesky

    n = len(values)
    weights, signal, noise = np.exp(logs[:-2]), np.exp(logs[-2]), np.exp(logs[-1])
    smooth = signal * np.exp(-(weights @ apart)).reshape(n, n)
    lower = cholesky(smooth + (noise + JITTER) * np.eye(n), lower=True, check_finite=False)
    solved = cho_solve((lower, True), values, check_finite=False)
    away = (logs - known.mean) / known.sd
    value = 0.5 * values @ solved + np.log(np.diag(lower)).sum() + 0.5 * away @ away
    inner = cho_solve((lower, True), np.eye(n), check_finite=False) - np.outer(solved, solved)
    slope = (inner * smooth).ravel()
    gradient = 0.5 * np.concatenate([-weights * (apart @ slope), [slope.sum()], [noise * np.trace(inner)]])
    return float(value), gradient + away / known.sd


@dataclass(frozen=True)
class Posterior:
    """What is believed about the value at any point.

    Attributes:
        logs: as `fit` returns them.
        points, values: shape (n, m) and (n,): the observations.
        pending: shape (k, m): points under evaluation. They narrow the deviation, so that copies that are decided
            together spread out (Desautels et al. 2014), and leave the mean alone.
    """

    logs: Sequence[float]
    points: Array
    values: Array
    pending: Array
    n_numeric: int

    def at(self, queries: Array) -> tuple[Array, Array]:
        """Mean and standard deviation, shape (q,) each, at `queries`, shape (q, m)."""
        mean, _ = self._solve(self.points, queries, self.values)
        seen = np.concatenate([self.points, self.pending])
        _, variance = self._solve(seen, queries, np.zeros(len(seen)))
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def _solve(self, seen: Array, queries: Array, values: Array) -> tuple[Array, Array]:
        from scipy.linalg import cho_solve, cholesky, solve_triangular

        noise, signal = np.exp(self.logs[-1]), float(np.exp(self.logs[-2]))
        covariance: Any = self._smooth(seen, seen) + (noise + JITTER) * np.eye(len(seen))
        lower = cholesky(covariance, lower=True, check_finite=False)
        between = self._smooth(seen, queries)
        half = solve_triangular(lower, between, lower=True, check_finite=False)
        return between.T @ cho_solve((lower, True), values, check_finite=False), signal - (half**2).sum(axis=0)

    def _smooth(self, a: Array, b: Array) -> Array:
        weights, signal = np.exp(np.array(self.logs[:-2])), np.exp(self.logs[-2])
        covariance: Array = signal * np.exp(-np.tensordot(weights, distances(a, b, self.n_numeric), 1))
        return covariance
