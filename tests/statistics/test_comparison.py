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
    ecdf,
    friedman,
    holm,
    improvement_interval,
    paired_differences,
    pairwise_wilcoxon,
    performance_profile,
    probability_of_improvement,
    profile_band,
    ranks,
    wilcoxon,
)

X = np.array([[1, 2], [2, 2], [1, 1], [2, 1]])
Y = np.array([[1, 1], [2, 2], [3, 3]])
GRID = np.arange(80).reshape(5, 16) / 80
small = st.integers(0, 4).map(float)  # few values: ties are common


def test_probability_of_improvement_reference_values():
    assert probability_of_improvement(X, Y) == pytest.approx(1 / 3)
    assert probability_of_improvement(X, X) == 0.5
    enduro_a, enduro_b = [409.2, 383.3, 434.4, 430.2, 398.9], [342.0, 447.9, 434.1, 387.4, 402.7]
    assert probability_of_improvement(enduro_a, enduro_b) == pytest.approx(0.52)


@given(hnp.arrays(float, (4, 2), elements=small), hnp.arrays(float, (3, 2), elements=small))
def test_probability_of_improvement_equals_a_loop_and_is_complementary(x, y):
    tasks = []
    for task in range(2):
        wins = [
            1.0 if a > b else 0.5 if a == b else 0.0 for a, b in product(x[:, task], y[:, task])
        ]
        tasks.append(sum(wins) / len(wins))
    assert probability_of_improvement(x, y) == pytest.approx(sum(tasks) / 2)
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1.0)


def test_improvement_interval_holds_its_estimate_and_is_certain_when_samples_do_not_overlap():
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.5, 1, (10, 3)), rng.normal(0, 1, (8, 3))
    interval = improvement_interval(x, y, rng=np.random.default_rng(1), resamples=800)
    assert 0 < interval.low < probability_of_improvement(x, y) < interval.high < 1
    sure = improvement_interval(x + 100, y, rng=np.random.default_rng(1), resamples=50)
    assert (sure.low, sure.high) == (1.0, 1.0)


def test_performance_profile_reference_values():
    shares = performance_profile(GRID, [0, 0.25, 0.5, 0.75])
    assert shares == pytest.approx([0.9875, 0.7375, 0.4875, 0.2375])


@given(hnp.arrays(float, (3, 2), elements=small), st.lists(small, min_size=1, max_size=4))
def test_profile_and_ecdf_equal_loops(scores, thresholds):
    pooled = scores.ravel().tolist()
    above = [sum(value > t for value in pooled) / 6 for t in thresholds]
    assert performance_profile(scores, thresholds) == pytest.approx(above)
    assert ecdf(pooled, thresholds) == pytest.approx([1 - share for share in above])


def test_profile_band_contains_the_profile_and_is_a_point_for_constant_scores():
    at = np.linspace(0.1, 0.9, 5)
    low, high = profile_band(GRID, at, rng=np.random.default_rng(0), resamples=300)
    profile = performance_profile(GRID, at)
    assert np.all((low <= profile) & (profile <= high))
    low, high = profile_band(
        np.ones((4, 2)), [0.5, 1.0], rng=np.random.default_rng(0), resamples=20
    )
    assert low.tolist() == high.tolist() == [1.0, 0.0]


@given(hnp.arrays(float, (5, 4), elements=small))
def test_ranks_match_scipy(table):
    assert ranks(table) == pytest.approx(scipy.stats.rankdata(-table, axis=1))
    assert ranks(table, ties="min") == pytest.approx(
        scipy.stats.rankdata(-table, axis=1, method="min")
    )
    assert average_ranks(table) == pytest.approx(scipy.stats.rankdata(-table, axis=1).mean(axis=0))


def test_ranks_of_many_values_need_no_table_of_pairs():
    """Every value beside every other would be 90 GB."""
    values = np.repeat(np.arange(100_000.0), 3)
    assert np.array_equal(ranks(values), 3 * (99_999 - values) + 2)


@given(hnp.arrays(float, (6, 3), elements=small))
def test_friedman_matches_scipy(table):
    ours = friedman(table)
    if all(len(set(row)) == 1 for row in table.tolist()):
        assert (ours.statistic, ours.p_value) == (0.0, 1.0)
        return
    theirs = scipy.stats.friedmanchisquare(*table.T)
    assert ours.statistic == pytest.approx(theirs.statistic, abs=1e-9)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-9)


