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
    improvement_interval,
    min_max,
    probability_of_improvement,
    ranks,
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
    ],
)
def test_refusals(call, rule):
    with pytest.raises(ValueError, match=rule):
        call()


# -- defaults and bounds -----------------------------------------------------------------------------------------------


@given(hnp.arrays(float, (5, 2), elements=st.floats(-100, 100), unique=True))
def test_min_max_spans_each_column_and_keeps_its_proportions(scores):
    scaled = min_max(scores)
    assert scaled.min(axis=0).tolist() == [0, 0]
    assert scaled.max(axis=0).tolist() == [1, 1]
    span = scores.max(axis=0) - scores.min(axis=0)
    assert scaled * span + scores.min(axis=0) == pytest.approx(scores)
