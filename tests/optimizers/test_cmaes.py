"""CMA-ES: its points are the package's, its state is a fold, and every kind of outcome is ranked."""

import numpy as np
import pytest

from autorl.core import seeds
from autorl.core.types import Config, Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import Record, make
from autorl.optimizers.cmaes_ import losses
from autorl.space import load_space
from autorl.study.spec import load_spec
from autorl.study.spec.optimizer import optimizer_of
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

CUBE = space_of("continuous")


def record(number, outcome):
    return Record(number, Proposal(Config(), 1), outcome)


def test_restarts_begin_at_places_of_the_studys_seed():
    by_seed = [make("cmaes", CUBE, horizon=1, seed=seed) for seed in (0, 1, 1)]
    for optimizer in by_seed:
        optimizer._run = 1
    places = [tuple(optimizer._restart()) for optimizer in by_seed]
    assert places[1] == places[2]
    assert len(set(places)) == 2
    study = {
        "trainer": "t",
        "space": "population/ppo-small",
        "fidelity": {"steps": 1},
        "optimizer": "cmaes",
        "seed": 7,
    }
    assert optimizer_of(load_spec(study | {"budget": {"runs": 9}}), ()).options.seed == 7


def test_losses_rank_scored_then_infeasible_by_violation_then_unscored():
    records = [
        record(0, Failed(0, Status.CRASH, ())),
        record(1, Scored(1, (9.0,), constraints=(2.0,))),
        record(2, Scored(2, (1.0,), constraints=(-1.0,))),
        record(3, Failed(3, Status.DIVERGED, (-4.0,))),
        record(4, Scored(4, (8.0,), constraints=(0.5,))),
    ]
    assert losses(records) == [7.0, 6.0, -1.0, 4.0, 5.0]


def test_all_unscored_is_no_error():
    assert losses([record(i, Failed(i, Status.CRASH, ())) for i in range(3)]) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("n", [1, 2])
def test_few_hyperparameters_and_constants(n):
    hyperparameters = {
        f"x{i}": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.9} for i in range(n)
    }
    space = load_space(
        {"hyperparameters": {"fixed": {"type": "constant", "value": 3}, **hyperparameters}}
    )
    simulation = simulate(
        lambda: make("cmaes", space, horizon=1), lambda i, p: -((p.config["x0"] - 0.2) ** 2), 60
    )
    assert simulation.best > -1e-3


def test_a_converged_run_starts_elsewhere_with_twice_the_population():
    space = load_space(
        {
            "hyperparameters": {
                "c": {"type": "categorical", "choices": ["a", "b"]},
                "d": {"type": "constant", "value": 1},
            }
        }
    )
    optimizer = make("cmaes", space, horizon=1, population_size=4)
    simulation = simulate(lambda: optimizer, lambda i, p: 0.0, 600)
    runs = [proposal.meta["run"] for proposal in simulation.proposals[1:]]
    assert runs == sorted(runs)
    assert runs[-1] >= 1
    assert optimizer._cma.population_size == 4 * 2 ** runs[-1]


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


def first_points(optimizer, monkeypatch):
    """Return the points drawn for proposal 1, the seeds given, and the proposal."""
    drawn, given = [], []
    optimizer.observe(Proposed(0, optimizer.ask(np.random.default_rng(0))))
    cma = optimizer._cma
    ask, reseed = cma.ask, cma.reseed_rng
    monkeypatch.setattr(cma, "ask", lambda: drawn.append(ask()) or drawn[-1])
    monkeypatch.setattr(cma, "reseed_rng", lambda seed: given.append(seed) or reseed(seed))
    return drawn, given, optimizer.ask(np.random.default_rng(1))


def test_a_point_that_breaks_a_rule_is_drawn_twenty_times_more_and_then_repaired(monkeypatch):
    space = load_space(
        {
            "hyperparameters": {
                "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.0},
                "y": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 1.0},
            },
            "constraints": ["y - x >= 0.999"],
        }
    )
    optimizer = make("cmaes", space, horizon=1, sigma=0.01)
    drawn, given, proposal = first_points(optimizer, monkeypatch)
    assert len(drawn) == 21
    assert list(proposal.meta["point"]) == drawn[-1].tolist()
    assert space.is_valid(proposal.config)
    assert given == [int(np.random.default_rng(1).integers(2**31))]


def test_a_point_that_breaks_none_is_taken(monkeypatch):
    drawn, _, proposal = first_points(make("cmaes", CUBE, horizon=1), monkeypatch)
    assert len(drawn) == 1
    assert proposal.config == CUBE.from_unit(drawn[0])
    assert (proposal.meta["run"], proposal.informed) == (0, False)


def test_what_the_distribution_was_told_informs_the_next():
    simulation = simulate(
        lambda: make("cmaes", CUBE, horizon=1, population_size=4), lambda n, p: float(n), 8
    )
    assert [one.informed for one in simulation.proposals] == [False] * 5 + [True] * 3


def test_a_converged_run_is_followed_by_one_of_twice_the_population(monkeypatch):
    optimizer = make("cmaes", CUBE, horizon=1, population_size=4, seed=5)
    simulate(lambda: optimizer, lambda n, p: float(n), 4)
    monkeypatch.setattr(type(optimizer._cma), "should_stop", lambda self: True)
    number = len(optimizer.history)
    optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(9))))
    optimizer.observe(Scored(number, (1.0,)))
    assert (optimizer._run, optimizer._cma.population_size) == (1, 8)
    place = seeds.generator(5, "algorithm", "cmaes restart", 1).random(3)
    np.testing.assert_array_equal(optimizer._cma.mean, place)
    optimizer.observe(Scored(number, (2.0,), n_seeds=2))  # of a run that is over
    assert len(optimizer._scored) == 0
