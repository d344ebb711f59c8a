"""Reductions of learning curves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorl.core.types import InputError
from autorl.statistics import auc, best, last, mean_last, parse_reduction
from autorl.statistics.reductions import time_to

CURVE = [1.0, 5.0, 3.0, 5.0, 2.0]
curves = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8)


@given(curves, st.integers(1, 10))
def test_equal_loops(curve, k):
    assert last(curve) == curve[-1]
    assert best(curve) == max(curve)
    assert auc(curve) == pytest.approx(sum(curve) / len(curve), abs=1e-9)
    tail = curve[max(0, len(curve) - k) :]
    assert mean_last(k)(curve) == pytest.approx(sum(tail) / len(tail), abs=1e-9)


def test_stacked_reduces_the_last_axis():
    stack = np.arange(24.0).reshape(2, 3, 4)
    for reduction in (last, best, auc, mean_last(2)):
        assert reduction.stacked(stack).shape == (2, 3)
        assert reduction.stacked(stack)[1, 2] == reduction(stack[1, 2])


def test_time_to_is_the_first_step_at_the_score_else_twice_the_horizon():
    reached, never = [1.0, 5.0, 3.0], [1.0, 4.9, 3.0]
    at_steps = time_to(5).at([10, 20, 40], 100, 1.0)
    assert at_steps(np.array([reached, never])).tolist() == [-20.0, -200.0]
    assert np.isnan(at_steps(np.array([1.0, math.nan, 9.0]))), "lacks a value: no time"
    # Of a metric of which less is better, curves come negated, and the goal is as it is written.
    assert time_to(3).at([10, 20, 40], 100, -1.0)(-np.array([9.0, 3.0, 1.0])) == -20.0
    assert (time_to(5)(reached), time_to(5)(never)) == (-2.0, -6.0), "evaluations without steps"
    assert (time_to(3).sign(1.0), time_to(3).sign(-1.0), last.sign(-1.0)) == (-1.0, -1.0, -1.0)
    assert last.at([10, 20, 40], 100, 1.0)(np.array(reached)) == 3.0


@pytest.mark.parametrize("text", ["last", "best", "auc", "mean_last(3)", "time_to(2.5)"])
def test_parse_round_trips(text):
    reduction = parse_reduction(text)
    assert reduction.name == text
    assert parse_reduction(reduction.name)(CURVE) == reduction(CURVE)
    assert reduction.chooses_step == (text == "best")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("lst", "did you mean 'last'"),
        ("mean_last", "needs one number"),
        ("mean_last(0)", "whole number"),
        ("mean_last(2.5)", "whole number"),
        ("mean_last(inf)", "whole number"),
        ("mean_last(nan)", "whole number"),
        ("auc(2)", "takes no number"),
        ("time_to(inf)", "must be finite"),
        ("time_to", "needs one number"),
    ],
)
def test_parse_refuses(text, rule):
    with pytest.raises(InputError, match=rule):
        parse_reduction(text)


@pytest.mark.parametrize("k", [0, -1, 2.0, True])
def test_mean_last_needs_a_whole_number(k):
    with pytest.raises(ValueError, match="whole number"):
        mean_last(k)


def test_the_last_evaluation_alone_can_be_averaged():
    assert parse_reduction("mean_last(1)")(CURVE) == mean_last(1)(CURVE) == 2.0
    assert parse_reduction("mean_last(2.0)").name == "mean_last(2)"
    assert (mean_last(4).window, best.window, time_to(4).window) == (4, None, None)
