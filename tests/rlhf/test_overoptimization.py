"""The published forms of over-optimisation: exact recovery, derived cases, and what cannot be fitted."""

import numpy as np
import pytest
from made_landscapes import write
from refusals import expect_error

from autorl.landscapes import Objective
from autorl.space import load_space
from autorl.trainers.language.overoptimization import curve, fit, fit_landscape, frontier, policies

KL = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])


@pytest.mark.parametrize(
    ("form", "alpha", "beta"), [("best_of_n", 0.9, 0.3), ("rl", 0.8, 0.4), ("rl", -0.2, 0.5)]
)
def test_points_on_the_curve_give_its_coefficients_back(form, alpha, beta):
    found = fit(KL, 0.09 + curve(form, KL, alpha, beta), form, origin=0.09)
    assert (found.alpha, found.beta) == pytest.approx((alpha, beta))
    assert found.r2 == pytest.approx(1.0)
    assert found.gold(KL) == pytest.approx(0.09 + curve(form, KL, alpha, beta))


@pytest.mark.parametrize(("form", "alpha", "beta"), [("best_of_n", 0.9, 0.3), ("rl", 0.8, 0.4)])
def test_the_maximum_is_where_a_fine_grid_has_it(form, alpha, beta):
    found = fit(KL, curve(form, KL, alpha, beta), form)
    grid = np.linspace(0, 16, 200_001)
    heights = curve(form, grid, alpha, beta)
    assert found.peak_kl == pytest.approx(grid[heights.argmax()], abs=1e-3)
    assert found.peak_gold == pytest.approx(heights.max(), abs=1e-6)
    assert found.interior


def test_values_by_hand():
    """At KL 4, d = 2: 2 (0.9 - 0.3 * 2) = 0.6 and 2 (0.8 - 0.4 log 2); at KL 0 both are 0."""
    assert curve("best_of_n", [4.0, 0.0], 0.9, 0.3) == pytest.approx([0.6, 0.0])
    # An estimate below zero counts as zero.
    assert curve("rl", [-0.001], 1.0, 1.0).tolist() == [0.0]
    assert curve("rl", [4.0, 0.0], 0.8, 0.4) == pytest.approx([2 * (0.8 - 0.4 * np.log(2)), 0.0])


def test_a_maximum_past_the_measured_range_is_not_interior():
    found = fit([0.1, 0.5, 1.0], curve("best_of_n", [0.1, 0.5, 1.0], 1.0, 0.1), "best_of_n")
    assert found.peak_kl == pytest.approx(25.0)
    assert not found.interior


@pytest.mark.parametrize(
    ("form", "gold"),
    [
        ("best_of_n", KL),  # never falls
        ("rl", KL),
        ("best_of_n", curve("best_of_n", KL, -0.5, 0.2)),  # only falls
        ("rl", curve("rl", KL, 1.0, 1e-4)),  # almost no curvature: no overflow
    ],
)
def test_a_curve_without_a_maximum(form, gold):
    found = fit(KL, gold, form)
    assert (found.peak_kl, found.peak_gold, found.interior) == (None, None, False)


def test_a_tilted_gaussian_obeys_the_quadratic_form_exactly():
    """Proxy x ~ N(0, 1), gold x - c x^2. The KL-regularised optimum is N(m, 1): KL = m^2 / 2, gold gain m - c m^2."""
    c, means = 0.3, np.linspace(0.0, 4.0, 9)
    found = fit(means**2 / 2, means - c * means**2, "best_of_n")
    assert (found.alpha, found.beta) == pytest.approx((np.sqrt(2), 2 * c))
    assert found.peak_kl == pytest.approx((1 / (2 * c)) ** 2 / 2)
    assert found.interior
    as_rl = fit(means**2 / 2, means - c * means**2, "rl")
    assert as_rl.r2 > 0.9, "the two forms are hard to tell apart over one decade of KL"


def test_noise_lowers_r2_and_a_constant_has_none():
    rng = np.random.default_rng(1)
    noisy = fit(KL, curve("rl", KL, 0.8, 0.4) + rng.normal(0, 0.3, len(KL)), "rl")
    assert 0 < noisy.r2 < 0.999
    assert np.isnan(fit(KL, np.ones_like(KL), "rl").r2)


