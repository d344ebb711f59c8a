"""Comparison of methods: published reference numbers, loops and SciPy as oracles, ties and degenerate cases."""

from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autorl.statistics import (
    average_ranks,
    critical_difference,
    friedman,
    holm,
    improvement_interval,
    min_max,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    profile_band,
    ranks,
    signed_rank,
)

X = np.array([[1, 2], [2, 2], [1, 1], [2, 1]])
Y = np.array([[1, 1], [2, 2], [3, 3]])
small = st.integers(0, 4).map(float)  # few values: ties are common


@given(hnp.arrays(float, (4, 2), elements=small), hnp.arrays(float, (3, 2), elements=small))
def test_probability_of_improvement_equals_a_loop_and_is_complementary(x, y):
    tasks = []
    for task in range(2):
        pairs = product(x[:, task], y[:, task])
        tasks.append(np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs]))
    assert probability_of_improvement(x, y) == pytest.approx(sum(tasks) / 2)
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1.0)


def test_improvement_interval_holds_its_estimate_and_is_certain_when_samples_do_not_overlap():
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.5, 1, (10, 3)), rng.normal(0, 1, (8, 3))
    interval = improvement_interval(x, y, rng=np.random.default_rng(1), resamples=800)
    assert 0 < interval.low < probability_of_improvement(x, y) < interval.high < 1
    sure = improvement_interval(x + 100, y, rng=np.random.default_rng(1), resamples=50)
    assert (sure.low, sure.high) == (1.0, 1.0)


@given(hnp.arrays(float, (5, 4), elements=small))
def test_ranks_match_scipy(table):
    expected = scipy.stats.rankdata(-table, axis=1)
    assert ranks(table) == pytest.approx(expected)
    smallest = scipy.stats.rankdata(-table, axis=1, method="min")
    assert ranks(table, ties="min") == pytest.approx(smallest)
    assert average_ranks(table) == pytest.approx(expected.mean(axis=0))


def test_ranks_of_many_values_need_no_table_of_pairs():
    """Every value beside every other would be 90 GB."""
    values = np.repeat(np.arange(100_000.0), 3)
    assert np.array_equal(ranks(values), 3 * (99_999 - values) + 2)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: probability_of_improvement(X, Y[:, :1]), "same tasks"),
        (lambda: average_ranks([1.0, 2.0]), "two-dimensional"),
        (lambda: min_max([[1.0, 2.0], [1.0, 3.0]]), r"columns \[0\] are constant"),
        (lambda: ranks([1.0], ties="max"), "'average' or 'min'"),
        (lambda: friedman(X), "at least 3 columns"),
        (lambda: profile_band(X[:1], [0.0], rng=np.random.default_rng(0)), "at least 2 runs"),
        (lambda: critical_difference(3, 10, 1.0), "strictly between"),
    ],
)
def test_refusals(call, rule):
    with pytest.raises(ValueError, match=rule):
        call()


# -- profiles, and tests of ranks ----------------------------------------------------------------


def test_profiles_and_gap_equal_those_of_rliable():
    """Its numbers for arange(80) / 80 in 5 runs of 16 tasks, and for the small example above."""
    scores = np.arange(80).reshape(5, 16) / 80
    profile = performance_profile(scores, [0.0, 0.25, 0.5, 0.75])
    assert profile.tolist() == [0.9875, 0.7375, 0.4875, 0.2375]
    assert optimality_gap(scores) == pytest.approx(0.50625)
    assert optimality_gap(X, 2.0) == pytest.approx(0.5)


def test_the_band_of_a_profile_resamples_runs_within_each_task():
    scores = np.array([[0.0, 5.0], [1.0, 5.0], [1.0, 5.0]])
    low, high = profile_band(scores, [0.5, 4.0, 6.0], rng=np.random.default_rng(0))
    # None of three runs is above 0.5 in 1 of 27 resamples of the first task, all in 8 of 27.
    assert (low.tolist(), high.tolist()) == ([0.5, 0.5, 0.0], [1.0, 0.5, 0.0])


@given(hnp.arrays(float, (6, 3), elements=small))
def test_friedman_equals_its_formula_with_ties(table):
    """Demsar's formula over the correction for ties of Conover."""
    cases, methods = table.shape
    ranked = ranks(table)
    ties = sum(
        np.sum(count**3 - count)
        for row in table
        for count in [np.unique(row, return_counts=True)[1]]
    )
    below = 1 - ties / (cases * methods * (methods**2 - 1))
    plain = 12 * cases / (methods * (methods + 1)) * np.sum((ranked.mean(axis=0) - 2) ** 2)
    statistic, p_value = friedman(table)
    assert statistic == pytest.approx(plain / below if below else 0.0, abs=1e-9)
    assert p_value == pytest.approx(scipy.stats.chi2.sf(statistic, methods - 1))


NEMENYI = [1.9600, 2.3437, 2.5690, 2.7278, 2.8497, 2.9483, 3.0309, 3.1017, 3.1637]


def test_the_critical_difference_has_the_published_quantiles():
    """Table 5 of Demsar (2006) at 5 %, and two published comparisons."""
    for methods, quantile in enumerate(NEMENYI, start=2):
        found = critical_difference(methods, 1) / np.sqrt(methods * (methods + 1) / 6)
        assert found == pytest.approx(quantile, abs=1e-4)
    assert critical_difference(3, 60) == pytest.approx(0.4279, abs=5e-5)
    assert critical_difference(4, 39) == pytest.approx(0.751, abs=5e-4)


def test_the_signed_rank_test_counts_every_assignment_of_signs():
    differences = np.array([0.5, -1.0, 2.0, 3.5, 4.0, 6.0])
    weights = scipy.stats.rankdata(abs(differences))
    sums = [np.dot(signs, weights) for signs in product((0, 1), repeat=6)]
    lower = min(weights[differences > 0].sum(), weights[differences < 0].sum())
    assert signed_rank(differences) == pytest.approx(2 * np.mean(np.array(sums) <= lower))
    assert signed_rank(np.zeros(4)) == 1.0


def test_holm_steps_down():
    """The smallest of three counts three times, and none falls below a smaller one."""
    assert holm([0.03, 0.016, 0.041]).tolist() == pytest.approx([0.06, 0.048, 0.06])
    assert holm([0.9, 0.6]).tolist() == [1.0, 1.0]


# -- defaults and bounds -----------------------------------------------------------------------------------------------


@given(hnp.arrays(float, (5, 2), elements=st.floats(-100, 100), unique=True))
def test_min_max_spans_each_column_and_keeps_its_proportions(scores):
    scaled = min_max(scores)
    assert scaled.min(axis=0).tolist() == [0, 0]
    assert scaled.max(axis=0).tolist() == [1, 1]
    span = scores.max(axis=0) - scores.min(axis=0)
    assert scaled * span + scores.min(axis=0) == pytest.approx(scores)
