"""Fronts of several objectives: the volume they dominate, beside Optuna's."""

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from autorl.statistics.fronts import hypervolume, undominated


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_volume_is_optunas(objectives):
    draws = np.random.default_rng(objectives)
    for count in (1, 2, 7, 20):
        points = draws.normal(size=(count, objectives)).round(1)  # some are equal
        reference = np.full(objectives, -0.5)
        above = np.maximum(points, reference)  # Optuna refuses points below the reference
        expected = compute_hypervolume(-above, -reference)
        assert hypervolume(points, reference) == pytest.approx(expected, abs=1e-9)


def test_equal_points_are_in_a_front_once():
    equal = dict.fromkeys((0, 1, 3, 4, 5, 6, 7), (0.7, -1.0))
    assert undominated({**equal, 2: (8.2, -3.0)}) == [0, 2]
    assert undominated({**equal, 2: (0.7, -3.0)}) == [0]
    assert undominated({}) == []
