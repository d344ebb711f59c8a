"""The noise model of scores over seeds, and how sure a choice by them is."""

import itertools
import math

import numpy as np
import pytest

from autorl.statistics.confirmation import confirmed_at, levels_of, runs_to_confirm
from autorl.statistics.noise import Posterior, posterior, probability_of_best


def by_loops(scores, spreads, seeds):
    """The model of the module's docstring, number by number."""
    low, high = min(scores), max(scores)
    y = [(score - (low + high) / 2) / (high - low) for score in scores]
    s = [spread / (high - low) if n > 1 else 0.0 for spread, n in zip(spreads, seeds, strict=True)]
    freedom = [n - 1 for n in seeds]
    squares = sum(f * v**2 for f, v in zip(freedom, s, strict=True))
    trust = (1 + sum(freedom)) ** -2
    pooled = (trust * 0.3 * np.var(y, ddof=1) + squares) / (trust + sum(freedom))
    values = [*y, *np.linspace(-0.5, 0.5, 100)]
    frequency = [0.8 / len(y)] * len(y) + [0.002] * 100
    likelihood = []
    for i, n in enumerate(seeds):
        nu = 4 + freedom[i]
        error = max(math.sqrt((4 * pooled + freedom[i] * s[i] ** 2) / nu / n), 1e-6)
        likelihood.append([(1 + ((y[i] - v) / error) ** 2 / nu) ** (-(nu + 1) / 2) for v in values])
    for _ in range(2):
        weights = []
        for row in likelihood:
            products = [p * q for p, q in zip(row, frequency, strict=True)]
            weights.append([product / sum(products) for product in products])
        frequency = [sum(column) / len(y) for column in zip(*weights, strict=True)]
    middle = (low + high) / 2
    means = [sum(w * v for w, v in zip(row, values, strict=True)) for row in weights]
    return [middle + (high - low) * mean for mean in means]


SCORES, SPREADS, SEEDS = [3.0, 9.0, 10.0, 2.0], [0.0, 1.5, 4.0, 0.0], [1, 3, 2, 1]


def test_the_posterior_is_that_of_the_model():
    assert posterior(SCORES, SPREADS, SEEDS).mean == pytest.approx(by_loops(SCORES, SPREADS, SEEDS))


@pytest.mark.parametrize(("scale", "shift"), [(1e-9, 0.0), (1e9, 5e9), (3.0, -100.0)])
def test_the_unit_of_the_metric_changes_nothing(scale, shift):
    plain = posterior(SCORES, SPREADS, SEEDS)
    scaled = posterior(np.array(SCORES) * scale + shift, np.array(SPREADS) * scale, SEEDS)
    assert scaled.mean == pytest.approx(plain.mean * scale + shift, rel=1e-7)
    chances = [probability_of_best(estimate, 2) for estimate in (plain, scaled)]
    assert chances[0] == pytest.approx(chances[1], abs=1e-6)


def test_scores_that_are_all_equal_are_all_best():
    estimate = posterior([500.0] * 3, [0.0] * 3, [1, 2, 3])
    assert list(estimate.mean) == [500.0] * 3
    assert [probability_of_best(estimate, place) for place in range(3)] == [1.0] * 3


def test_ties_at_the_cap_without_noise_count_as_best():
    """Two configurations reach the highest return with every seed: neither is above the other."""
    estimate = posterior([0.0, 3.0, 500.0, 500.0], [0.0] * 4, [1, 1, 5, 5])
    assert probability_of_best(estimate, 2, [2, 3]) > 0.95
    assert probability_of_best(estimate, 2, [2, 3]) == probability_of_best(estimate, 3, [2, 3])


def test_many_scores_are_stood_for_by_some_and_ties_stay_ties():
    scores = np.minimum(np.random.default_rng(2).normal(size=3000), 1.5)
    estimate = posterior(scores, np.zeros(3000), np.ones(3000))
    assert estimate.weights.shape == (3000, 500)
    assert estimate.weights.sum(axis=1) == pytest.approx(np.ones(3000))
    best = np.flatnonzero(scores == 1.5)
    assert len(best) > 100
    assert np.ptp(estimate.mean[best]) < 1e-12
    assert (np.diff(estimate.mean[np.argsort(scores)]) > -1e-9).all(), "the order is kept"


