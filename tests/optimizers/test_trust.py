"""Trust in a prior: hits, agreement, beliefs and the process, against plain definitions."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import kv
from scipy.stats import norm

from autorl.optimizers.priors.trust import Belief, agreement, difference, hits
from autorl.optimizers.process import LENGTH, Process, normal_scores, rows_of
from autorl.space import load_space

MIXED = load_space(
    {
        "hyperparameters": {
            "x": {"type": "float", "lower": 0.0, "upper": 1.0},
            "c": {"type": "categorical", "choices": ["a", "b", "d"]},
            "y": {"type": "float", "lower": 0.0, "upper": 1.0},
        }
    }
)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_hits_are_those_of_random_orders_of_equal_results(count):
    values = np.random.default_rng(count).integers(0, 3, count).astype(float)
    best = max(1, round(count / 4))
    orders = [*itertools.permutations(range(count))]
    found = np.zeros(count)
    for order in orders:
        found[sorted(order, key=lambda row: -values[row])[:best]] += 1  # stable: the order decides
    assert hits(values) == pytest.approx(found / len(orders))


def test_hits_of_others_are_counted_by_the_same_bound():
    values = np.array([1.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    assert hits(values, np.array([3.0, 2.0, 1.9])) == pytest.approx([1.0, 2 / 3, 0.0])


def test_a_difference_of_log_odds_and_no_arm_without_the_other():
    found = np.array([1.0, 0.0, 1.0, 0.0, 0.0])
    chosen = np.array([True, True, False, False, False])
    value, variance = difference(found, chosen)
    assert value == pytest.approx(math.log(1.5 / 1.5) - math.log(1.5 / 2.5))
    assert variance == pytest.approx(1 / 1.5 + 1 / 1.5 + 1 / 1.5 + 1 / 2.5)
    assert difference(found, ~np.zeros(5, dtype=bool)) == (0.0, math.inf)
    assert difference(found[:0], chosen[:0]) == (0.0, math.inf)


def test_agreement_counts_the_pairs_that_results_tell_apart():
    rng = np.random.default_rng(0)
    expected = rng.random(9)
    results = rng.integers(0, 3, 9).astype(float)
    signs = [
        np.sign((expected[a] - expected[b]) * (results[a] - results[b]))
        for a, b in itertools.combinations(range(9), 2)
        if results[a] != results[b]
    ]
    tau, variance = agreement(expected, results)
    assert tau == pytest.approx(np.mean(signs))
    assert variance == pytest.approx(2 * 23 / (9 * 9 * 8) / (len(signs) / 36))
    assert agreement(expected, np.ones(9)) == (0.0, math.inf)
    assert agreement(expected[:3], results[:3]) == (0.0, math.inf)


def test_the_variance_of_agreement_is_that_of_independent_ranks():
    rng = np.random.default_rng(1)
    taus = [agreement(rng.random(10), rng.random(10)) for _ in range(4000)]
    assert np.var([tau for tau, _ in taus]) == pytest.approx(taus[0][1], rel=0.08)


def test_a_belief_is_a_product_of_normal_densities():
    belief = Belief(0.5, 2.0).given(1.5, 0.25)
    at = np.linspace(-8, 8, 40_001)
    density = norm.pdf(at, 0.5, 2.0) * norm.pdf(1.5, at, 0.5)
    density /= density.sum()
    mean = (at * density).sum()
    assert belief.mean == pytest.approx(mean, abs=1e-6)
    assert belief.deviation == pytest.approx((((at - mean) ** 2) * density).sum() ** 0.5, abs=1e-6)
    assert belief.z == belief.mean / belief.deviation
    assert Belief(0.5, 2.0).given(0.0, math.inf) == Belief(0.5, 2.0)


def matern(distance):
    """The Matérn kernel of smoothness 5/2 by its Bessel function."""
    root = math.sqrt(5) * np.maximum(distance, 1e-9)
    return 2**-1.5 / math.gamma(2.5) * root**2.5 * kv(2.5, root)


def test_the_process_conditions_a_normal_distribution():
    rng = np.random.default_rng(2)
    units = rng.random((9, 3))
    rows = rows_of(MIXED, units)
    numbers = units[:, [0, 2]]
    kinds = np.floor(units[:, 1] * 3)
    squares = ((numbers[:, None] - numbers) ** 2).sum(axis=-1) + (kinds[:, None] != kinds)
    covariance = 1.0 + matern(np.sqrt(squares) / (LENGTH * math.sqrt(3)))
    values = normal_scores(rng.random(4))
    process = Process(rows[:4], values, rows[4:6])
    mean, deviation = process.at(rows[6:])
    noisy = covariance + 0.5 * np.eye(9)
    weights = np.linalg.solve(noisy[:4, :4], covariance[:4, 6:])
    assert mean == pytest.approx(weights.T @ values)
    assert mean == pytest.approx(process.mean(rows[6:]))
    # Pending points narrow the deviation and leave the mean alone.
    seen = np.linalg.solve(noisy[:6, :6], covariance[:6, 6:])
    left = covariance[6:, 6:] - covariance[6:, :6] @ seen
    assert deviation**2 == pytest.approx(np.diag(left))


def test_a_hyperparameter_that_is_not_used_has_no_part():
    units = np.random.default_rng(3).random((5, 3))
    used = np.array([True, False, True])
    assert rows_of(MIXED, units, used) * LENGTH * math.sqrt(2) == pytest.approx(units[:, used])
