"""Seed noise: the analysis of variance by hand, a simulation with known components, and ARLBench's landscapes."""

import numpy as np
import pytest
from analysis_samples import arlbench, with_data, write_sample

from autorl.core.types import InputError
from autorl.landscapes.analysis.noise import icc_interval, seed_noise
from autorl.landscapes.analysis.tables import final_scores


def test_by_hand():
    # means 2, 6, 10; MSW = 2, MSB = 2 * 16 = 32
    found = seed_noise([[1, 3], [5, 7], [9, 11]])
    assert found.within == pytest.approx(2.0)
    assert found.between == pytest.approx(15.0)
    assert found.icc == pytest.approx(30 / 34)
    assert found.noise_share == pytest.approx(4 / 34)
    assert found.standard_error == pytest.approx(1.0)
    assert (found.n_configurations, found.n_seeds) == (3, 2)


def test_known_components_are_recovered():
    rng = np.random.default_rng(0)
    scores = 2.0 * rng.normal(size=(4000, 1)) + rng.normal(size=(4000, 5))
    found = seed_noise(scores)
    assert found.icc == pytest.approx(0.8, abs=0.01)
    # the mean over two seeds has variance 4 + 1/2
    assert found.reliability(2) == pytest.approx(4 / 4.5, abs=0.01)


def test_the_number_of_seeds_is_the_fewest():
    rng = np.random.default_rng(1)
    found = seed_noise(rng.normal(size=(200, 1)) + 2 * rng.normal(size=(200, 10)))
    needed = found.seeds_for(0.9)
    assert found.reliability(needed) >= 0.9 > found.reliability(needed - 1)
    assert seed_noise([[1, 1], [2, 2]]).seeds_for(0.9) == 1
    assert seed_noise([[1, 2], [2, 1]]).seeds_for(0.9) is None
    with pytest.raises(InputError, match="between 0 and 1"):
        found.seeds_for(1.0)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="at least two configurations and two seeds"):
        seed_noise([[1], [2]])
    with pytest.raises(InputError, match="all scores are equal"):
        seed_noise([[1, 1], [1, 1]])


def test_of_a_landscape(tmp_path):
    data = write_sample(
        tmp_path / "a", lambda config: float(config["width"]), configs=40, noise=5.0
    )
    found = seed_noise(final_scores(data).final)
    assert found.n_configurations == 39
    assert found.within == pytest.approx(25.0, rel=0.3)
    assert len(final_scores(data, "tuning", step=100).final) == 40


@with_data
def test_published_shares_of_the_dqn_landscapes():
    found = {task: seed_noise(values[:, :, -1]).icc for task, values in arlbench("dqn").items()}
    assert np.mean(list(found.values())) == pytest.approx(0.62, abs=0.005)
    assert found["minigrid_unlock"] == pytest.approx(0.06, abs=0.005)
    assert found["minigrid_door_key"] == pytest.approx(0.28, abs=0.005)
    assert sorted(found, key=found.get)[:2] == ["minigrid_unlock", "minigrid_door_key"]


def test_the_interval_covers_the_true_share():
    """Normal scores with ICC 0.5: 95 % intervals of 40 landscapes miss it at most 8 times."""
    missed = 0
    for number in range(40):
        rng = np.random.default_rng(number)
        scores = rng.normal(size=(60, 1)) + rng.normal(size=(60, 5))
        low, high = icc_interval(scores, resamples=400)
        assert low < seed_noise(scores).icc < high
        missed += not low <= 0.5 <= high
    assert missed <= 8  # other seeds would miss more 2 % of the time at a coverage of 90 %


def test_the_interval_is_the_same_every_time_and_needs_seeds():
    scores = np.random.default_rng(0).normal(size=(20, 3))
    assert icc_interval(scores) == icc_interval(scores)
    assert icc_interval(scores) != icc_interval(scores, seed=1)
    with pytest.raises(InputError, match="at least two"):
        icc_interval(scores[:, :1])
