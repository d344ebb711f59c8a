"""Performance by hyperparameter value: groups and statistics against plain loops."""

import numpy as np
import pytest
from analysis_samples import SPACE, write_sample
from refusals import expect_error

from autorl.landscapes import analysis
from autorl.landscapes.analysis import values
from autorl.landscapes.analysis.tables import final_scores
from autorl.landscapes.analysis.values import performance_by_value
from autorl.landscapes.regression import configurations

CONFIGS = [SPACE.sample(np.random.default_rng(number)) for number in range(60)]
MEANS = np.random.default_rng(0).permutation(60).astype(float)


def test_choices():
    table = performance_by_value(SPACE, CONFIGS, MEANS, "activation")
    assert table["value"].tolist() == ["tanh", "relu", "silu"]
    for row in table.itertuples():
        members = MEANS[[config["activation"] == row.value for config in CONFIGS]]
        assert row.n == len(members)
        assert [row.mean, row.median, row.best] == pytest.approx(
            [members.mean(), np.median(members), members.max()]
        )
        assert [row.sd, row.q25] == pytest.approx([members.std(ddof=1), np.quantile(members, 0.25)])
        assert row.top_share == pytest.approx((members >= 54).sum() / 6)
    assert table.n.sum() == 60
    assert table.top_share.sum() == pytest.approx(1.0)


def test_bins_are_equal_on_the_scale(monkeypatch):
    monkeypatch.setattr(values, "_BINS", 4)
    table = performance_by_value(SPACE, CONFIGS, MEANS, "learning_rate")
    for row, (low, high) in zip(
        table.itertuples(), [(1e-5, 1e-4), (1e-4, 1e-3), (1e-3, 1e-2), (1e-2, 1e-1)], strict=True
    ):
        inside = np.array([low <= config["learning_rate"] < high for config in CONFIGS])
        assert row.n == inside.sum()
        assert row.mean == pytest.approx(MEANS[inside].mean())
        assert low <= row.low <= row.high < high


def test_inactive_is_a_group_of_its_own(monkeypatch):
    monkeypatch.setattr(values, "_BINS", 5)
    table = performance_by_value(SPACE, CONFIGS, MEANS, "interval")
    without = np.array([not config["target"] for config in CONFIGS])
    assert table["value"].iloc[-1] == "inactive"
    assert table.n.iloc[-1] == without.sum()
    assert table["mean"].iloc[-1] == pytest.approx(MEANS[without].mean())
    assert table.n.sum() == 60


def test_empty_groups_and_single_members(monkeypatch):
    monkeypatch.setattr(values, "_BINS", 50)
    table = performance_by_value(SPACE, CONFIGS[:2], MEANS[:2], "learning_rate")
    assert table.n.sum() == 2
    assert table["mean"].isna().sum() == 48
    assert table.sd.isna().all()


def test_of_a_landscape(tmp_path):
    data = write_sample(tmp_path / "a", lambda config: float(config["width"]), configs=20)
    curves = final_scores(data, "tuning")
    configs = configurations(data, curves.config_ids)
    assert configs == [data.config(int(each)) for each in curves.config_ids]
    expected = performance_by_value(SPACE, configs, curves.means, "width")
    found = analysis.analyse(data, "values", ["width"], "tuning")
    assert found.table.equals(expected)
    assert expected["mean"].dropna().is_monotonic_increasing
    expect_error("did you mean 'width'", performance_by_value, SPACE, CONFIGS, MEANS, "widht")
    expect_error("no configuration 99", configurations, data, [3, 99])