def test_friedman_p_value_of_the_reference_statistic():
    """PPO table, 60 cases of 3 methods: chi2 77.5665 has p 1.43e-17."""
    assert scipy.special.chdtrc(2, 77.5665) == pytest.approx(1.43e-17, rel=0.01)
    one_sided = np.tile([3.0, 2.0, 1.0], (60, 1))  # a perfect order: chi2 = N (k - 1)
    assert friedman(one_sided).statistic == pytest.approx(120.0)


def brute_force_pratt(difference):
    """Enumerate all signs of the non-zero differences, ranks as in Pratt."""
    rank = scipy.stats.rankdata(np.abs(difference))
    kept, positive = rank[difference != 0], rank[difference > 0].sum()
    observed = min(positive, kept.sum() - positive)
    sums = [np.dot(kept, signs) for signs in product([0, 1], repeat=len(kept))]
    extreme = sum(min(total, kept.sum() - total) <= observed + 1e-9 for total in sums)
    return observed, extreme / len(sums)


@given(hnp.arrays(float, (8,), elements=small), hnp.arrays(float, (8,), elements=small))
def test_wilcoxon_equals_enumeration_with_zeros_and_ties(first, second):
    statistic, p_value = brute_force_pratt(first - second)
    ours = wilcoxon(first, second)
    assert ours.statistic == pytest.approx(statistic)
    assert ours.p_value == pytest.approx(p_value)


def test_wilcoxon_matches_scipy_without_ties_and_in_the_normal_regime():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.3, 1, 25), rng.normal(0, 1, 25)
    assert wilcoxon(a, b).p_value == pytest.approx(
        scipy.stats.wilcoxon(a, b, method="exact").pvalue
    )
    a, b = rng.normal(0.15, 1, 300), rng.normal(0, 1, 300)
    theirs = scipy.stats.wilcoxon(a, b, zero_method="pratt", method="approx")
    assert wilcoxon(a, b).p_value == pytest.approx(theirs.pvalue, rel=1e-6)
    shifted = (
        np.round(a[:60] + 0.3, 0),
        np.round(b[:60], 0),
    )  # many zeros and ties: SciPy only approximates here
    approximate = scipy.stats.wilcoxon(*shifted, zero_method="pratt", method="approx").pvalue
    assert wilcoxon(*shifted).p_value == pytest.approx(approximate, rel=0.1)


def test_wilcoxon_of_equal_samples():
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]).p_value == 1.0
    assert wilcoxon([1.0], [0.0]).p_value == 1.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([0.2]) == pytest.approx([0.2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values):
    adjusted = holm(p_values)
    assert np.all(adjusted >= np.array(p_values) - 1e-12)
    for alpha in (0.03, 0.11):
        rejected, count = set(), len(p_values)
        for step, index in enumerate(np.argsort(p_values, kind="stable")):
            if p_values[index] * (count - step) > alpha:
                break
            rejected.add(int(index))
        assert set(np.flatnonzero(adjusted <= alpha).tolist()) == rejected


def test_pairwise_wilcoxon_is_the_adjusted_matrix():
    rng = np.random.default_rng(2)
    scores = rng.normal(loc=[0, 1, 2], size=(15, 3))
    matrix = pairwise_wilcoxon(scores)
    raw = [wilcoxon(scores[:, i], scores[:, j]).p_value for i, j in ((0, 1), (0, 2), (1, 2))]
    assert matrix[np.triu_indices(3, 1)] == pytest.approx(holm(raw))
    assert np.array_equal(matrix, matrix.T)
    assert np.diag(matrix).tolist() == [1.0, 1.0, 1.0]
    assert pairwise_wilcoxon(scores[:, :2])[0, 1] == raw[0]


REFERENCE_Q = [1.9600, 2.3437, 2.5690, 2.7278, 2.8497, 2.9483, 3.0309, 3.1017, 3.1637]


@pytest.mark.parametrize(("methods", "q"), list(enumerate(REFERENCE_Q, start=2)))
def test_nemenyi_quantiles(methods, q):
    cases = methods * (methods + 1)  # then CD = q / sqrt 6
    assert critical_difference(methods, cases) * np.sqrt(6) == pytest.approx(q, abs=1e-4)


def test_nemenyi_reference_differences():
    assert critical_difference(3, 60) == pytest.approx(0.4279, abs=1e-4)
    assert critical_difference(4, 39) == pytest.approx(0.751, abs=1e-3)


def test_paired_differences():
    assert paired_differences([3.0, 5.0], [1.0, 6.0]).tolist() == [[2.0], [-1.0]]


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: probability_of_improvement(X, Y[:, :1]), "same tasks"),
        (lambda: probability_of_improvement([np.nan], [1.0]), "finite"),
        (lambda: paired_differences([1.0], [1.0, 2.0]), "same shape"),
        (lambda: performance_profile([], [0.5]), "empty"),
        (lambda: average_ranks([1.0, 2.0]), "two-dimensional"),
        (lambda: friedman(np.ones((4, 2))), "at least 3 columns"),
        (lambda: wilcoxon([1.0, 2.0], [1.0]), "same shape"),
        (lambda: wilcoxon([np.nan], [1.0]), "finite"),
        (lambda: holm([0.5, 1.5]), r"in \[0, 1\]"),
        (lambda: critical_difference(1, 5), "at least 2"),
        (lambda: critical_difference(3, 5, alpha=0), "strictly between"),
        (lambda: ranks([1.0], ties="max"), "'average' or 'min'"),
    ],
)
def test_refusals(call, rule):
    with pytest.raises(ValueError, match=rule):
        call()


