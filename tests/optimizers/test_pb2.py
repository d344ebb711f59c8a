"""PB2: the surrogate, what it is made of, what survives a resume, and how choices are learned."""

import math

import numpy as np
import pytest
from driving import told
from scipy.stats import multivariate_normal, norm

import autorl.optimizers.pb2 as pb2
from autorl.core.types import Failed, Status
from autorl.optimizers import make
from autorl.optimizers import process as gp
from autorl.optimizers.process import (
    Posterior,
    _negative_log_posterior,
    distances,
    fit,
    prior,
    weighted_distances,
)
from autorl.space import load_space
from autorl.testing.simulation import replayed, simulate

LOG = {"type": "float", "scale": "log"}
PLAIN = (gp.exponential, 1.0)
SPACE = load_space(
    {
        "hyperparameters": {
            "rate": {**LOG, "lower": 1e-5, "upper": 1e-1, "changeable": True},
            "k": {"type": "int", "lower": 1, "upper": 8, "changeable": True},
            "kind": {"choices": ["relu", "tanh", "elu"], "changeable": True},
            "momentum": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
            "net": {"choices": [[64], [64, 64]]},
        },
        "conditions": {"momentum": "kind == 'tanh'"},
    }
)


def factory(**options):
    chosen = {"population": 6, "generations": 8, "quantile": 0.5, "ready": 0.0} | options
    return lambda: make("pb2", SPACE, horizon=80, changeable=SPACE.changeable, **chosen)


class Skill:
    """Every generation adds to what is resumed: most with the choice `tanh` and a rate of 1e-3, plus noise."""

    def __init__(self, best="tanh"):
        self.best, self.total = best, {}

    def __call__(self, number, proposal):
        before = self.total.get(proposal.resume_from, 0.0)
        off = (math.log10(proposal.config["rate"]) + 3) / 4
        gain = math.exp(-((off / 0.2) ** 2)) + (proposal.config["kind"] == self.best)
        self.total[number] = (
            before + gain + 0.05 * float(np.random.default_rng(number).standard_normal())
        )
        return self.total[number]


# -- the Gaussian process ----------------------------------------------------------------------------------------------


def points_of(rng, n):
    """Time, level, two numbers, one choice."""
    columns = [rng.integers(0, 5, n), rng.random(n), rng.random(n), rng.random(n)]
    return np.column_stack([*columns, rng.integers(0, 3, n)]).astype(float)


def test_weighted_distances_sum_the_columns():
    rng = np.random.default_rng(2)
    a, b, weights = points_of(rng, 7), points_of(rng, 3), rng.uniform(0.1, 4, 5)
    apart = np.tensordot(weights, distances(a, b, 2), 1)
    np.testing.assert_allclose(weighted_distances(a, b, 2, weights), apart, atol=1e-14)


def test_the_gradient_is_that_of_the_posterior():
    rng = np.random.default_rng(0)
    points, values, known = points_of(rng, 12), rng.normal(size=12), prior(2, 1)
    apart = distances(points, points, 2).reshape(5, -1)
    logs = known[0] + rng.normal(size=7) / 3
    _, gradient = _negative_log_posterior(logs, apart, values, known, *PLAIN)
    for index in range(7):
        step = 1e-6 * np.eye(7)[index]
        up, down = (
            _negative_log_posterior(logs + sign * step, apart, values, known, *PLAIN)[0]
            for sign in (1, -1)
        )
        assert gradient[index] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-5)


