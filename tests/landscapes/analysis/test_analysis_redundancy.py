"""Redundancy: the smallest cover and the expected number of trials, by brute force."""

from itertools import combinations, permutations

import numpy as np
import pytest
from analysis_samples import arlbench, with_data

from autorl.core.types import InputError
from autorl.landscapes.analysis.redundancy import detectable_difference, redundancy_of


def smallest_cover(values, epsilon):
    for size in range(1, len(values) + 1):
        for centres in combinations(values, size):
            if all(min(abs(value - centre) for centre in centres) <= epsilon for value in values):
                return size
    raise AssertionError


@pytest.mark.parametrize("seed", range(5))
def test_the_cover_is_the_smallest(seed):
    values = np.random.default_rng(seed).integers(0, 30, 8).astype(float)
    for epsilon in (0.0, 1.0, 3.0, 7.0, 40.0):
        assert redundancy_of(values[:, None], epsilon).distinct == smallest_cover(values, epsilon)


def test_expected_trials_over_every_order():
    values = np.array([1.0, 5.0, 2.0, 4.6, 3.0, 4.9])
    found = redundancy_of(values[:, None], 0.5)
    first = [
        next(i for i, value in enumerate(order, 1) if value >= 4.5)
        for order in permutations(values)
    ]
    assert found.as_good == 3
    assert found.expected_trials == pytest.approx(np.mean(first))
    assert found.share == pytest.approx(1 - 4 / 6)


def test_noise_alone_rarely_exceeds_the_detectable_difference():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 4))
    limit = detectable_difference(scores)
    apart = np.abs(np.diff(scores.mean(axis=1).reshape(-1, 2), axis=1)) > limit
    assert apart.mean() == pytest.approx(0.05, abs=0.01)
    assert redundancy_of(scores).epsilon == limit


def test_mistakes_are_named():
    with pytest.raises(InputError, match="epsilon must be at least 0"):
        redundancy_of([[1.0], [2.0]], -1.0)
    with pytest.raises(InputError, match="two seeds"):
        redundancy_of([[1.0], [2.0]])
    with pytest.raises(InputError, match="expected scores"):
        redundancy_of([1.0, 2.0])


@with_data
def test_most_of_a_real_landscape_is_redundant():
    found = redundancy_of(arlbench("dqn")["cc_cartpole"][:, :, -1])
    assert 2 <= found.distinct <= 10
    assert found.share > 0.9
