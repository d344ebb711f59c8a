"""The importances of a study's page, against scikit-learn's forest over the same scores."""

import numpy as np
import pytest

from autorl.core.types import Config
from autorl.landscapes.analysis.forest import dependence_surface, fit_forest
from autorl.landscapes.analysis.variance import fanova
from autorl.report.configurations import COMPLETE, PRUNED, ConfigurationRow
from autorl.report.importance import SAMPLE, importance_blocks
from autorl.space import load_space

SPACE = load_space(
    {
        "hyperparameters": {
            "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5},
            "rate": {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log", "default": 0.1},
            "kind": {"type": "categorical", "choices": ["a", "b", "c"], "default": "a"},
            "idle": {"type": "int", "lower": 1, "upper": 8, "default": 2},
            "fixed": {"type": "constant", "value": 3},
        }
    }
)


def score(config):
    x, rate = config["x"], np.log10(config["rate"]) / 4
    return x * 2 + x * rate + {"a": 0.0, "b": 0.3, "c": 0.9}[config["kind"]]


def rows_of(count, state=COMPLETE):
    rng = np.random.default_rng(1)
    drawn = [Config(SPACE.sample(rng)) for _ in range(count)]
    return [
        ConfigurationRow(place, state, score(config), False, config)
        for place, config in enumerate(drawn)
    ]


def test_shares_and_surface_are_those_of_the_large_forest():
    rows = rows_of(400)
    (row,) = importance_blocks(SPACE, rows, "score")
    bars, surface = (figure.chart for figure in row.blocks)
    forest = fit_forest(SPACE, [row.values for row in rows], [row.score for row in rows])
    shares = fanova(forest).set_index("hyperparameter")["importance"]
    names = bars.y.categories
    assert list(names[:3]) == ["x", "kind", "rate"]
    assert bars.marks[0].values == pytest.approx(shares[list(names)].to_numpy(), abs=0.04)
    table = dependence_surface(forest, "x", "kind")
    expected = table.pivot(index="x", columns="kind", values="mean")[::-1]
    assert list(surface.x.categories) == list(expected)
    error = np.abs(surface.marks[0].values - expected.to_numpy())
    assert error.mean() < 0.04  # scores reach from 0 to 2.9
    assert error.max() < 0.25
    assert len(surface.marks[1].x) == len(rows)


def test_a_sample_stands_for_many_and_says_so():
    (row,) = importance_blocks(SPACE, rows_of(SAMPLE + 200), "score")
    about = f"a sample of {SAMPLE} of {SAMPLE + 200:,} configurations"
    assert all(about in figure.chart.about for figure in row.blocks)


def test_without_scores_of_full_length_it_says_why():
    for rows in (rows_of(9), [*rows_of(9), *rows_of(90, PRUNED)], []):
        (text,) = importance_blocks(SPACE, rows, "score")
        assert "needs 10 configurations" in text.text
