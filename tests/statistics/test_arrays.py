"""Checks of arrays of scores: what passes, and what is said of the rest."""

import numpy as np
import pytest

from autorl.statistics.arrays import as_scores, as_table, as_vector, finite, in_range, same_shape


def test_flat_values_are_runs_of_one_task():
    assert as_scores([1, 2, 3]).tolist() == [[1.0], [2.0], [3.0]]
    assert as_scores([[1, 2, 3]]).tolist() == [[1.0, 2.0, 3.0]]


def test_a_table_has_as_many_columns_as_are_asked_for():
    assert as_table([[1], [2]], "x").shape == (2, 1)
    assert as_table([[1, 2]], "x", columns=2).shape == (1, 2)
    assert as_table([[1, 2, 3]], "x", columns=2).shape == (1, 3)
    with pytest.raises(ValueError, match=r"x must be two-dimensional with at least 3 columns.*2"):
        as_table([[1, 2]], "x", columns=3)


@pytest.mark.parametrize(
    ("check", "values", "rule"),
    [
        (finite, [], r"x must not be empty, got shape \(0,\)"),
        (finite, [1.0, np.nan, np.inf], "x must be finite: 2 of 3 values are NaN or infinite"),
        (finite, "text", "x must be an array of numbers"),
        (as_scores, 3.0, r"x must have shape \(n,\) or \(n runs, m tasks\), got \(\)"),
        (as_scores, np.ones((1, 1, 1)), "x must have shape"),
        (as_vector, [[1.0]], r"x must be one-dimensional, got shape \(1, 1\)"),
        (as_vector, 1.0, "x must be one-dimensional"),
        (as_table, [1.0], "x must be two-dimensional with at least 1 columns"),
        (as_table, np.ones((2, 2, 2)), "x must be two-dimensional"),
    ],
)
def test_what_does_not_pass_is_said_with_the_rule(check, values, rule):
    with pytest.raises(ValueError, match=rule):
        check(values, "x")


def test_shapes_are_compared():
    same_shape(np.ones((2, 3)), np.zeros((2, 3)), "a and b")
    with pytest.raises(
        ValueError, match=r"a and b must have the same shape, got \(2,\) and \(3,\)"
    ):
        same_shape(np.ones(2), np.ones(3), "a and b")


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.1, np.nan])
def test_a_bound_itself_is_out_of_range(value):
    with pytest.raises(ValueError, match="alpha must lie strictly between 0 and 1"):
        in_range(value, "alpha", 0.0, 1.0)
    assert in_range(0.5, "alpha", 0.0, 1.0) == 0.5
