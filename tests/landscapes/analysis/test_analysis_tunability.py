"""Tunability: by hand, gains by a loop over neighbours, and the published means of ARLBench's landscapes."""

import numpy as np
import pytest
from analysis_samples import SPACE, means, with_data

from autorl.core.types import InputError
from autorl.landscapes.analysis.forest import fit_forest
from autorl.landscapes.analysis.tunability import tunability_of, tuning_gains
from autorl.space import load_space


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


def test_gains_are_those_of_the_best_neighbour():
    """Gains of moving one hyperparameter, by a loop over single predictions of the same forest."""
    pytest.importorskip("sklearn")
    configs = [SPACE.sample(np.random.default_rng(number)) for number in range(200)]
    unit = SPACE.hyperparameters["learning_rate"].to_unit
    scores = [unit(each["learning_rate"]) * 10 + (each["activation"] == "relu") for each in configs]
    forest = fit_forest(SPACE, configs, scores)
    reference = SPACE.default()
    table = tuning_gains(forest, reference, points=16).set_index("hyperparameter")
    base = forest.predict(forest.encode([reference]))[0]
    for name in ("learning_rate", "width", "activation", "interval"):
        item = SPACE.hyperparameters[name]
        options = [
            SPACE.config({**reference, name: item.from_unit(point)})
            for point in forest.grid(name, 16)
        ]
        predicted = [forest.predict(forest.encode([each]))[0] for each in options]
        assert table.gain[name] == pytest.approx(max(0.0, max(predicted) - base))
        if table.gain[name] > 0:
            assert table.best[name] == options[int(np.argmax(predicted))][name]
    assert table.index[0] == "learning_rate"
    assert table.best["activation"] == "relu"
    assert table.reference["learning_rate"] == 1e-3


def test_what_the_space_forbids_is_no_gain():
    pytest.importorskip("sklearn")
    space = load_space(
        {
            "hyperparameters": {
                "a": {"type": "int", "lower": 1, "upper": 8, "default": 2},
                "b": {"type": "int", "lower": 1, "upper": 8, "default": 4},
            },
            "constraints": ["a <= b"],
        }
    )
    configs = [space.sample(np.random.default_rng(number)) for number in range(100)]
    forest = fit_forest(space, configs, [each["a"] for each in configs])
    table = tuning_gains(forest, space.default()).set_index("hyperparameter")
    assert table.best["a"] <= 4
    with pytest.raises(InputError):
        tuning_gains(forest, {"a": 8, "b": 2})


def test_an_inactive_hyperparameter_gains_nothing():
    pytest.importorskip("sklearn")
    configs = [SPACE.sample(np.random.default_rng(number)) for number in range(100)]
    forest = fit_forest(SPACE, configs, [each.get("interval", 0) for each in configs])
    off = next(each for each in configs if "interval" not in each)
    table = tuning_gains(forest, off).set_index("hyperparameter")
    assert table.gain["interval"] == 0.0
    assert table.gain["target"] > 0.0
