"""CMA-ES: its points are the package's, its state is a fold, and every kind of outcome is ranked."""

import numpy as np
import pytest
from cmaes import CMA

from autorl.core import seeds
from autorl.core.types import Config, Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import Record, make
from autorl.optimizers.cmaes_ import losses
from autorl.space import load_space
from autorl.testing.optimizers import space_of


def record(number, outcome):
    return Record(number, Proposal(Config(), 1), outcome)


def test_losses_rank_scored_then_infeasible_by_violation_then_unscored():
    records = [
        record(0, Failed(0, Status.CRASH, ())),
        record(1, Scored(1, (9.0,), constraints=(2.0,))),
        record(2, Scored(2, (1.0,), constraints=(-1.0,))),
        record(3, Failed(3, Status.DIVERGED, (-4.0,))),
        record(4, Scored(4, (8.0,), constraints=(0.5,))),
    ]
    assert losses(records) == [7.0, 6.0, -1.0, 4.0, 5.0]


def cube(n):
    unit = {"type": "float", "lower": 0.0, "upper": 1.0}
    return load_space({"hyperparameters": {f"x{i}": unit for i in range(n)}})


@pytest.mark.parametrize(
    ("n", "budget", "given", "size"),
    [
        (1, 1000, None, 6),  # 4 + 3 ln 2: the package needs two dimensions
        (3, 1000, None, 7),
        (10, 1000, None, 10),
        (10, 32, None, 8),  # a quarter of the budget
        (10, 12, None, 4),
        (10, 12, 9, 9),
    ],
)
def test_the_population_is_that_of_the_tutorial_and_at_most_a_quarter_of_the_budget(
    n, budget, given, size
):
    optimizer = make("cmaes", cube(n), horizon=1, budget=budget, population_size=given)
    assert optimizer.population_size == optimizer._cma.population_size == size
    # The default configuration is no point of the distribution.
    assert [optimizer.modelled(99, scored) for scored in (size, size + 1)] == [False, True]


CUBE = space_of("continuous")
CONDITIONAL = space_of("conditional")
BOUNDS = np.tile([0.0, 1.0], (3, 1))


def proposed(optimizer, count):
    """Return `count` proposals, which are pending."""
    begin = len(optimizer.history)
    for number in range(begin, begin + count):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    return optimizer


def reference(size, batches=(), sigma=0.25):
    cma = CMA(mean=np.full(3, 0.5), sigma=sigma, bounds=BOUNDS, population_size=size)
    for batch in batches:
        cma.tell(batch)
    return cma


def point(optimizer, number):
    return np.array(optimizer.history[number].proposal.meta["point"])


def assert_equal_distributions(mine, theirs):
    np.testing.assert_allclose(mine.mean, theirs.mean, rtol=1e-9)
    np.testing.assert_allclose(mine._C, theirs._C, rtol=1e-9)
    assert mine._sigma == pytest.approx(theirs._sigma, rel=1e-9)
    assert mine.generation == theirs.generation


@pytest.mark.parametrize("sigma", [0.25, 0.1])
def test_points_are_those_of_the_package_with_the_seed_of_the_ask(sigma):
    options = {} if sigma == 0.25 else {"sigma": sigma}
    optimizer = proposed(make("cmaes", CUBE, horizon=10, population_size=4, **options), 5)
    theirs = reference(4, sigma=sigma)
    for number in range(1, 5):
        theirs.reseed_rng(int(np.random.default_rng(number).integers(2**31)))
        drawn = theirs.ask()
        np.testing.assert_array_equal(point(optimizer, number), drawn)
        assert optimizer.history[number].proposal.config == CUBE.from_unit(drawn)
        assert optimizer.history[number].proposal.origin == "cmaes"


