"""Budget correlation and the regret of choosing early: against scipy, a closed form, and ARLBench's landscapes."""

import numpy as np
import pytest
from analysis_samples import SPACE, arlbench, with_data, write_sample
from scipy.stats import spearmanr

from autorl.core.types import InputError
from autorl.landscapes.analysis.fidelity import (
    budget_correlation,
    budget_table,
    correlation_intervals,
    early_choice_regret,
)


def test_the_matrix_is_scipys():
    values = np.random.default_rng(0).normal(size=(30, 4, 5)).cumsum(axis=2)
    expected = spearmanr(values.mean(axis=1)).statistic
    assert budget_correlation(values) == pytest.approx(expected)


def test_a_checkpoint_that_says_nothing_correlates_zero():
    values = np.stack([np.zeros(6), np.arange(6.0)], axis=1)[:, None, :]
    assert budget_correlation(values).tolist() == [[0, 0], [0, 1]]


def test_intervals_by_a_loop():
    values = np.random.default_rng(0).normal(size=(30, 4, 3)).cumsum(axis=2)
    low, high = correlation_intervals(values, resamples=50)
    means = values.mean(axis=1)
    rows = np.random.default_rng(0).integers(30, size=(50, 30))
    drawn = np.array(
        [
            [spearmanr(means[row, step], means[row, -1]).statistic for step in range(3)]
            for row in rows
        ]
    )
    assert low == pytest.approx(np.quantile(drawn, 0.025, axis=0))
    assert high == pytest.approx(np.quantile(drawn, 0.975, axis=0))
    assert (low[-1], high[-1]) == pytest.approx((1.0, 1.0))


def test_regret_by_hand():
    values = np.array([[[5.0, 0.0, 10.0]], [[5.0, 9.0, 4.0]], [[1.0, 1.0, 0.0]]])
    assert early_choice_regret(values).tolist() == pytest.approx([(0 + 0.6) / 2, 0.6, 0.0])
    with pytest.raises(InputError, match="score the same"):
        early_choice_regret(np.ones((3, 2, 2)))


def test_table_of_a_landscape(tmp_path):
    unit = SPACE.hyperparameters["learning_rate"].to_unit
    data = write_sample(
        tmp_path / "a", lambda config: 100 * unit(config["learning_rate"]), configs=16
    )
    table = budget_table(data)
    assert table.step.tolist() == [100, 200, 300]
    assert table.fraction.tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert table.correlation.iloc[-1] == 1.0
    assert (table.correlation > 0.95).all()
    assert table.regret.iloc[-1] == 0.0


@with_data
def test_mean_correlation_of_the_dqn_landscapes_at_half_the_budget():
    half = [budget_correlation(values)[-1, 4] for values in arlbench("dqn").values()]
    assert len(half) == 13
    assert np.mean(half) == pytest.approx(0.75, abs=0.005)


@with_data
def test_some_minigrid_landscapes_say_nothing_at_a_tenth_of_the_budget():
    early = {task: budget_correlation(values)[-1, 0] for task, values in arlbench("dqn").items()}
    assert early["minigrid_door_key"] == 0.0  # no configuration has learned anything by then
    assert abs(early["minigrid_unlock"]) < 0.05
