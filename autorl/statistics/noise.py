"""A noise model of scores over seeds, pooled over configurations.

Configuration i has a true score mu_i, and its score y_i is the mean of n_i seeds:

    y_i | mu_i  ~  mu_i + s_i / sqrt(n_i) * t(nu + n_i - 1)
    mu_i        ~  G, a discrete distribution

s_i^2 is the variance over its seeds, shrunk towards that of all [Smyth2004]: with two or three
seeds its own says little, and noise differs from one configuration to another. G is not normal
(many configurations learn nothing, many others reach the same highest return): it is estimated from
the scores themselves [Kiefer1956], by one step of expectation maximisation [Laird1982] from four
parts of the scores and one of a flat distribution over their range. The estimate of mu_i is then
free of the optimism of the highest score, and true scores may be tied.

References:
    [Smyth2004] Smyth, "Linear models and empirical Bayes methods for assessing differential
        expression in microarray experiments", 2004.
    [Kiefer1956] Kiefer and Wolfowitz, "Consistency of the maximum likelihood estimator in the
        presence of infinitely many incidental parameters", 1956.
    [Laird1982] Laird, "Empirical Bayes estimates using the nonparametric maximum likelihood
        estimate for the prior", 1982.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autorl.statistics.arrays import Array, as_vector, same_shape

# With these the stated probability is right to 0.08 on the 19 ARLBench tables of DQN and PPO
# (`benchmarks/adaptive_seeds.py`). A normal G states twice the over-tuning.
_FREEDOM = 4.0  # seeds that the pooled variance counts as, beside a configuration's own
_NOISE_SHARE = 0.3  # of the variance between scores of one seed, as long as none was repeated
_FLAT_SHARE = 0.2  # of the first guess at G; with half of it 0.35 was stated where 0.46 were right
_FLAT_POINTS = 100
_MOST_POINTS = 400  # of the others: beyond it, memory would be quadratic in the scores
# Relative to the range of the scores: smaller noise than rounding is none.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Posterior:
    """Distribution of n true scores, given n observed scores.

    Attributes:
        values: possible true scores, ascending, shape (k,).
        weights: probability of each value, shape (n, k); rows add up to 1.
    """

    values: Array
    weights: Array

    @property
    def mean(self) -> Array:
        """Expected true scores, shape (n,)."""
        return np.asarray(self.weights @ self.values)


def posterior(scores: npt.ArrayLike, spreads: npt.ArrayLike, seeds: npt.ArrayLike) -> Posterior:
    """Estimate the true scores of configurations.

    Args:
        scores: means over seeds (n,).
        spreads: standard deviations over seeds, ddof=1 (n,); of a single seed it is not read.
        seeds: how many each configuration has, >= 1 (n,).

    Raises:
        ValueError: empty, not finite, of different length, or a configuration without a seed.
    """
    y = as_vector(scores, "scores")
    deviations = as_vector(spreads, "spreads")
    n = as_vector(seeds, "seeds")
    same_shape(y, deviations, "scores and spreads")
    same_shape(y, n, "scores and seeds")
    if n.min() < 1:
        raise ValueError(f"seeds must be at least 1, got {n.min():g}")
    # In units of the range, so that nothing depends on the unit of a metric.
    middle = float(y.min() / 2 + y.max() / 2)
    span = float(y.max() / 2 - y.min() / 2) * 2
    if span == 0:
        return Posterior(y[:1], np.ones((len(y), 1)))
    unit = (y - middle) / span
    error, freedom = _standard_errors(unit, np.where(n > 1, deviations / span, 0.0), n)
    # 1. the values, and the first guess at how frequent they are
    flat = np.linspace(-0.5, 0.5, _FLAT_POINTS)
    points = unit
    if len(unit) > _MOST_POINTS:
        # Each of them is a score that was reached, so that ties stay ties.
        points = np.quantile(unit, np.linspace(0, 1, _MOST_POINTS), method="nearest")
    values = np.concatenate([points, flat])
    shares = [(1 - _FLAT_SHARE) / len(points), _FLAT_SHARE / len(flat)]
    guess = np.repeat(shares, [len(points), len(flat)])
    # 2. the likelihood of each score given each value, and one step towards the likeliest G
    distances = (unit[:, None] - values) / error[:, None]
    exponents = -(freedom + 1) / 2
    likelihood = (1 + distances**2 / freedom[:, None]) ** exponents[:, None]
    frequencies = _normalised(likelihood * guess).mean(axis=0)
    # 3. what each score says
    weights = _normalised(likelihood * frequencies)
    order = np.argsort(values, kind="stable")
    return Posterior(middle + span * values[order], weights[:, order])


def standard_errors(scores: Array, spreads: Array, seeds: Array) -> Array:
    """Estimate the standard error of each score.

    Shape (n,). Takes the arguments of `posterior`.
    """
    span = float(np.ptp(scores))
    if span == 0:
        return np.zeros(len(scores))
    unit = _standard_errors(scores / span, np.where(seeds > 1, spreads / span, 0.0), seeds)[0]
    return span * unit


def _standard_errors(y: Array, deviations: Array, n: Array) -> tuple[Array, Array]:
    """Return the standard error of each score, and its degrees of freedom.

    Scores span the range 1.
    """
    freedom = n - 1
    guess = _NOISE_SHARE * float(y.var(ddof=1))
    # Measured variance soon outweighs the guess. As one degree of freedom throughout, it was most
    # of the variance where the best hardly differ: their probabilities were stated 0.15 too low.
    repeated = float(freedom.sum())
    trust = 1.0 / (1.0 + repeated) ** 2
    pooled = (trust * guess + float(freedom @ deviations**2)) / (trust + repeated)
    variance = (_FREEDOM * pooled + freedom * deviations**2) / (_FREEDOM + freedom)
    return np.maximum(np.sqrt(variance / n), _ROUNDING), _FREEDOM + freedom


def _normalised(weights: Array) -> Array:
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def probability_of_best(
    estimate: Posterior, chosen: int, among: npt.ArrayLike | None = None
) -> float:
    """Return the probability that no true score is above a configuration's.

    It is sum_v w_chosen(v) prod_j P(mu_j <= v) over the rivals. A configuration that is tied with
    the best counts as best.

    Args:
        estimate: of all configurations.
        chosen: index of the configuration.
        among: indices it is compared with; None: all.

    Raises:
        ValueError: `chosen` is no configuration of the estimate.
    """
    count = len(estimate.weights)
    if not 0 <= chosen < count:
        raise ValueError(f"chosen must lie in 0..{count - 1}, got {chosen}")
    indices = np.arange(count) if among is None else np.asarray(among, dtype=np.int64)
    rivals = indices[indices != chosen]
    # Equal values stand side by side: each has the probability of all of them.
    last = np.searchsorted(estimate.values, estimate.values, side="right") - 1
    at_most = np.cumsum(estimate.weights[rivals], axis=1)[:, last]
    return float(min(1.0, estimate.weights[chosen] @ at_most.prod(axis=0)))
