"""Checks of arrays of scores: what passes, and what is said of the rest."""

import numpy as np
import pytest

from autorl.statistics.arrays import as_scores, as_table, as_vector, finite


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
