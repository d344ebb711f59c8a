"""Gaussian processes over the unit cube, for several optimizers.

A fitted process (`fit`, `Posterior`) has rows of time, level, numbers in the unit cube and
categories by number. With D_j the distance of two rows in column j (absolute in time, squared in
level and numbers, 0 or 1 in categories),

    cov(a, b) = signal * kernel(sum_j weight_j D_j(a, b)) + noise [a is b]

All parameters are fitted on logarithms, as the mode of the posterior under wide normal priors: with
eight observations the likelihood alone would believe anything. The kernel of `FADING` is
exp(-distance), so that knowledge fades with time by exp(-weight_0) from one generation to the next:
(1 - omega)^(1/2) in the notation of Bogunovic et al. 2016. The kernel of `SMOOTH` is Matérn 5/2.

A `Process` has the kernel of `SMOOTH`, but the length 0.35 sqrt(d) for all of d hyperparameters,
and values that are normal scores of ranks. Nothing is fitted: a posterior costs milliseconds, and
eight results mislead no fit.

NumPy and SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from autorl.optimizers.priors.mapping import searched
from autorl.optimizers.priors.packed import Array
from autorl.space import Space

SQRT_2PI = math.sqrt(2 * math.pi)
CONTEXT = 2  # columns before the hyperparameters: time and level
JITTER = 1e-8  # added to the noise, for factors of points that are all but equal
ITERATIONS = 25  # of a fit: the cap that keeps one ask within its time
LIMITS = (-9.0, 5.0)  # of every logarithm but that of the noise: 0.0001 to 148
LENGTH = 0.35
NOISE = 0.5
"""Variance of one result beside the signal: seeds of recorded runs have about as much."""
TABLE_NOISE = 0.1  # of a table, whose scores are means over seeds

Beliefs: TypeAlias = tuple[Array, Array]
Kernel: TypeAlias = Callable[[Array], tuple[Array, Array]]
"""Gives the covariance at distances, for a signal of 1, and its derivative."""


def exponential(distance: Array) -> tuple[Array, Array]:
    """Return exp(-distance), squared exponential in numbers, and its derivative."""
    covariance = np.exp(-distance)
    return covariance, -covariance


def matern(distance: Array) -> tuple[Array, Array]:
    """Return Matérn 5/2 and a constant of 1, and the derivative.

    The distance is squared.
    """
    root = 5**0.5 * np.sqrt(distance)
    faded = np.exp(-root)
    return 1.0 + (1.0 + root + root**2 / 3) * faded, -5 / 6 * (1.0 + root) * faded


@dataclass(frozen=True)
class Family:
    """A kernel, and what is believed of the noise beside it.

    Attributes:
        noise: its median.
        noise_sd: deviation of its logarithm.
        least: its smallest logarithm.
    """

    kernel: Kernel
    noise: float
    noise_sd: float
    least: float


FADING = Family(exponential, 0.1, 1.5, LIMITS[0])
# Scores may be exact: at the noise of `FADING` a search for the best of Branin's function ends at 8
# times the regret.
SMOOTH = Family(matern, 0.001, 3.0, -12.0)


def prior(n_numeric: int, n_categories: int, family: Family = FADING) -> Beliefs:
    """Return mean and deviation of the normal prior of the logarithms.

    Shape (m + 2,) each: weight_0, ..., weight_m-1, signal, noise.

    Weights shrink with the number of hyperparameters, so that distances of random points stay of
    order one.
    """
    weights = [np.log(0.3), np.log(2.0)]  # time, level
    weights += [np.log(8.0 / max(1, n_numeric))] * n_numeric + [
        np.log(1.0 / max(1, n_categories))
    ] * n_categories
    mean = [*weights, 0.0, np.log(family.noise)]
    sd = [1.0, 1.0, *[1.5] * n_numeric, *[1.0] * n_categories, 1.0, family.noise_sd]
    return np.array(mean), np.array(sd)


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
    points: Array,
    values: Array,
    n_numeric: int,
    family: Family = FADING,
    spread: Array | float = 1.0,
    start: Sequence[float] | None = None,
) -> tuple[float, ...]:
    """Find weights, signal and noise at the mode of their posterior.

    Args:
        points: shape (n, m).
        values: shape (n,), of mean about 0 and deviation about 1.
        n_numeric: how many columns hold numeric hyperparameters.
        family: of the process.
        spread: shape (n,), what the noise of each value is multiplied by, or one for all.
        start: an earlier fit to go on from; None = the prior's mean.
    """
    from scipy.optimize import minimize

    n, m = points.shape
    beliefs = prior(n_numeric, m - CONTEXT - n_numeric, family)
    # Once for all iterations, and flat: a weighted sum of the columns is then one product.
    gaps = distances(points, points, n_numeric).reshape(m, n * n)
    guess = beliefs[0] if start is None else np.array(start)
    optimum = minimize(
        _negative_log_posterior,
        guess,
        (gaps, values, beliefs, family.kernel, np.broadcast_to(spread, n)),
        jac=True,
        method="L-BFGS-B",
        bounds=[*[LIMITS] * (m + 1), (family.least, LIMITS[1])],
        options={"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS},
    )
    return tuple(float(f"{value:.6g}") for value in optimum.x)


def _negative_log_posterior(
    logs: Array, gaps: Array, values: Array, beliefs: Beliefs, kernel: Kernel, spread: Array
) -> tuple[float, Array]:
    """Return the negative log posterior and its gradient."""
    from scipy.linalg import cho_solve, cholesky

    n = len(values)
    weights = np.exp(logs[:-2])
    signal = np.exp(logs[-2])
    noise = np.exp(logs[-1]) * spread
    covariance, derivative = kernel(weights @ gaps)
    smooth = (signal * covariance).reshape(n, n)
    # Scores are finite: `History` refuses others.
    lower = cholesky(smooth + (noise + JITTER) * np.eye(n), lower=True, check_finite=False)
    solved = cho_solve((lower, True), values, check_finite=False)
    away = (logs - beliefs[0]) / beliefs[1]
    # Rasmussen and Williams 2006, (5.8), without the constant, and the prior. log|K| / 2 is the
    # sum of the logarithms of the factor's diagonal.
    value = 0.5 * values @ solved + np.log(np.diag(lower)).sum() + 0.5 * away @ away
    # (5.9): tr((K^-1 - alpha alpha^T) dK) / 2, with dK by the logarithm of each parameter.
    inner = cho_solve((lower, True), np.eye(n), check_finite=False) - np.outer(solved, solved)
    slope = inner.ravel() * (signal * derivative)
    gradient = 0.5 * np.concatenate(
        [weights * (gaps @ slope), [(inner * smooth).sum()], [(noise * np.diag(inner)).sum()]]
    )
    return float(value), gradient + away / beliefs[1]


class Process:
    """The belief about the value at any point, given observations.

    Args:
        points, values: shape (n, m) and (n,): the observations.
        pending: shape (k, m): points under evaluation; None: none. They narrow the deviation, so
            that copies that are decided together spread out (Desautels et al. 2014), and leave the
            mean alone.
        covariance: of points of shape (p, m) and (q, m), without noise: (p, q). None: Matérn 5/2 of
            rows made by `rows_of`, beside a constant.
        noise: variance of an observation beside it, of all or of each and the pending ones.

    Attributes:
        values: the observations.
        seen: shape (n + k, m): points, and those pending.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        pending: Array | None = None,
        *,
        covariance: Callable[[Array, Array], Array] | None = None,
        noise: float | Array = NOISE,
    ) -> None:
        from scipy.linalg import cho_solve, cholesky

        n = len(points)
        self.values = values
        self.seen = points if pending is None else np.concatenate([points, pending])
        self._covariance = covariance or _by_distance
        within = self._covariance(self.seen, self.seen)
        self._signal = within[0, 0]
        noisy = within + noise * np.eye(len(within))
        # The observations' own factor is the corner of that of all points.
        self._lower: Array = cholesky(noisy, lower=True, check_finite=False)
        self._solved: Array = cho_solve((self._lower[:n, :n], True), values, check_finite=False)

    def at(self, queries: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at `queries`, (q, m): (q,) each."""
        from scipy.linalg import solve_triangular

        # Rasmussen and Williams 2006, algorithm 2.1, with the variance without the noise.
        between = self._covariance(self.seen, queries)
        half = solve_triangular(self._lower, between, lower=True, check_finite=False)
        variance = self._signal - (half**2).sum(axis=0)
        mean = between[: len(self.values)].T @ self._solved
        return mean, np.sqrt(np.maximum(variance, 1e-12))  # rounding may bring it below zero

    def mean(self, queries: Array) -> Array:
        """Return the mean of `at` alone, at `queries`, (q, m): (q,)."""
        return self._covariance(queries, self.seen[: len(self.values)]) @ self._solved


def _by_distance(a: Array, b: Array) -> Array:
    from scipy.spatial.distance import cdist

    return matern(cdist(a, b, "sqeuclidean"))[0]


class Posterior(Process):
    """The belief about the value at any point, by a fitted process.

    Args:
        logs: as `fit` returns them.
        points, values, pending: as `Process` takes them.
        n_numeric: how many columns hold numeric hyperparameters.
        family, spread: as `fit` took them.
    """

    def __init__(
        self,
        logs: Sequence[float],
        points: Array,
        values: Array,
        pending: Array,
        n_numeric: int,
        family: Family = FADING,
        spread: Array | float = 1.0,
    ) -> None:
        weights = np.exp(np.array(logs[:-2]))
        signal = math.exp(logs[-2])

        def smooth(a: Array, b: Array) -> Array:
            distance = weighted_distances(a, b, n_numeric, weights)
            return np.asarray(signal * family.kernel(distance)[0])

        noise = np.ones(len(points) + len(pending))
        noise[: len(points)] = spread
        noise = math.exp(logs[-1]) * noise + JITTER
        super().__init__(points, values, pending, covariance=smooth, noise=noise)


class Encoding:
    """Places of a space as rows of a fitted process.

    Attributes:
        n_numeric: columns of numbers, between `CONTEXT` and the categories.
    """

    def __init__(self, space: Space) -> None:
        choices = [item.n_choices * (item.type == "categorical") for item in searched(space)]
        self._choices = np.array(choices, dtype=np.int64)
        self.n_numeric = int((self._choices == 0).sum())

    def rows(self, places: Array, levels: Array | float = 0.0) -> Array:
        """Encode places, shape (n, d), as rows, shape (n, `CONTEXT` + d)."""
        is_category = self._choices > 0
        inside = np.clip(places[:, is_category], 0.0, 1.0 - 1e-9)
        categories = np.floor(inside * self._choices[is_category])
        context = np.zeros((len(places), CONTEXT))
        context[:, 1] = levels
        return np.column_stack([context, places[:, ~is_category], categories])


def rows_of(space: Space, units: Array, used: np.ndarray | None = None) -> Array:
    """Encode places as rows of a `Process`, in lengths of its kernel.

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


def log_improvement(mean: Array, deviation: Array, best: float | Array) -> Array:
    """Return the logarithm of the improvement expected on `best`.

    It is exact where the improvement itself would underflow, far below (Ament et al. 2023).
    """
    from scipy.special import erfcx, ndtr

    z = (mean - best) / deviation
    near = np.maximum(z, -1.0)
    density = np.exp(-0.5 * near**2) / SQRT_2PI
    # Of phi(z) + z Phi(z) the factor phi(z) is taken out, and Phi(z) / phi(z) is a scaled erfc. The
    # difference cancels to 1 / z^2, of which few digits are left from 1e5 on.
    far = np.clip(z, -1e5, -1.0)
    ratio = np.log1p(far * SQRT_2PI / 2 * erfcx(-far / 2**0.5))
    ratio -= 2 * np.log(np.maximum(-z, 1e5) / 1e5)
    tail = ratio - 0.5 * z**2 - math.log(SQRT_2PI)
    return np.asarray(
        np.log(deviation) + np.where(z > -1.0, np.log(density + near * ndtr(near)), tail)
    )


def normal_scores(values: Array) -> Array:
    """Spread the ranks of values as a normal distribution.

    Equal values are at one place.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))