def test_the_posterior_is_that_of_the_formulas():
    """Mean and variance from the inverse of the whole covariance, without factors or distances of this package."""
    rng = np.random.default_rng(1)
    points, values, queries = points_of(rng, 9), rng.normal(size=9), points_of(rng, 4)
    logs = prior(2, 1)[0]
    weights, signal, noise = np.exp(logs[:-2]), np.exp(logs[-2]), np.exp(logs[-1])

    def covariance(a, b):
        off = weights[0] * abs(a[0] - b[0]) + weights[4] * (a[4] != b[4])
        return signal * np.exp(-off - sum(weights[i] * (a[i] - b[i]) ** 2 for i in (1, 2, 3)))

    full = np.array([[covariance(a, b) for b in points] for a in points])
    inverse = np.linalg.inv(full + (noise + 1e-8) * np.eye(9))
    cross = np.array([[covariance(a, b) for b in queries] for a in points])
    mean, sd = Posterior(logs, points, values, np.empty((0, 5)), 2).at(queries)
    np.testing.assert_allclose(mean, cross.T @ inverse @ values, rtol=1e-8)
    np.testing.assert_allclose(sd**2, signal - np.diag(cross.T @ inverse @ cross), rtol=1e-8)


def test_noise_is_told_from_signal():
    """Ray's PB2 has no noise term: two measurements of one configuration that differ make its model singular or wild.

    Forty pairs of measurements; noise of deviation 0.05 and 1 are 2.6 and more apart in logarithms of variance.
    """
    rng = np.random.default_rng(2)
    once = points_of(rng, 40)[:, :-1]
    points = np.concatenate([once, once])
    signal = np.sin(6 * points[:, 2])
    quiet, loud = (fit(points, signal + level * rng.normal(size=80), 2) for level in (0.05, 1.0))
    assert math.exp(quiet[-1]) < 0.05
    assert 0.3 < math.exp(loud[-1]) < 3.0
    mean, _ = Posterior(loud, points, signal, np.empty((0, 4)), 2).at(points[:40])
    assert np.abs(mean - signal[:40]).max() < 1.5


def test_pending_points_narrow_the_deviation_and_leave_the_mean():
    rng = np.random.default_rng(3)
    points, values = points_of(rng, 10), rng.normal(size=10)
    here = points_of(rng, 1)
    alone = Posterior(prior(2, 1)[0], points, values, np.empty((0, 5)), 2).at(here)
    crowded = Posterior(prior(2, 1)[0], points, values, here, 2).at(here)
    assert crowded[0] == pytest.approx(alone[0], rel=1e-9)
    assert crowded[1] < 0.5 * alone[1]


# -- data, caps, resume ------------------------------------------------------------------------------------------------


def test_improvements_are_relative_to_the_generation_and_to_what_was_resumed():
    optimizer = factory(population=4, generations=2, quantile=0.25)()
    told(optimizer, [1.0, 4.0, 2.0, 3.0])
    assert told(optimizer, [5.0, 4.5, 4.0, 3.0])[0].resume_from == 1
    improvements = [(one.generation, one.level, one.gain) for one in optimizer._improvements()]
    assert improvements == [
        *[(0, 0.5, gain) for gain in (-1.5, 1.5, -0.5, 0.5)],
        # 5 - 4 (of the donor), 4.5 - 4, 4 - 2, 3 - 3; their median is 0.75
        *[(1, 1.0, 0.25), (1, 1.0, -0.25), (1, 1 / 3, 1.25), (1, 2 / 3, -0.75)],
    ]


def test_the_model_sees_the_window_and_is_fitted_once_in_so_many_generations(monkeypatch):
    """Ray's PB2 fits a model per window once it has 200 rows: 14 s at 600."""
    calls = []

    def spy(points, values, n_numeric, start):
        calls.append((len(points), start is not None))
        return fit(points, values, n_numeric, start=start)

    monkeypatch.setattr(pb2, "fit", spy)
    simulate(factory(window=10, refit=1), Skill(), 48)
    sizes = [size for size, _ in calls]
    assert 6 <= sizes[0] <= 10, "a generation of six, and what of the next is scored already"
    assert sizes[1:] == [10] * 6
    assert [warm for _, warm in calls] == [False, *[True] * 6], "a fit goes on from the one before"
    calls.clear()
    simulate(factory(window=10, refit=3), Skill(), 48)
    assert len(calls) == 3


