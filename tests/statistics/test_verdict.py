"""Verdicts on edits: boundaries against brute force, and what a session's error is."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from autorl.statistics import verdict
from autorl.statistics.verdict import FAILED, LOOKS, OPEN, PASSED, SCREEN


def test_the_levels_of_all_failures_add_up_to_the_session_s_error():
    levels = [verdict.level_after(failed) for failed in range(20_000)]
    assert sum(levels) == pytest.approx(verdict.ALPHA, rel=1e-5)
    assert all(after < before for before, after in pairwise(levels))


def test_wins_are_pairs_and_ties_are_broken_by_their_coins():
    coins = (np.array([0.1, 0.9]), np.array([0.5]))
    assert verdict.wins([1.0, 2.0], [2.0], None).tolist() == [[1.0], [0.5]]
    assert verdict.wins([2.0, 2.0], [2.0], coins).tolist() == [[1.0], [0.0]]


def test_the_law_of_wins_is_that_of_all_orders():
    """At the first look, 3 runs against 3: every choice of ranks is as likely."""
    drawn = verdict._null_wins(0)[:, 0]
    ranks = [
        sum(b > a for b in mine for a in set(range(6)) - {*mine})
        for mine in combinations(range(6), 3)
    ]
    for wins in range(10):
        expected = ranks.count(wins) / len(ranks)
        # 4.5 standard errors, 10 comparisons: a false alarm in 15,000 draws of the stream.
        assert abs((drawn == wins).mean() - expected) < 4.5 * (expected / len(drawn)) ** 0.5


def test_all_looks_together_pass_as_often_as_the_level(few_verdict_draws):
    rng = np.random.default_rng(3)
    baseline, edit = rng.gamma(0.3, size=(4_000, 50)), rng.gamma(0.3, size=(4_000, 50))
    coins = (rng.random(baseline.shape), rng.random(edit.shape))
    for pool in (0, 40):
        passed = (verdict.confirmed(baseline, edit, coins, pool, 0.05).state == PASSED).mean()
        # 4 standard errors of 4,000 judgements, and as much again of the boundary's own draws
        assert passed < 0.05 + 4 * (2 * 0.05 * 0.95 / 4_000) ** 0.5


def test_scores_that_are_all_equal_pass_no_more_often(few_verdict_draws):
    rng = np.random.default_rng(4)
    scores = np.full((2_000, 50), 500.0)
    coins = (rng.random(scores.shape), rng.random(scores.shape))
    assert not (verdict.confirmed(scores, scores, coins, 0, 0.05).state == PASSED).any()
    assert verdict.screened(scores[0], scores[0], 20).state == FAILED


def test_a_stage_of_many_is_the_stage_of_each(few_verdict_draws):
    rng = np.random.default_rng(5)
    baseline, edit = rng.normal(size=(30, 60)), rng.normal(size=(30, 50)) + 0.5
    coins = (rng.random(baseline.shape), rng.random(edit.shape))
    many = verdict.confirmed(baseline, edit, coins, 40, 0.05)
    for row in range(30):
        one = verdict.confirmed(baseline[row], edit[row], (coins[0][row], coins[1][row]), 40, 0.05)
        assert (one.state, one.runs) == (many.state[row], many.runs[row])
    assert {PASSED, FAILED} <= {*many.state.tolist()}


def test_looks_come_in_order_and_a_later_run_changes_no_earlier_one():
    rng = np.random.default_rng(6)
    baseline, edit = rng.normal(size=40), rng.normal(size=SCREEN[-1]) + 0.6
    whole = verdict.screened(baseline, edit, 30)
    for runs in SCREEN:
        part = verdict.screened(baseline, edit[:runs], 30)
        assert part.state == (OPEN if runs < whole.runs else whole.state)


def test_the_limit_is_the_largest_shift_that_passes(few_verdict_draws):
    rng = np.random.default_rng(7)
    baseline, edit = rng.normal(size=60), rng.normal(size=20) + 2
    coins = (rng.random(60), rng.random(20))
    limit = verdict.at_least(baseline, edit, 60, 0.05)
    shifts = {-1e-6: PASSED, 1e-6: 0}

    def passes(shift):
        states = [
            verdict.confirmed(baseline, edit - limit - shift, coins, 60, 0.05, first_look=look)
            for look in range(len(LOOKS))
        ]
        return PASSED if any(int(it.state) == PASSED for it in states) else 0

    assert {shift: passes(shift) for shift in shifts} == shifts


def test_a_pool_grows_with_the_session():
    assert [verdict.pools(number, 30) for number in (0, 24, 25, 99, 1_000)] == [
        (30, 60), (30, 60), (60, 120), (90, 240), (90, 300),
    ]  # fmt: skip
    assert verdict.pools(500, 0) == (0, 0)


def test_a_plan_finds_large_gains_sooner(few_verdict_draws):
    noise = np.random.default_rng(8).normal(size=30)
    small, large = (verdict.planned(noise, gain, (30, 60), 0.05) for gain in (0.5, 2.0))
    assert np.median(large) < np.median(small)
    assert np.isfinite(large).mean() > 0.9 > np.isfinite(small).mean()
