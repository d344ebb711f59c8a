"""Priors of hyperparameters: draws and densities agree, files keep them."""

import numpy as np
import pytest

from autorl.space import load_space, read_space
from autorl.space.prior import believed_place, log_prior

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}
ENTRIES = {
    "rate": UNIT | {"lower": 1e-5, "upper": 1e-1, "scale": "log", "prior": {"centre": 3e-4}},
    "edge": UNIT | {"prior": {"centre": 0.0, "confidence": "high"}},
    "count": {"type": "int", "lower": 1, "upper": 8, "prior": {"centre": 2, "confidence": "low"}},
    "size": {"type": "ordinal", "choices": [8, 16, 32], "prior": {"centre": 32}},
    "kind": {"choices": ["p", "q", "r"], "prior": {"centre": "q", "confidence": "high"}},
    "free": UNIT,
}
SPACE = load_space(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_half_of_the_density_is_that_of_the_draws(name):
    item = SPACE.hyperparameters[name]
    edges = np.linspace(0, 1, 7)
    quantiles = (np.arange(6000) + 0.5) / 6000
    drawn = np.histogram([believed_place(item, q) for q in quantiles], edges)[0] / 6000
    density = np.exp(log_prior([item], quantiles[:, None], 10))
    shares = density.reshape(6, 1000).sum(axis=1) / 6000
    assert shares.sum() == pytest.approx(1, abs=1e-3)
    if name == "kind":  # its draws are at the middle of a choice
        drawn, shares = drawn.reshape(3, 2).sum(axis=1), shares.reshape(3, 2).sum(axis=1)
    np.testing.assert_allclose(shares, 0.5 * drawn + 0.5 / len(shares), atol=1e-3)


def test_it_counts_less_and_less():
    items = [SPACE.hyperparameters["edge"]]
    early, late = (log_prior(items, np.array([[0.0], [1.0]]), n) for n in (10, 100))
    np.testing.assert_allclose(late, early / 10)
    assert early[0] > 1
    assert early[1] == pytest.approx(-np.log(2), abs=1e-6)


def test_half_of_the_configurations_are_drawn_by_priors():
    drawn = [SPACE.sample(np.random.default_rng(seed)) for seed in range(600)]
    # 8 of 10 by the prior, a third at random.
    assert np.mean([config["kind"] == "q" for config in drawn]) == pytest.approx(0.57, abs=0.06)
    assert np.mean([config["free"] for config in drawn]) == pytest.approx(0.5, abs=0.05)
    plain = load_space({"x": UNIT})
    expected = np.random.default_rng(3).random(1)
    assert plain.sample(np.random.default_rng(3)) == plain.from_unit(expected)


def test_the_centre_is_the_default_if_none_is_given_and_files_keep_both():
    assert dict(SPACE.default()) == {
        "rate": 3e-4, "edge": 0.0, "count": 2, "size": 32, "kind": "q", "free": 0.5,
    }  # fmt: skip
    assert read_space(SPACE.to_dict()) == SPACE
    assert SPACE.to_dict()["hyperparameters"]["size"]["prior"] == {
        "centre": 32,
        "confidence": "medium",
    }
    stated = load_space({"x": UNIT | {"default": 0.25, "prior": {"centre": 0.75}}})
    assert stated.default() == {"x": 0.25}
    assert stated != load_space({"x": UNIT | {"default": 0.25}})


def test_a_space_that_extends_another_adds_a_prior_or_takes_it_away(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "hyperparameters: {x: {type: float, lower: 0, upper: 1, prior: {centre: 0.2}}, y: log(1, 9)}"
    )
    entries = {"x": {"prior": None}, "y": {"prior": {"centre": 2, "confidence": "low"}}}
    space = load_space({"extends": "base.yaml", "hyperparameters": entries}, tmp_path)
    assert space.hyperparameters["x"].prior is None
    assert space.hyperparameters["y"].prior == {"centre": 2.0, "confidence": "low"}
    space = load_space(
        {"extends": "base.yaml", "hyperparameters": {"x": "uniform(0, 0.5)"}}, tmp_path
    )
    assert space.hyperparameters["x"].prior == {"centre": 0.2, "confidence": "medium"}
