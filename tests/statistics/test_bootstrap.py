"""Bootstrap intervals: the reference interval, invariances, coverage by simulation, and degenerate samples."""

import numpy as np
import pytest

from autorl.statistics import bootstrap_interval, difference_interval, iqm, mean
from autorl.statistics.bootstrap import bootstrap_distribution

GRID = np.arange(80).reshape(5, 16) / 80


def rng(seed=0):
    return np.random.default_rng(seed)


def test_reference_interval_of_the_iqm():
    interval = bootstrap_interval(GRID, iqm, rng=rng(), resamples=50_000)
    assert interval.low == pytest.approx(0.405, abs=0.006)
    assert interval.high == pytest.approx(0.582, abs=0.006)
    assert (interval.level, interval.method) == (0.95, "percentile")
    assert iqm(GRID) in interval


def test_same_generator_same_interval_and_chunks_do_not_matter():
    one = bootstrap_distribution(GRID, "iqm", rng=rng(3), resamples=30_000)  # more than one chunk
    two = bootstrap_distribution(GRID, "iqm", rng=rng(3), resamples=30_000)
    other = bootstrap_distribution(GRID, "iqm", rng=rng(4), resamples=30_000)
    assert one.shape == (30_000,)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_resampling_stays_within_tasks():
    """Columns far apart: a resample that mixed tasks would move the mean by whole units."""
    scores = np.array([[0.0, 100.0], [1.0, 101.0]])
    draws = bootstrap_distribution(scores, mean, rng=rng(), resamples=2000)
    assert set(np.round(draws, 6)) == {50.0, 50.25, 50.5, 50.75, 51.0}
    # tasks are drawn independently: P(all four picks low) is 1/16, of the mean 2/16 if rows were drawn jointly 4/16
    assert np.mean(draws == 50.0) == pytest.approx(1 / 16, abs=5 * np.sqrt(15 / 256 / 2000))


def test_distribution_of_a_mean_has_the_exact_standard_error():
    values = rng(1).normal(size=20)
    draws = bootstrap_distribution(values, mean, rng=rng(2), resamples=20_000)
    assert draws.std() == pytest.approx(values.std() / np.sqrt(20), rel=0.03)
    assert draws.mean() == pytest.approx(values.mean(), abs=0.01)


@pytest.mark.parametrize(("runs", "nominal"), [(3, 0.74), (10, 0.95)])
def test_coverage_of_the_iqm_of_one_task(runs, nominal):
    """Measured reference 0.74 (n=3) and 0.95 (n=10), each +-0.01; 1,500 draws add a standard error under 0.012."""
    data, draws = rng(11), rng(12)
    hits = sum(
        0.0 in bootstrap_interval(data.normal(size=runs), iqm, rng=draws, resamples=400)
        for _ in range(1500)
    )
    assert hits / 1500 == pytest.approx(nominal, abs=0.045)


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "nominal"), [(3, 0.88), (5, 0.90), (10, 0.95), (20, 0.94)])
def test_coverage_of_the_iqm_of_ten_tasks(runs, nominal):
    """As above with 10 tasks; the reference states +-0.01."""
    data, draws = rng(13), rng(14)
    hits = sum(
        0.0 in bootstrap_interval(data.normal(size=(runs, 10)), iqm, rng=draws, resamples=600)
        for _ in range(2000)
    )
    assert hits / 2000 == pytest.approx(nominal, abs=0.035)


def test_pairing_removes_what_seeds_share():
    seeds = rng(15).normal(scale=10, size=12)
    first, second = seeds + 1 + rng(16).normal(scale=0.1, size=12), seeds
    paired = difference_interval(first, second, mean, rng=rng(17), paired=True, resamples=4000)
    apart = difference_interval(first, second, mean, rng=rng(17), resamples=4000)
    assert 1.0 in paired
    assert paired.high - paired.low < 0.3 < 5 < apart.high - apart.low
    assert paired.method == "paired percentile"


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_paired_difference_of_means_is_the_mean_of_the_differences(level):
    first, second = rng(15).normal(size=12), rng(16).normal(size=12)
    options = {"level": level, "resamples": 4000}
    paired = difference_interval(first, second, mean, rng=rng(17), paired=True, **options)
    differences = bootstrap_interval(first - second, mean, rng=rng(17), **options)
    assert (paired.low, paired.high) == pytest.approx((differences.low, differences.high))


def test_difference_of_unequal_numbers_of_runs_matches_the_closed_form_width():
    a, b = rng(18).normal(size=30), rng(19).normal(size=10)
    interval = difference_interval(a, b, mean, rng=rng(20), resamples=20_000)
    error = np.sqrt(a.var() / 30 + b.var() / 10)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.05)
    assert a.mean() - b.mean() in interval


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: bootstrap_interval([1.0], rng=rng()), "at least 2 runs"),
        (lambda: bootstrap_interval([1.0, np.nan], rng=rng()), "finite"),
        (lambda: bootstrap_interval([1.0, 2.0], rng=rng(), level=1.0), "strictly between 0 and 1"),
        (lambda: difference_interval(GRID, GRID, rng=rng(), level=1.0), "strictly between 0 and 1"),
        (lambda: bootstrap_interval([1.0, 2.0], rng=rng(), resamples=0), "at least 1"),
        (lambda: difference_interval(GRID, GRID[:, :3], rng=rng()), "same tasks"),
        (lambda: difference_interval(GRID, GRID[:3], rng=rng(), paired=True), "same shape"),
        (lambda: difference_interval(GRID, GRID[:1], rng=rng()), "second has 1"),
    ],
)
def test_refusals(call, rule):
    with pytest.raises(ValueError, match=rule):
        call()


# -- by the definitions ------------------------------------------------------------------------------------------------

SKEWED = [0.0, 0.1, 0.15, 0.3, 0.35, 0.9, 2.5]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_a_percentile_interval_is_of_the_two_tails(level):
    draws = bootstrap_distribution(SKEWED, mean, rng=rng(1), resamples=999)
    found = bootstrap_interval(SKEWED, mean, rng=rng(1), resamples=999, level=level)
    tail = (1 - level) / 2
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [tail, 1 - tail])))
    assert found.level == level


@pytest.mark.parametrize("chunk", [1, 50, 7 * 101, 10**9])
def test_there_are_as_many_resamples_however_many_are_in_memory_at_once(monkeypatch, chunk):
    from autorl.statistics import bootstrap

    monkeypatch.setattr(bootstrap, "_CHUNK", chunk)
    draws = bootstrap_distribution(SKEWED, mean, rng=rng(3), resamples=101)
    assert draws.shape == (101,)
    assert draws.mean() == pytest.approx(np.mean(SKEWED), abs=0.2)
