"""Gap, overtuning and regret against a loop over the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorl.statistics import overtuning_trace, regret

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=9)


def test_by_hand():
    trace = overtuning_trace([1, 3, 2, 4, 4], [2, 6, 9, 1, 8])
    assert trace.incumbent.tolist() == [0, 1, 1, 3, 3]
    assert trace.gap.tolist() == [-1, -3, -3, 3, 3]
    assert trace.overtuning.tolist() == [0, 0, 0, 5, 5]
    assert math.isnan(trace.relative[0])
    assert trace.relative[1:].tolist() == [0, 0, 1.25, 1.25]


@given(pairs)
def test_equals_the_definitions(scores):
    tuning, test = [float(a) for a, _ in scores], [float(b) for _, b in scores]
    trace = overtuning_trace(tuning, test)
    chosen = []
    for t in range(len(tuning)):
        chosen.append(tuning.index(max(tuning[: t + 1])))
        so_far = max(test[i] for i in chosen)
        assert trace.incumbent[t] == chosen[t]
        assert trace.gap[t] == tuning[chosen[t]] - test[chosen[t]]
        assert trace.overtuning[t] == so_far - test[chosen[t]]
        gained = so_far - test[chosen[0]]
        if gained == 0:
            assert math.isnan(trace.relative[t])
        else:
            assert trace.relative[t] == pytest.approx(trace.overtuning[t] / gained)


def test_relative_above_one_means_worse_than_the_first():
    assert overtuning_trace([1, 2, 3], [5, 7, 4]).relative[-1] == 1.5


def test_regret():
    assert regret([1.0, 4.0, 2.0], 2) == 2.0
    assert regret([1.0, 4.0, 2.0], 1) == 0.0


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: overtuning_trace([], []), "empty"),
        (lambda: overtuning_trace([1.0, 2.0], [1.0]), "same shape"),
        (lambda: overtuning_trace([np.nan], [1.0]), "finite"),
        (lambda: overtuning_trace([[1.0]], [[1.0]]), "one-dimensional"),
        (lambda: regret([1.0], 1), r"0\.\.0"),
        (lambda: regret([1.0], -1), r"0\.\.0"),
    ],
)
def test_refusals(call, rule):
    with pytest.raises(ValueError, match=rule):
        call()
