"""Aggregates: numbers checkable by hand, the published reference values, loops as oracles, and what is refused."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autorl.core.types import InputError
from autorl.statistics import cvar, iqm, mean, median, parse_aggregate, quantile, ranking, select
from autorl.statistics.aggregates import mean_minus_std, worst

X = np.array([[1, 2], [2, 2], [1, 1], [2, 1]])
Y = np.array([[1, 1], [2, 2], [3, 3]])
GRID = np.arange(80).reshape(5, 16) / 80
ENDURO_A = [409.2, 383.3, 434.4, 430.2, 398.9]

tables = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7),
    elements=st.floats(-1e3, 1e3, allow_subnormal=False),
)


@pytest.mark.parametrize("aggregate", [mean, median, iqm])
@pytest.mark.parametrize(("scores", "expected"), [(X, 1.5), (Y, 2.0), (GRID, 0.49375)])
def test_reference_arrays(aggregate, scores, expected):
    assert aggregate(scores) == pytest.approx(expected, abs=1e-12)


def loop_iqm(values):
    ordered = sorted(values)
    drop = math.floor(0.25 * len(ordered))
    kept = ordered[drop : len(ordered) - drop]
    return sum(kept) / len(kept)


def loop_cvar(values, alpha):
    left, total = alpha * len(values), 0.0
    for value in sorted(values):
        weight = min(1.0, left)
        total += weight * value
        left -= weight
    return total / (alpha * len(values))


@given(tables)
def test_pooled_aggregates_equal_loops(scores):
    values = scores.ravel().tolist()
    assert mean(scores) == pytest.approx(sum(values) / len(values), abs=1e-9)
    assert iqm(scores) == pytest.approx(loop_iqm(values), abs=1e-9)
    ordered = sorted(values)
    middle = len(values) // 2
    expected = ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    assert median(scores) == pytest.approx(expected, abs=1e-9)


@given(tables, st.floats(0.01, 1))
def test_cvar_equals_a_loop_and_lies_between_minimum_and_mean(scores, alpha):
    value = cvar(alpha)(scores)
    assert value == pytest.approx(loop_cvar(scores.ravel().tolist(), alpha), abs=1e-8)
    assert scores.min() - 1e-9 <= value <= scores.mean() + 1e-9


@given(tables, st.floats(0, 1))
def test_quantile_is_linear_between_order_statistics(scores, q):
    ordered = sorted(scores.ravel().tolist())
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    expected = ordered[low] + (position - low) * (ordered[high] - ordered[low])
    assert quantile(q)(scores) == pytest.approx(expected, abs=1e-8)


@given(hnp.arrays(np.float64, (3, 5, 2), elements=st.floats(-10, 10)))
def test_stacked_equals_one_at_a_time(stack):
    for aggregate in (mean, median, iqm, worst, cvar(0.3), quantile(0.1), mean_minus_std(2)):
        assert aggregate.stacked(stack) == pytest.approx([aggregate(scores) for scores in stack])


def test_cautious_aggregates_by_hand():
    """A variance of ((-2)^2 + 0 + 2^2) / 2 = 4."""
    assert worst([3.0, 1.0, 5.0]) == 1.0
    assert mean_minus_std(1.5)([3.0, 1.0, 5.0]) == 0.0
    assert mean_minus_std(1.5)([3.0]) == 3.0


@pytest.mark.parametrize("aggregate", [mean, cvar(0.2)])
@pytest.mark.parametrize(
    ("scores", "rule"),
    [
        (np.empty((3, 0)), "must not be empty"),
        ([1.0, float("nan")], "1 of 2 values are NaN"),
        (5.0, "must have shape"),
        ([[1, 2], [3]], "array of numbers"),
    ],
)
def test_bad_scores_are_refused_with_the_rule(aggregate, scores, rule):
    with pytest.raises(ValueError, match=rule):
        aggregate(scores)


@pytest.mark.parametrize(
    "make", [lambda: cvar(0), lambda: cvar(1.1), lambda: quantile(-0.1), lambda: cvar(math.nan)]
)
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match="must lie in"):
        make()


@pytest.mark.parametrize(
    "text",
    [
        "mean",
        "median",
        "iqm",
        "cvar(0.2)",
        " quantile( 0.25 ) ",
        "cvar(1e-1)",
        "worst",
        "mean_minus_std(1)",
    ],
)
def test_parse_round_trips_and_pickles(text):
    aggregate = parse_aggregate(text)
    again = pickle.loads(pickle.dumps(parse_aggregate(aggregate.name)))
    assert again(ENDURO_A) == aggregate(ENDURO_A)
    assert parse_aggregate(aggregate) is aggregate
    assert aggregate.__doc__


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("iqn", "did you mean 'iqm'"),
        ("cvar", "needs one number"),
        ("cvar(a)", "needs one number"),
        ("cvar(2)", r"must lie in \(0, 1\]"),
        ("mean_minus_std(-1)", "finite number >= 0"),
        ("mean(3)", "takes no number"),
        ("quantile(0.5, 0.6)", "needs one number"),
        ("max", "allowed: mean, median"),
        (3, "unknown name"),
    ],
)
def test_parse_refuses_with_what_is_allowed(text, rule):
    with pytest.raises(InputError, match=rule):
        parse_aggregate(text)


def test_select_breaks_ties_by_mean_then_spread_then_order():
    capped = [[0, *[500] * 4], [400, *[500] * 4], [400, *[500] * 4], [499] * 5]
    assert select(capped, "iqm") == 1
    assert select([[4, 6], [5, 5], [3, 7], [5, 5]], "mean") == 1
    wide = [[1, 5, 6], [4, 5, 5], [2, 5, 8]]
    assert select(wide, "median") == 2, "the larger mean, although it spreads more"
    assert select([[1.0], [2.0], [2.0]]) == 1
    assert ranking([[1, 3], [5, 5], [4, 6], [0, 9]]).tolist() == [1, 2, 3, 0]
    with pytest.raises(ValueError, match="finite"):
        select([[1.0, math.nan]])
