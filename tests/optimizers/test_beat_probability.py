"""The probability that a run beats the incumbent: situations, the regression, and how tasks weigh."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from autorl.optimizers._beat_probability import (
    BeatProbability,
    Logistic,
    Reference,
    Rows,
    Standing,
    joined,
    situations,
    temperature,
)

NO_OWN = np.empty((0, 3))


def curves(count, rungs=3, seed=0):
    return np.random.default_rng(seed).normal(size=(count, rungs)).cumsum(axis=1)


# -- scores on the scale of a situation ---------------------------------------------------------


def test_the_example_of_the_module():
    """First rung 12 to 40, incumbent 180: scores of 15, 60 and 90."""
    standing = Standing(low=12.0, best=180.0, high=200.0)
    features = standing.features(np.array([[15.0, 60.0, 90.0]]))
    assert features.tolist() == [pytest.approx([78 / 168, 30 / 168])]


# -- how many curves ---------------------------------------------------------------------------


def test_the_draws_of_situations_stay_as_they_are():
    """They decide what the runs of stored studies are stopped by: a change changes their tables."""
    rows = situations(np.arange(8.0)[:, None] * np.ones(2), 4, 0)
    expected = []
    for runs in GOING_ON:
        peers = [number for number in range(8) if number not in runs]
        low, best = np.quantile(peers, 0.1), max(peers)
        expected += [1 + (run - best) / (best - low) for run in runs]
    assert rows.features[:, 0] == pytest.approx(expected)


GOING_ON = [
    [5, 3, 6, 2],
    [5, 1, 2, 0],
    [5, 7, 0, 4],
    [0, 7, 1, 3],
]  # of eight curves, in each of the four draws


# -- the regression ----------------------------------------------------------------------------


def rows_of(features, outcomes, weights=None):
    features = np.asarray(features, dtype=float)
    weights = np.ones(len(features)) if weights is None else np.asarray(weights, dtype=float)
    return Rows(features, np.asarray(outcomes, dtype=float), weights)


def fitted(rows):
    """The regression by SciPy: weighted log loss, a ridge of 1 around the rate of all."""
    mean = (rows.weights[:, None] * rows.features).sum(axis=0) / rows.weights.sum()
    spread = (rows.weights[:, None] * (rows.features - mean) ** 2).sum(axis=0)
    deviation = np.maximum(np.sqrt(spread / rows.weights.sum()), 0.05)
    units = (rows.features - mean) / deviation
    rate = (rows.weights @ rows.outcomes + 0.5) / (rows.weights.sum() + 1)
    centre = np.array([math.log(rate / (1 - rate)), 0.0, 0.0])

    def loss(coefficients):
        logit = coefficients[0] + units @ coefficients[1:]
        # log(1 + exp(logit)) less logit times outcome
        logs = np.logaddexp(0.0, logit) - rows.outcomes * logit
        return rows.weights @ logs + 0.5 * ((coefficients - centre) ** 2).sum()

    return minimize(loss, centre, method="BFGS", options={"gtol": 1e-9}).x, mean, deviation


def cases():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(40, 2))
    noisy = (features[:, 0] + rng.normal(size=40) > 0).astype(float)
    yield rows_of(features, noisy)
    yield rows_of(features, noisy, rng.random(40) * 5)
    yield rows_of(features, features[:, 0] > 1.0, np.full(40, 10.0))  # separable
    yield rows_of(features, np.zeros(40))  # nobody ever beat the incumbent
    yield rows_of(features, np.where(noisy > 0, 0.5, 0.0))  # ties
    yield rows_of(np.full((6, 2), 0.25), [0, 0, 1, 0, 0, 0.5])  # all alike
    yield rows_of(0.01 * features, noisy)


@pytest.mark.parametrize("rows", [*cases()])
def test_the_regression_is_at_its_optimum(rows):
    made = Logistic.fit(rows)
    coefficients, mean, deviation = fitted(rows)
    assert made.mean == pytest.approx(mean)
    assert made.deviation == pytest.approx(deviation)
    assert made.coefficients == pytest.approx(coefficients, abs=2e-4)
    at = np.array([[0.0, 0.0], [1.0, -1.0], [-0.5, 2.0]])
    logit = coefficients[0] + (at - mean) / deviation @ coefficients[1:]
    assert made.probability(at) == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-4)


def test_a_probability_of_nothing_is_never_stated():
    chance = Logistic.fit(rows_of(np.zeros((9, 2)), np.zeros(9))).probability(np.zeros((1, 2)))
    assert 0 < chance[0] <= 0.5 / 10


def test_far_out_a_probability_is_nearly_sure_and_finite():
    made = Logistic(np.array([0.0, 1.0, 0.0]), np.zeros(2), np.ones(2))
    chances = made.probability(np.array([[-1e6, 0.0], [0.0, 0.0], [1e6, 0.0]]))
    assert chances.tolist() == pytest.approx([math.exp(-40), 0.5, 1.0], rel=1e-9)


# -- how tasks weigh ---------------------------------------------------------------------------


@pytest.mark.parametrize("own", [0, 24, 8, 192])
def test_a_task_counts_as_100_curves_and_own_runs_beside_them(own):
    """Own runs have n / (n + 24) of all weight: with 24 of them half."""
    references = [Reference(curves(12), weight=0.75), Reference(curves(9, seed=1), weight=0.25)]
    model = BeatProbability(references)
    rows = model._joined(4, 1, curves(own, seed=2))
    total = 200 + own
    share = own / (own + 24)
    sizes = [4 * 8, 4 * (9 - 4)]
    weights = np.split(rows.weights, np.cumsum(sizes))
    assert [part.sum() for part in weights] == pytest.approx(
        [0.75 * total * (1 - share), 0.25 * total * (1 - share), total * share]
    )


@pytest.mark.parametrize(
    ("reference", "rung", "says"),
    [
        (Reference(curves(4), first=1), 0, False),
        (Reference(curves(4), first=1), 1, True),
        (Reference(curves(1)), 1, False),  # of one curve no other can be beaten
        (Reference(curves(2)), 1, True),
    ],
)
def test_which_tasks_say_something_of_a_rung(reference, rung, says):
    model = BeatProbability([reference])
    scores = np.zeros(rung + 1)
    stated = model(scores, Standing(0.0, 1.0, 1.0), 4, NO_OWN)
    assert (stated is not None) is says
    # A task that says nothing takes nothing of the weight of another.
    other = Reference(curves(9))
    both = BeatProbability([reference, other])._joined(4, rung, NO_OWN)
    assert both.weights.sum() == pytest.approx(200.0 if says else 100.0)


def test_what_is_stated_is_the_regression_of_the_rung_at_the_runs_features():
    references = [Reference(curves(40)), Reference(curves(30, seed=1))]
    own = curves(24, seed=2)
    standing = Standing(-1.0, 2.0, 3.0)
    model = BeatProbability(references)
    for scores, ended in ((np.array([0.5]), 5), (np.array([0.5, 1.5]), 40)):
        rung = len(scores) - 1
        size = {5: 4, 40: 32}[ended]
        parts = [situations(task.scores, size, rung).scaled(100.0) for task in references]
        rows = joined([*parts, situations(own, size, rung).scaled(224.0 * 0.5)])
        rows.weights[: -len(situations(own, size, rung).weights)] *= 112.0 / 200.0
        coefficients, mean, deviation = fitted(rows)
        features = standing.features(scores[None])[0]
        logit = coefficients[0] + (features - mean) / deviation @ coefficients[1:]
        expected = 1 / (1 + math.exp(-logit))
        assert model(scores, standing, ended, own) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("heat", [1.0, 2.0, 3.5])
def test_the_temperature_is_that_of_overstated_log_odds(heat):
    rng = np.random.default_rng(0)
    true = rng.normal(-2, 2, 20_000)
    outcomes = (rng.random(20_000) < 1 / (1 + np.exp(-true))).astype(float)
    assert temperature(true * heat, outcomes, np.ones(20_000)) == pytest.approx(heat, rel=0.05)
    # Log odds that say too little are not sharpened, and of chance nothing is left.
    assert temperature(true / 2, outcomes, np.ones(20_000)) == pytest.approx(1.0, abs=1e-3)
    assert temperature(true, 1 - outcomes, np.ones(20_000)) == pytest.approx(4.0, abs=1e-3)


def test_tasks_that_disagree_make_each_other_unsure():
    """In one task early scores say who wins, in the other the reverse."""
    agreeing = [
        Reference(curves(40, seed=1), weight=0.5),
        Reference(curves(40, seed=2), weight=0.5),
    ]
    opposed = [agreeing[0], Reference(curves(40, seed=2)[:, ::-1], weight=0.5)]
    heats = [BeatProbability(pair)._temperature(4, 1) for pair in (agreeing, opposed)]
    assert heats[0] < heats[1]
    assert BeatProbability(agreeing[:1])._temperature(4, 1) == 1.0
