"""Scores on test seeds: the aggregate, its intervals, and the difference of two."""

import numpy as np
import pytest
from scipy.stats import binom
from study_support import small_spec

from autorl.core import seeds as streams
from autorl.core.types import StudyError
from autorl.statistics import bootstrap_interval, difference_interval, iqm
from autorl.study.results.estimates import Entry, Estimate, difference, estimate, told_apart

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


# -- as many test seeds as it takes ------------------------------------------------------------------------------------


def decide(values, most=25, **changes):
    """The verdict on two candidates, looking at five more test seeds at a time, and the seeds it took."""
    for have in range(5, most + 1, 5):
        spec = small_spec(seeds={"tuning": 2, "test": have}, **changes)
        entries = [
            Entry(
                label,
                0,
                ((0, None),),
                0.0,
                plain(dict(zip(spec.plan.test, scores, strict=False))),
                100,
            )
            for label, scores in zip(("incumbent", "default"), values, strict=True)
        ]
        test = told_apart(spec, *entries, most)
        if not test.needs:
            return test.verdicts["first", "second"], have
    raise AssertionError("no verdict after the last look")


def test_candidates_are_told_apart_in_the_direction_of_the_metric():
    draws = np.random.default_rng(0).normal(size=(2, 25))
    assert decide((draws[0] + 3, draws[1])) == ("larger", 5)
    assert decide((draws[0] + 3, draws[1]), objective={"direction": "minimize"}) == ("smaller", 5)
    assert decide((draws[0], draws[0][::-1])) == ("equal", 25)


def test_a_failed_run_leaves_no_decision():
    with pytest.raises(StudyError, match="incumbent's run on test seed 103 failed"):
        decide((np.arange(3.0), np.arange(25.0)))


@pytest.mark.slow
def test_two_equal_agents_are_told_apart_in_at_most_a_twentieth_of_studies():
    """2,000 studies of equal agents whose returns have a heavy tail."""
    draws = np.random.default_rng(5).standard_t(3, size=(2000, 2, 25))
    different = sum(decide(pair, seed=number)[0] != "equal" for number, pair in enumerate(draws))
    assert different <= binom.ppf(1 - 1e-5, 2000, 0.05)
    print(different / 2000)
