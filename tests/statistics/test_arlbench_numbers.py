"""Published numbers of ARLBench's landscapes, from the raw files beside the checkout (skipped without them)."""

from pathlib import Path

import numpy as np
import pytest

from autorl.statistics import auc, iqm, mean, select

DATA = Path(__file__).parents[3] / "shared" / "data" / "arlbench" / "landscapes"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="ARLBench's raw files are not beside the checkout"
)


def curves(name, floor=None):
    """Evaluation returns (configurations, seeds 0-9, evaluations)."""
    import pandas as pd

    table = pd.read_csv(DATA / f"{name}.csv.gz").sort_values(["run_id", "seed", "budget"])
    values = table["performance"].to_numpy().reshape(256, 10, 10)
    return values if floor is None else np.maximum(values, floor)


@pytest.mark.parametrize(
    ("name", "floor", "expected", "spread"),
    [
        ("atari_battle_zone_dqn", None, 23073.44, 4926.62),
        ("box2d_lunar_lander_dqn", -200, 98.64, 72.33),
        ("cc_cartpole_dqn", None, 492.66, 23.20),
        ("cc_cartpole_ppo", None, 500.0, 0.0),
    ],
)
def test_best_mean_at_the_last_checkpoint(name, floor, expected, spread):
    scores = curves(name, floor)[:, :, -1]
    chosen = select(scores, "mean")
    assert mean(scores[chosen]) == pytest.approx(expected, abs=0.005)
    assert scores[chosen].std(ddof=1) == pytest.approx(spread, abs=0.005)


@pytest.mark.parametrize(
    ("name", "expected"), [("atari_battle_zone_dqn", 16799.61), ("cc_cartpole_dqn", 384.55)]
)
def test_best_mean_area_under_the_curve(name, expected):
    assert auc.stacked(curves(name)).mean(axis=1).max() == pytest.approx(expected, abs=0.005)


def test_choosing_by_iqm_on_five_seeds_overstates_cartpole():
    """The demonstration: the first of the tied configurations is 8, tuning IQM 500.0, test IQM 370.73."""
    scores = curves("cc_cartpole_dqn")[:, :, -1]
    first_tied = int(np.argmax([iqm(row[:5]) for row in scores]))
    assert first_tied == 8
    assert iqm(scores[8, :5]) == 500.0
    assert iqm(scores[8, 5:]) == pytest.approx(370.73, abs=0.005)
    chosen = select(
        scores[:, :5], "iqm"
    )  # ties broken by mean: every tuning seed at the cap, and still far below on test
    assert chosen == 136
    assert mean(scores[chosen, :5]) == 500.0
    assert iqm(scores[chosen, 5:]) < 400