def test_an_update_takes_outcomes_in_the_order_of_their_proposals():
    """All scores are equal: which points are the better half is the order they are told in."""
    optimizer = proposed(make("cmaes", CUBE, horizon=10, population_size=4), 5)
    for number in (3, 1, 4, 0, 2):
        assert optimizer._cma.generation == 0
        optimizer.observe(Scored(number, (1.0,), reached=10))
    batch = [(point(optimizer, number), -1.0) for number in range(1, 5)]
    assert_equal_distributions(optimizer._cma, reference(4, [batch]))


def test_failures_complete_an_update_as_its_worst_points():
    optimizer = proposed(make("cmaes", CUBE, horizon=10, population_size=4), 5)
    optimizer.observe(Failed(1, Status.CRASH, ()))
    optimizer.observe(Failed(2, Status.CRASH, (-7.0,)))
    optimizer.observe(Scored(3, (5.0,), reached=10))
    optimizer.observe(Scored(4, (6.0,), reached=10, constraints=(0.5,)))
    ranked = {3: 0.0, 2: 1.0, 4: 2.0, 1: 3.0}  # an update reads ranks only
    batch = [(point(optimizer, number), ranked[number]) for number in range(1, 5)]
    assert_equal_distributions(optimizer._cma, reference(4, [batch]))


def test_what_is_inactive_or_constant_is_at_the_middle():
    """Around the default of a conditional space: `b.width` and `a.v.rate` are not active there."""
    options = {"horizon": 10, "start": "default", "sigma": 1e-6}
    optimizer = proposed(make("cmaes", CONDITIONAL, **options), 2)
    unit = CONDITIONAL.to_unit(CONDITIONAL.default())
    expected = np.where(np.isnan(unit), 0.5, unit)
    assert np.isnan(unit).sum() == 2
    np.testing.assert_allclose(point(optimizer, 1), expected, atol=1e-4)
    fixed = {"type": "constant", "value": 3}
    x = {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.9}
    space = load_space({"hyperparameters": {"fixed": fixed, "x": x, "last": fixed, "y": x}})
    optimizer = proposed(make("cmaes", space, **options), 2)
    np.testing.assert_allclose(point(optimizer, 1), [0.9, 0.9], atol=1e-4)
    alone = load_space({"hyperparameters": {"fixed": fixed, "x": x}})
    optimizer = proposed(make("cmaes", alone, **options), 2)
    # The package needs two dimensions: the second, which is idle, starts in the middle.
    np.testing.assert_allclose(point(optimizer, 1), [0.9, 0.5], atol=1e-4)


def test_warm_starts_are_no_points_of_the_distribution():
    warm = ({"x": 0.1}, {"x": 0.2})
    optimizer = make("cmaes", CUBE, horizon=10, population_size=4, initial=warm)
    assert [number for number in range(20) if optimizer.blind(number)] == list(range(7))
    assert [optimizer.modelled(99, scored) for scored in (6, 7)] == [False, True]
    proposed(optimizer, 7)
    for number in range(6):
        optimizer.observe(Scored(number, (1.0,), reached=10))
    assert optimizer._cma.generation == 0
    optimizer.observe(Scored(6, (1.0,), reached=10))
    assert optimizer._cma.generation == 1


def restarted(monkeypatch, **options):
    """A run of which the first update is the last."""
    optimizer = proposed(make("cmaes", CUBE, horizon=10, population_size=4, **options), 6)
    monkeypatch.setattr(CMA, "should_stop", lambda self: self.generation > 0)
    for number in range(1, 5):
        optimizer.observe(Scored(number, (1.0,), reached=10))
    return optimizer


@pytest.mark.parametrize("seed", [0, 5])
def test_a_new_run_starts_elsewhere_with_the_step_size_and_twice_the_points(seed, monkeypatch):
    optimizer = restarted(monkeypatch, seed=seed, sigma=0.2)
    place = seeds.generator(seed, "algorithm", "cmaes restart", 1).random(3)
    np.testing.assert_array_equal(optimizer._cma.mean, place)
    assert (optimizer._cma._sigma, optimizer._cma.population_size) == (0.2, 8)
    assert optimizer._run == 1
