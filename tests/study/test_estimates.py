"""Scores on test seeds: the aggregate, its intervals, and the difference of two."""

import numpy as np
import pytest
from study_support import small_spec

from autorl.core import seeds as streams
from autorl.statistics import bootstrap_interval, difference_interval, iqm
from autorl.study.results.estimates import Estimate, difference, estimate

SCORES = {102: 5.0, 100: 1.0, 101: 2.0, 103: 9.0, 104: 4.5}
ORDERED = [1.0, 2.0, 5.0, 9.0, 4.5]  # by seed


def bounds(interval):
    return interval.low, interval.high


def plain(seeds, failed=0, failed_value=None):
    return Estimate(0.0, None, 0.0, None, seeds, failed, failed_value)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_intervals_are_of_the_bootstrap_and_lie_within_the_scores(direction):
    spec = small_spec(objective={"direction": direction})
    found = estimate(spec, 7, SCORES, [])
    sign = 1.0 if direction == "maximize" else -1.0
    assert found.value == pytest.approx(np.mean(ORDERED))
    assert min(ORDERED) <= found.interval.low < found.value < found.interval.high <= max(ORDERED)
    drawn = bootstrap_interval(
        sign * np.array(ORDERED), iqm, rng=streams.generator(spec.seed, "test", 7)
    )
    expected = sorted(sign * bound for bound in bounds(drawn))
    assert found.iqm == pytest.approx(iqm(ORDERED))
    assert bounds(found.iqm_interval) == pytest.approx(tuple(expected))
    assert found.iqm_interval.low < found.iqm < found.iqm_interval.high
    assert list(found.seeds) == [100, 101, 102, 103, 104]


@pytest.mark.parametrize(("direction", "value"), [("maximize", 1.0), ("minimize", 9.0)])
def test_a_tail_is_the_worse_one_of_the_metrics_direction(direction, value):
    spec = small_spec(objective={"direction": direction}, evaluation={"aggregate": "cvar(0.2)"})
    found = estimate(spec, 0, SCORES, [])
    assert found.value == value
    assert found.interval.method == "percentile"
    assert found.interval.low <= value <= found.interval.high


def test_failed_runs_are_in_no_number_unless_the_study_file_says_theirs():
    left_out = estimate(small_spec(), 0, {100: 1.0, 101: 3.0}, [102])
    assert (left_out.value, left_out.failed, left_out.failed_value) == (2.0, 1, None)
    assert (len(left_out.seeds), left_out.runs) == (2, 3)
    counted = estimate(small_spec(failures={"penalty": -4.0}), 0, {100: 1.0, 101: 3.0}, [102])
    assert (counted.value, counted.failed, counted.failed_value) == (0.0, 1, -4.0)
    assert (dict(counted.seeds), counted.runs) == ({100: 1.0, 101: 3.0, 102: -4.0}, 3)
    none_failed = estimate(small_spec(failures={"penalty": -4.0}), 0, {100: 1.0}, [])
    assert (none_failed.failed, none_failed.failed_value, none_failed.runs) == (0, None, 1)


# -- the difference ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_difference_is_resampled_in_pairs_of_seeds_in_the_metrics_direction(direction):
    spec = small_spec(objective={"direction": direction})
    first = {100: 1.0, 101: 5.0, 102: 3.0, 103: 8.0, 105: 99.0}
    second = {103: 6.5, 102: 2.5, 101: 3.0, 100: 0.0, 104: -99.0}
    found = difference(spec, plain(first), plain(second))
    sign = 1.0 if direction == "maximize" else -1.0
    shared = [100, 101, 102, 103]
    drawn = difference_interval(
        [sign * first[seed] for seed in shared],
        [sign * second[seed] for seed in shared],
        "iqm",
        rng=streams.generator(spec.seed, "test", "difference"),
        paired=True,
    )
    assert bounds(found) == pytest.approx(tuple(sorted(sign * bound for bound in bounds(drawn))))
    assert found.method == "paired percentile"
    assert 0 < found.low <= found.high < 3


def test_a_difference_needs_two_seeds_that_both_have():
    two = plain({100: 1.0, 101: 4.0})
    assert difference(small_spec(), two, plain({101: 2.0, 102: 0.0})) is None
    assert bounds(difference(small_spec(), two, plain({100: 0.0, 101: 2.0}))) == (1.0, 2.0)
