"""Normalisation of scores."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autorl.statistics import min_max, rank_normalise, reference_score


def test_reference_score_maps_the_references_to_zero_and_one_and_does_not_clip():
    scores = reference_score([[10.0, 0.0], [30.0, 1.0], [50.0, -1.0]], low=[10, 0], high=[30, 1])
    assert scores.tolist() == [[0, 0], [1, 1], [2, -1]]
    assert reference_score([-200.0, 0.0], -200, 200).tolist() == [0.0, 0.5]


@given(hnp.arrays(float, (5, 2), elements=st.floats(-100, 100), unique=True))
def test_min_max_spans_each_column_and_keeps_order(scores):
    scaled = min_max(scores)
    assert scaled.min(axis=0).tolist() == [0, 0]
    assert scaled.max(axis=0).tolist() == [1, 1]
    for column in range(2):
        expected = reference_score(
            scores[:, column], scores[:, column].min(), scores[:, column].max()
        )
        assert scaled[:, column] == pytest.approx(expected)


@given(hnp.arrays(float, (6, 3), elements=st.integers(0, 3).map(float)))
def test_rank_normalise_is_the_percentile_rank(scores):
    assert rank_normalise(scores) == pytest.approx(scipy.stats.rankdata(scores, axis=0) / 6)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: min_max([[1.0, 2.0], [1.0, 3.0]]), r"columns \[0\] are constant"),
        (lambda: min_max([1.0, 2.0]), "two-dimensional"),
        (lambda: min_max([[np.nan, 1.0]]), "finite"),
        (lambda: reference_score([1.0], 2.0, 2.0), "high must be larger"),
        (lambda: rank_normalise(np.empty((0, 2))), "empty"),
    ],
)
def test_refusals(call, rule):
    with pytest.raises(ValueError, match=rule):
        call()
