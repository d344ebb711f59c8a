"""Rank correlation, with SciPy as the oracle."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from autorl.statistics.comparison import spearman


def test_it_is_spearmans_coefficient_with_ties_averaged():
    rng = np.random.default_rng(0)
    for _ in range(5):
        first, second = rng.integers(0, 4, size=(2, 9)).astype(float)
        assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)


def test_stacks_are_correlated_along_the_last_axis():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 3, 4, 7))
    together = spearman(first, second)
    assert together.shape == (3, 4)
    assert together[1, 2] == pytest.approx(spearman(first[1, 2], second[1, 2]))


def test_a_side_that_is_constant_says_nothing():
    assert spearman([3, 3, 3], [1, 2, 3]) == 0.0
    assert spearman([[3, 3, 3], [1, 2, 3]], [[1, 2, 3], [1, 2, 3]]) == pytest.approx([0.0, 1.0])