@pytest.mark.parametrize(
    ("kl", "gold", "form", "message"),
    [
        ([0.0, 1.0, 1.0], [0.0, 1.0, 1.0], "rl", "at least 3"),
        ([0.0, 1.0, 2.0], [0.0, 1.0], "rl", "same shape"),
        ([0.0, 1.0, np.nan], [0.0, 1.0, 2.0], "rl", "finite"),
        ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], "dpo", "unknown form"),
    ],
)
def test_wrong_input(kl, gold, form, message):
    with pytest.raises(ValueError, match=message):
        fit(kl, gold, form)


BETA = {"type": "float", "lower": 0.01, "upper": 1.0, "default": 0.1}
SPACE = load_space({"hyperparameters": {"beta": BETA}})


def landscape(folder, wasteful=0, metrics=("kl", "proxy", "gold", "reference_gold"), lost=()):
    """Policies on the curve d (2 - log d) - 1 down to a floor of -3, and `wasteful` ones far away with little proxy.

    KL is 2^-6 .. 2^8 in five configurations with three steps each; the proxy is d. Seeds differ by a constant.
    """

    def curve_of(number, seed):
        for place, step in enumerate((10, 20, 30)):
            kl = 2.0 ** (3 * (number - 1) + place - 6) if number < 6 else 40.0
            gold = max(-1 + float(curve("rl", [kl], 2.0, 1.0)[0]), -3.0) if number < 6 else -1.0
            spread = 0.01 * (-1) ** seed
            values = {"kl": kl, "gold": gold + spread, "reference_gold": -1.0}
            values["proxy"] = (np.sqrt(kl) if number < 6 else 0.5) + spread
            yield step, {name: values[name] for name in metrics}

    seeds = {"tuning": (0, 1), "test": (100, 101)}
    numbers = range(1, 6 + wasteful)
    cells = [(number, role, seed) for number in numbers for role in seeds for seed in seeds[role]]
    runs = []
    for number, role, seed in cells:
        points = {} if (number, seed) in lost else dict(curve_of(number, seed))
        runs.append((number, role, seed, "done", 30, 1.0, points))
    fields = {"id": "sample/rloo/letters", "algorithm": "rloo", "environment": "letters"}
    fields |= {"step_unit": "optimizer_steps", "return_bounds": (-3.0, 1.0)}
    fields |= {"objective": Objective("gold" if "gold" in metrics else "kl")}
    configs = {number: {"beta": number / 100} for number in numbers}
    return write(folder, SPACE, configs, runs, steps=(10, 20, 30), seeds=seeds, **fields)


def test_policies_are_means_over_the_seeds_of_a_role(tmp_path):
    found = policies(landscape(tmp_path / "l", lost=[(2, 101)]), "test")
    assert len(found) == 12  # the configuration that lost a test seed is not compared
    assert set(found.config_id) == {1, 3, 4, 5}
    first = found.iloc[0]
    assert (first.kl, first.step) == (2.0**-6, 10)
    assert first.gold == pytest.approx(-1 + curve("rl", [2.0**-6], 2.0, 1.0)[0], abs=1e-5)


def test_the_fit_is_of_policies_that_spend_their_distance_on_the_proxy_and_have_not_hit_the_floor(
    tmp_path,
):
    data = landscape(tmp_path / "l", wasteful=2)
    points = frontier(data)
    assert set(points.config_id) == {1, 2, 3, 4, 5}
    assert points.proxy.is_monotonic_increasing
    assert points.gold.min() == pytest.approx(-3.0, abs=1e-5)
    found = fit_landscape(data)
    assert (found.alpha, found.beta, found.r2) == pytest.approx((2.0, 1.0, 1.0), abs=1e-4)
    assert found.interior
    assert fit(points.kl, points.gold, "rl", origin=-1.0).r2 < 0.9999


def test_a_landscape_without_a_proxy_is_refused(tmp_path):
    expect_error("no metric 'proxy'", policies, landscape(tmp_path / "l", metrics=("kl", "gold")))
    expect_error("no 'all' seeds", policies, landscape(tmp_path / "m"), "all")