def test_the_probability_is_that_of_all_combinations():
    rng = np.random.default_rng(3)
    values = np.array([0.0, 1.0, 1.0, 4.0])
    weights = rng.dirichlet(np.ones(4), size=3)
    estimate = Posterior(values, weights)
    for chosen in range(3):
        chance = sum(
            math.prod(weights[row, place] for row, place in enumerate(places))
            for places in itertools.product(range(4), repeat=3)
            if values[places[chosen]] == max(values[list(places)])
        )
        assert probability_of_best(estimate, chosen) == pytest.approx(chance)
    pair = sum(
        weights[0, i] * weights[2, j]
        for i, j in itertools.product(range(4), repeat=2)
        if values[i] >= values[j]
    )
    assert probability_of_best(estimate, 0, [0, 2]) == pytest.approx(pair)
    assert probability_of_best(estimate, 0, [0]) == probability_of_best(estimate, 0, []) == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], []), "scores must not be empty"),
        (([1.0, math.nan], [0.0, 0.0], [1, 1]), "scores must be finite"),
        (([1.0], [0.0, 0.0], [1]), "scores and spreads"),
        (([1.0, 2.0], [0.0, 0.0], [1, 0]), "seeds must be at least 1, got 0"),
    ],
)
def test_wrong_scores_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        posterior(*arguments)


def test_a_choice_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"chosen must lie in 0..3, got 4"):
        probability_of_best(posterior(SCORES, SPREADS, SEEDS), 4)


def study(rng, runs, kind, most=5):
    """Explore and confirm on simulated noise that differs from configuration to configuration.

    Returns:
        The stated probability, whether the choice was right, stated and real over-tuning.
    """
    confirm = runs_to_confirm(runs)
    count = runs - confirm
    if kind == "normal":
        truth = rng.normal(0.0, 1.0, count)
        noise = 0.6 * np.exp(rng.normal(0.0, 0.5, count))
    else:  # half of them learn nothing, and noise grows with what is learnt
        learns = rng.random(count) < 0.5
        truth = np.where(learns, rng.normal(0.0, 0.5, count), -2.0)
        noise = np.where(learns, 0.2 + 0.4 * rng.random(count), 0.05)
    values = truth[:, None] + noise[:, None] * rng.normal(size=(count, most))
    seeds = dict.fromkeys(range(count), 1)
    left = list(range(count))
    for level, runs_of_level in enumerate(levels_of(confirm, count, most - 1)):
        mean = estimate_of(values, seeds)[0].mean
        ranked = sorted(left, key=lambda number: -mean[number])
        left = confirmed_at(ranked, seeds, level + 2, runs_of_level)
        seeds.update(dict.fromkeys(left, level + 2))
    estimate, scores = estimate_of(values, seeds)
    chosen = max(left, key=lambda number: scores[number])
    confirmed = [number for number, have in seeds.items() if have > 1]
    right = truth[chosen] >= max(truth[confirmed])
    stated = scores[chosen] - estimate.mean[chosen]
    chance = probability_of_best(estimate, chosen, confirmed)
    return chance, right, stated, scores[chosen] - truth[chosen]


def estimate_of(values, seeds):
    parts = [values[number, :have] for number, have in seeds.items()]
    scores = [part.mean() for part in parts]
    spreads = [part.std(ddof=1) if len(part) > 1 else 0.0 for part in parts]
    return posterior(scores, spreads, list(seeds.values())), scores


def test_the_stated_probability_and_over_tuning_are_calibrated_on_heteroscedastic_noise():
    rng = np.random.default_rng(0)
    kinds = [(32, "normal"), (32, "levels"), (96, "normal"), (96, "levels")]
    rows = np.array([study(rng, *kinds[number % 4]) for number in range(800)])
    chance, right, stated, real = rows.T
    bins = np.minimum((chance * 5).astype(int), 4)
    counts = np.bincount(bins, minlength=5)
    assert (counts[1:] > 50).all(), counts
    for place in range(5):
        if counts[place] > 30:  # fewer say nothing to 0.1
            chosen = bins == place
            assert abs(chance[chosen].mean() - right[chosen].mean()) < 0.1, place
    assert stated.mean() == pytest.approx(real.mean(), rel=0.25)