def test_failures_are_no_data_and_their_members_go_on_as_clones():
    failing = {1, 8, 15}
    fail = lambda number, p: Status.DIVERGED if number in failing else None  # noqa: E731
    whole = simulate(factory(), Skill(), 48, fail=fail)
    optimizer = replayed(factory(), whole.events)
    failed = {event.proposal for event in whole.events if isinstance(event, Failed)}
    assert failed == failing
    assert len(optimizer._improvements()) == 45
    for number in failing:
        heir = whole.proposals[number + 6]
        assert heir.member == whole.proposals[number].member
        assert heir.resume_from not in failing


# -- choices -----------------------------------------------------------------------------------------------------------


def test_numbers_and_choices_that_help_are_found():
    """Three in four explored configurations of the second half have the best choice; one in three
    by chance.

    With 12 or more of them, so many by chance have a probability below 1e-3.
    """
    simulation = simulate(factory(population=8, generations=12), Skill(), 96)
    late = [p for p in simulation.proposals if p.meta["generation"] > 5]
    explored = [p for p in late if p.origin.startswith("exploit")]
    assert len(explored) >= 12
    assert sum(p.config["kind"] == "tanh" for p in explored) >= 0.75 * len(explored)
    last = [p.config for p in late if p.meta["generation"] == 11]
    assert np.median([abs(math.log10(config["rate"]) + 3) for config in last]) < 0.8  # by chance: 1


# -- the numbers of the model and of the search ------------------------------------------------------------------------


def improved(generation, kind, gain, level=0.5):
    return pb2.Improvement(generation, SPACE.config({"kind": kind}), level, gain)


def updated(weights, rewards):
    """Exponential weights of rate 2 that share a tenth, by hand."""
    grown = [
        weight * math.exp(2 * (reward - 0.5))
        for weight, reward in zip(weights, rewards, strict=True)
    ]
    return [0.9 * weight / sum(grown) + 0.1 / len(grown) for weight in grown]


def test_weights_are_exponential_and_share_a_tenth():
    optimizer = factory()()
    first = [improved(2, "relu", -1.0), improved(2, "tanh", 1.0), improved(2, "relu", 0.0)]
    # Shares of the gains below: 0, 1 and 0.5; nobody trained with elu.
    after_first = updated([1 / 3] * 3, [0.25, 1.0, 0.5])
    assert optimizer._weights("kind", first) == pytest.approx(after_first)
    second = [improved(5, "elu", 3.0), improved(5, "tanh", 1.0)]
    expected = updated(after_first, [0.5, 0.0, 1.0])
    assert optimizer._weights("kind", first + second) == pytest.approx(expected)


# -- the Gaussian process ---------------------------------------------------------------------------


def test_what_is_minimised_is_the_negative_log_posterior():
    """By SciPy's densities: a normal one of the values, and those of the logarithms."""
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.integers(0, 3, 6), rng.random((6, 2)), rng.integers(0, 2, 6)])
    values = rng.normal(size=6)
    beliefs = gp.prior(1, 1)

    def density(logs):
        weights = np.exp(logs[:-2])
        covariance = np.empty((6, 6))
        for i, a in enumerate(points):
            for j, b in enumerate(points):
                gaps = [abs(a[0] - b[0]), (a[1] - b[1]) ** 2, (a[2] - b[2]) ** 2, a[3] != b[3]]
                covariance[i, j] = np.exp(logs[-2] - weights @ gaps)
        covariance += (np.exp(logs[-1]) + 1e-8) * np.eye(6)
        of_values = multivariate_normal(np.zeros(6), covariance).logpdf(values)
        return of_values + norm(beliefs[0], beliefs[1]).logpdf(logs).sum()

    gaps = gp.distances(points, points, 1).reshape(4, -1)
    first, second = beliefs[0], beliefs[0] + rng.normal(size=6)
    minimised = lambda logs: _negative_log_posterior(logs, gaps, values, beliefs, *PLAIN)[0]  # noqa: E731
    # The densities have constants that the sum leaves out.
    expected = density(second) - density(first)
    assert minimised(first) - minimised(second) == pytest.approx(expected, rel=1e-9)
