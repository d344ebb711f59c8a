"""The optimizer `gp`: its process beside scikit-learn's, its acquisition beside integrals, its rules."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from test_tpe import A_THIRD_FAILS, late_failures

from autorl.core.types import Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers.base import Record
from autorl.optimizers.gp import AUGMENTED, constraints_of, scalars
from autorl.optimizers.process import (
    JITTER,
    SMOOTH,
    Posterior,
    _negative_log_posterior,
    distances,
    fit,
    log_improvement,
    prior,
)
from autorl.space import load_space
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

RNG = np.random.default_rng(0)
POINTS = np.column_stack([np.zeros((15, 2)), RNG.random((15, 3))])
VALUES = RNG.normal(size=15)
SPREAD = 1.0 / RNG.integers(1, 4, 15)


def test_mean_and_deviation_are_scikit_learns():
    logs = np.array([0.0, 0.0, 1.2, 0.3, -0.7, 0.4, -2.0])
    lengths = np.exp(-0.5 * logs[2:5])
    signal = math.exp(logs[5])
    kernel = ConstantKernel(signal) + ConstantKernel(signal) * Matern(lengths, nu=2.5)
    noise = math.exp(logs[6]) * SPREAD + JITTER
    original = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
    original.fit(POINTS[:, 2:], VALUES)
    queries = np.column_stack([np.zeros((6, 2)), RNG.random((6, 3))])
    expected = original.predict(queries[:, 2:], return_std=True)
    none = np.empty((0, 5))
    belief = Posterior(logs, POINTS, VALUES, none, 3, family=SMOOTH, spread=SPREAD)
    np.testing.assert_allclose(belief.at(queries), expected, rtol=1e-8, atol=1e-8)


def test_the_gradient_of_the_posterior_is_that_of_differences():
    known = prior(2, 1, SMOOTH)
    points = POINTS.copy()
    points[:, 4] = np.arange(15) % 3
    apart = distances(points, points, 2).reshape(5, -1)
    arguments = (apart, VALUES, known, SMOOTH.kernel, SPREAD)
    logs = known[0] + RNG.normal(size=7) / 3
    _, gradient = _negative_log_posterior(logs, *arguments)
    for index in range(7):
        step = 1e-6 * np.eye(7)[index]
        up, down = (_negative_log_posterior(logs + sign * step, *arguments)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-5)


def test_a_score_of_n_seeds_has_the_noise_of_n_scores():
    """Their processes are one, and so are their likelihoods but for a constant of the repeats."""
    logs = np.array([0.0, 0.0, 1.2, 0.3, -0.7, 0.4, -2.0])
    counts = np.where(np.arange(15) % 3, 1, 3)
    repeated = np.repeat(POINTS, counts, axis=0)
    none = np.empty((0, 5))
    once = Posterior(logs, POINTS, VALUES, none, 3, family=SMOOTH, spread=1 / counts)
    often = Posterior(logs, repeated, np.repeat(VALUES, counts), none, 3, family=SMOOTH)
    np.testing.assert_allclose(once.at(POINTS), often.at(POINTS), rtol=1e-5, atol=1e-6)


def test_lengths_are_long_where_nothing_changes():
    values = np.sin(5 * POINTS[:, 2])
    weights = fit(POINTS, (values - values.mean()) / values.std(), 3, SMOOTH)[2:5]
    assert min(weights[0] - weights[1], weights[0] - weights[2]) > 1.0


@pytest.mark.parametrize("z", [3.0, 0.0, -0.5, -0.999, -1.001, -4.0, -10.0, -30.0])
def test_the_improvement_is_an_integral(z):
    """Its density is scaled by that of the bound, so that the integral does not underflow."""
    scaled = quad(lambda gain: gain * math.exp(gain * z - gain**2 / 2), 0, np.inf)[0]
    expected = math.log(2.0) + math.log(scaled) + norm.logpdf(z)
    found = log_improvement(np.array([1.0 + 2.0 * z]), np.array([2.0]), 1.0)
    assert found[0] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("z", [-1e3, -9e4, -1.1e5, -1e9])
def test_far_below_the_improvement_is_its_expansion(z):
    found = log_improvement(np.array([z]), np.array([1.0]), 0.0)[0]
    expected = -0.5 * z**2 - 0.5 * math.log(2 * math.pi) - 2 * math.log(-z)
    assert found == pytest.approx(expected, rel=1e-9)


def test_one_objective_is_its_own_scalar_and_outliers_are_drawn_in():
    values = np.array([[1.0], [2.0], [5.0], [3.0], [-1e6]])
    # The median is 2 and the best 5: nothing lies below 2 - 2 * 3.
    assert scalars(values, RNG).tolist() == [1.0, 2.0, 5.0, 3.0, -4.0]


def test_several_objectives_are_an_augmented_chebyshev_scalar():
    values = np.array([[0.0, 30.0], [1.0, 20.0], [2.0, 10.0]])
    a, b = np.random.default_rng(7).dirichlet(np.ones(2))
    expected = [
        -max(first, second) - AUGMENTED * (first + second)
        for first, second in ((a, 0.0), (a / 2, b / 2), (0.0, b))
    ]
    assert scalars(values, np.random.default_rng(7)) == pytest.approx(expected)


def test_failures_have_the_worst_of_each_constraint():
    results = [
        Scored(0, (1.0,), constraints=(0.5, -1.0)),
        Failed(1, Status.CRASH, (0.0,)),
        Scored(2, (1.0,), constraints=(0.25, 2.0)),
    ]
    records = [Record(one.proposal, Proposal({}, 10), one) for one in results]
    assert constraints_of(records).tolist() == [[0.5, -1.0], [0.5, 2.0], [0.25, 2.0]]
    assert constraints_of(records[1:2]).shape == (1, 0)


# -- proposals ---------------------------------------------------------------------------------------


def played(space, outcome, count, pending=0, **options):
    """Return an optimizer that proposed so many and was told all outcomes but the last."""
    optimizer = make("gp", space, horizon=10, **options)
    for number in range(count):
        proposal = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, proposal))
        if number < count - pending:
            values, constraints = outcome(space.to_unit(proposal.config))
            optimizer.observe(Scored(number, values, constraints=constraints, reached=10))
    return optimizer


def test_an_outcome_constraint_is_kept_near_its_bound():
    """The score grows with x, and x above 0.5 is infeasible."""
    space = space_of("continuous")

    def outcome(unit):
        return (unit[0],), (unit[0] - 0.5,)

    made = [record.proposal.config["x"] for record in played(space, outcome, 24).history]
    late = made[12:]
    assert max(x for x in late if x <= 0.5) > 0.45
    assert sum(x > 0.6 for x in late) <= 2


def test_the_front_of_two_objectives_is_found_along_its_length():
    space = space_of("continuous")

    def outcome(unit):
        off = (unit[1] - 0.3) ** 2 + (unit[2] - 0.3) ** 2
        return (unit[0] - off, 1 - unit[0] ** 2 - off), ()

    late = [*played(space, outcome, 40, n_objectives=2).history][15:]
    missing = {r.proposal.config["x"]: r.proposal.config["x"] - r.values[0] for r in late}
    on_front = [x for x, missed in missing.items() if missed < 0.01]
    assert len(on_front) >= 15
    assert max(on_front) - min(on_front) > 0.5


def test_nothing_is_proposed_twice_until_all_is():
    space = load_space({"a": ["p", "q", "r"], "b": ["u", "v"]})
    made = simulate(lambda: make("gp", space, horizon=1), lambda n, p: float(n % 3), 6).proposals
    assert {tuple(one.config.items()) for one in made} == {
        (("a", a), ("b", b)) for a, b in itertools.product("pqr", "uv")
    }


def test_proposals_in_flight_keep_apart():
    space = space_of("continuous")
    optimizer = played(
        space, lambda unit: ((-float(((unit - 0.4) ** 2).sum()),), ()), 20, pending=4
    )
    units = [space.to_unit(optimizer.history[number].proposal.config) for number in range(16, 20)]
    apart = [np.abs(a - b).max() for a, b in itertools.combinations(units, 2)]
    assert min(apart) > 1e-3


def test_an_answer_does_not_depend_on_earlier_asks():
    space = space_of("types")
    score = lambda unit: ((-float(np.nansum((unit - 0.4) ** 2)),), ())  # noqa: E731
    asked = played(space, score, 14)
    fresh = make("gp", space, horizon=10)
    for record in asked.history:
        fresh.observe(Proposed(record.id, record.proposal))
        fresh.observe(record.result)
    asked.ask(np.random.default_rng(98))
    assert asked.ask(np.random.default_rng(99)) == fresh.ask(np.random.default_rng(99))


@pytest.mark.parametrize("fails", A_THIRD_FAILS)
def test_where_a_third_of_the_space_fails_few_proposals_do(fails):
    """Eight studies, so dear: of three studies, one chance start weighs a third."""
    assert late_failures("gp", fails, studies=8) <= 0.1
