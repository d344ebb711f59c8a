"""Tunability: by hand, and the published means of ARLBench's landscapes."""

import numpy as np
import pytest
from analysis_samples import means, with_data

from autorl.landscapes.analysis.tunability import tunability_of
from autorl.types import InputError


def test_by_hand():
    found = tunability_of([30.0, 10.0, 20.0, 12.0])
    assert found.value == pytest.approx(1 - 0.3)
    assert found.curve.tolist() == pytest.approx([1, 0.9, 0.5, 0])
    assert found.area == pytest.approx((0.95 + 0.7 + 0.25) / 3)
    assert found.near_best == 0.25
    for q in (0.0, 0.2, 0.5, 0.77, 1.0):
        assert found.at(q) == pytest.approx(1 - np.quantile([0, 0.1, 0.5, 1], q))


def test_the_area_tells_one_peak_from_many():
    assert tunability_of([0.0] * 999 + [1.0]).area > 0.999
    assert tunability_of([0.0] + [1.0] * 999).area < 0.001


def test_mistakes_are_named():
    with pytest.raises(InputError, match="score the same"):
        tunability_of([1.0, 1.0])
    with pytest.raises(InputError, match=r"lies in \[0, 1\]"):
        tunability_of([1.0, 2.0]).at(1.5)


@with_data
def test_published_means_of_the_dqn_landscapes():
    found = [tunability_of(column) for column in means("dqn")[1].T]
    assert np.mean([each.value for each in found]) == pytest.approx(0.89, abs=0.005)
    assert np.mean([each.near_best for each in found]) == pytest.approx(0.035, abs=0.001)
