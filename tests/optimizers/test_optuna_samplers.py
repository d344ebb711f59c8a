"""Additions to Optuna's samplers: valid candidates, shared parameters, one thread, SciPy."""

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers._tpe import _truncnorm
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator

from autorl.optimizers._optuna_samplers import _ValidParzenEstimator, compiled_normal, shared


@pytest.fixture
def batches(monkeypatch):
    """Sizes of the batches drawn from a density that is uniform."""
    drawn = []

    def sample(self, rng, size):
        drawn.append(size)
        return {"x": rng.random(size), "y": rng.random(size)}

    monkeypatch.setattr(_ParzenEstimator, "sample", sample)
    return drawn


def estimator(valid):
    made = object.__new__(_ValidParzenEstimator)
    made._valid = valid
    made._search_space = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    return made


def test_candidates_are_drawn_until_enough_of_them_are_valid(batches):
    kept = estimator(lambda parameters: parameters["x"] < 0.4).sample(np.random.default_rng(0), 24)
    assert len(kept["x"]) == len(kept["y"]) == 24
    assert (kept["x"] < 0.4).all()
    assert batches == [24] * len(batches)
    assert 2 <= len(batches) <= 5
    again = np.random.default_rng(0)
    pairs = [(again.random(24), again.random(24)) for _ in batches]
    x, y = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    np.testing.assert_array_equal(kept["y"], y[x < 0.4][:24])


def test_one_batch_is_enough_where_all_are_valid(batches):
    kept = estimator(lambda parameters: True).sample(np.random.default_rng(0), 24)
    assert (len(kept["x"]), batches) == (24, [24])


def test_where_none_of_eight_batches_is_valid_the_first_is_repaired(batches):
    kept = estimator(lambda parameters: False).sample(np.random.default_rng(0), 24)
    assert batches == [24] * 8
    np.testing.assert_array_equal(kept["x"], np.random.default_rng(0).random(24))


def test_fewer_than_enough_are_taken_after_eight_batches(batches):
    kept = estimator(lambda one: one["x"] < 0.02).sample(np.random.default_rng(0), 24)
    assert len(batches) == 8
    assert 0 < len(kept["x"]) < 24
    assert (kept["x"] < 0.02).all()


def test_parameters_of_one_value_are_not_shared():
    distributions = {
        "b": IntDistribution(1, 3),
        "only": CategoricalDistribution((0,)),
        "a": FloatDistribution(0.0, 1.0),
    }
    assert list(shared(distributions)) == ["a", "b"]


def test_an_optuna_without_that_function_is_left_alone(monkeypatch):
    monkeypatch.delattr(_truncnorm, "_log_ndtr")
    with compiled_normal():
        assert not hasattr(_truncnorm, "_log_ndtr")