# -- defaults and bounds -----------------------------------------------------------------------------------------------


def test_bands_and_intervals_are_of_95_percent_and_2000_resamples_unless_told_otherwise():
    rng = np.random.default_rng
    told = {"level": 0.95, "resamples": 2000}
    assert improvement_interval(X, Y, rng=rng(0)) == improvement_interval(X, Y, rng=rng(0), **told)
    plain = profile_band(GRID[:, :2], [0.1, 0.5], rng=rng(0))
    for bound, expected in zip(
        plain, profile_band(GRID[:, :2], [0.1, 0.5], rng=rng(0), **told), strict=True
    ):
        assert bound.tolist() == expected.tolist()


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_band_is_of_the_two_tails_of_resampled_profiles(level):
    at = [0.05, 0.3, 0.45]
    low, high = profile_band(
        GRID[:, :3], at, rng=np.random.default_rng(3), level=level, resamples=99
    )
    rng = np.random.default_rng(3)
    profiles = []
    for _ in range(99):
        rows = rng.integers(0, 5, size=(5, 3))
        resample = [GRID[rows[run, task], task] for run in range(5) for task in range(3)]
        profiles.append([sum(value > t for value in resample) / 15 for t in at])
    tail = (1 - level) / 2
    assert low == pytest.approx(np.quantile(profiles, tail, axis=0))
    assert high == pytest.approx(np.quantile(profiles, 1 - tail, axis=0))


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_band_of_nothing_or_all_is_refused(level):
    with pytest.raises(ValueError, match="level must lie strictly between"):
        profile_band(GRID, [0.5], rng=np.random.default_rng(0), level=level)


@pytest.mark.parametrize(("pairs", "method"), [(200, "exact"), (201, "approx")])
def test_the_signed_rank_distribution_is_exact_up_to_200_pairs(pairs, method):
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.2, 1, pairs), rng.normal(0, 1, pairs)
    theirs = scipy.stats.wilcoxon(a, b, method=method)
    ours = wilcoxon(a, b)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.statistic == theirs.statistic


def test_two_methods_have_average_ranks():
    assert average_ranks([[1.0, 2.0], [3.0, 3.0]]).tolist() == [1.75, 1.25]


def test_one_case_has_a_critical_difference_and_none_has_not():
    assert critical_difference(2, 1) == pytest.approx(REFERENCE_Q[0], abs=1e-4)
    with pytest.raises(ValueError, match="cases at least 1, got 3 and 0"):
        critical_difference(3, 0)
    with pytest.raises(ValueError, match="alpha must lie strictly between 0 and 1"):
        critical_difference(3, 5, alpha=1.0)


def test_a_smaller_error_rate_asks_for_a_larger_difference():
    """Nemenyi's q at 0.1 and three methods is 2.052."""
    assert critical_difference(3, 12, alpha=0.1) == pytest.approx(2.052 / np.sqrt(6), abs=1e-3)
    assert critical_difference(3, 12, alpha=0.05) == critical_difference(3, 12)
