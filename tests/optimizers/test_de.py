"""Differential evolution: its moves, who replaces whom, and its quality beside SciPy's."""

import math

import numpy as np
import pytest

from autorl.core.types import Failed, Proposed, Scored, Status, Wait
from autorl.optimizers import make
from autorl.optimizers.de import cross, point_of
from autorl.space import load_space
from autorl.testing.optimizers import assert_alike, space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")
CUBE = load_space(
    {
        "hyperparameters": {
            f"x{i}": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.75}
            for i in range(4)
        }
    }
)


def sphere(vector):
    return -sum((value - 0.3 - 0.05 * i) ** 2 for i, value in enumerate(vector))


def started(size=4, n=None, **options):
    """An optimizer whose founders 0..n-1 are scored with their number."""
    optimizer = make("de", SPACE, horizon=10, population_size=size, **options)
    for number in range(size if n is None else n):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        optimizer.observe(Scored(number, (float(number),), reached=10))
    return optimizer


def test_at_least_one_coordinate_that_varies_comes_from_the_mutant():
    space = load_space(
        {
            "hyperparameters": {
                "fixed": {"type": "constant", "value": 1},
                "only": {"type": "categorical", "choices": ["one"]},
                "x": {"type": "float", "lower": 0.0, "upper": 1.0},
            }
        }
    )
    for seed in range(20):
        child = cross(space, np.zeros(3), np.ones(3), 0.0, np.random.default_rng(seed))
        assert child.tolist() == [0.0, 0.0, 1.0]
    assert cross(space, np.zeros(3), np.ones(3), 1.0, np.random.default_rng(0)).tolist() == [
        1.0,
        1.0,
        1.0,
    ]


def test_a_child_replaces_its_own_target_only_when_it_is_at_least_as_good():
    optimizer = started()
    for number, value in [(4, 0.0), (5, 0.5), (6, 2.5), (7, 9.0)]:
        proposal = optimizer.ask(np.random.default_rng(number))
        assert proposal.meta["slot"] == number - 4
        assert proposal.origin == f"child of proposal {number - 4}"
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(Scored(number, (value,), reached=10))
    assert optimizer._members.occupant == [4, 1, 6, 7]  # 4 is as good as 0, 5 is worse than 1


def test_a_failed_child_never_replaces_and_a_failed_founder_is_founded_again():
    optimizer = started(n=3)
    optimizer.observe(Proposed(3, optimizer.ask(np.random.default_rng(3))))
    optimizer.observe(
        Failed(3, Status.CRASH, (99.0,))
    )  # the value of a failure is a penalty, not a score
    assert optimizer._members.occupant == [0, 1, 2, None]
    for number in range(4, 7):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        optimizer.observe(Failed(number, Status.DIVERGED, (99.0,)))
    assert optimizer._members.occupant == [0, 1, 2, None]
    again = optimizer.ask(np.random.default_rng(7))
    assert (again.meta["slot"], again.origin) == (3, "random")


def test_with_more_in_flight_than_members_it_waits():
    optimizer = make("de", SPACE, horizon=10, population_size=4)
    for number in range(4):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    assert optimizer.ask(np.random.default_rng(4)) == Wait()
    optimizer.observe(Scored(2, (1.0,), reached=10))
    assert optimizer.ask(np.random.default_rng(4)).meta["slot"] == 2


def test_points_keep_the_coordinates_of_inactive_hyperparameters_and_follow_repairs():
    conditional, constrained = space_of("conditional"), space_of("constrained")
    drawn = np.full(len(conditional.names), 0.9)
    drawn[conditional.names.index("kind")] = 0.1
    config = conditional.from_unit(drawn)
    assert "b.width" not in config
    assert point_of(conditional, config, drawn) == drawn.tolist()
    broken = np.array([{"n": 0.1, "m": 0.9}.get(name, 0.5) for name in constrained.names])
    repaired = constrained.decode(broken, np.random.default_rng(0))
    assert constrained.from_unit(point_of(constrained, repaired, broken)) == repaired


def test_a_small_space_is_not_tried_twice_before_it_is_used_up():
    space = load_space(
        {
            "hyperparameters": {
                "a": {"type": "int", "lower": 1, "upper": 4},
                "b": {"type": "int", "lower": 1, "upper": 4},
            }
        }
    )
    factory = lambda: make("de", space, horizon=1, population_size=4)  # noqa: E731
    proposals = simulate(factory, lambda n, p: -p.config["a"] - p.config["b"], 10).proposals
    assert len({proposal.config for proposal in proposals}) == 10


def test_as_good_as_scipy():
    """SciPy's differential evolution with the same strategy, constants, population, first member and budget."""
    from scipy.optimize import differential_evolution

    size, budget, repeats = 12, 240, 24
    mine = [
        simulate(
            lambda: make("de", CUBE, horizon=1, population_size=size),
            lambda number, proposal: sphere(proposal.config.values()),
            budget,
            seed=500 + seed,
        ).best
        for seed in range(repeats)
    ]
    theirs = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        population = np.vstack([np.full((1, 4), 0.75), rng.random((size - 1, 4))])
        options = {
            "strategy": "rand1bin",
            "mutation": 0.5,
            "recombination": 0.5,
            "updating": "immediate",
        }
        found = differential_evolution(
            lambda vector: -sphere(vector),
            [(0.0, 1.0)] * 4,
            init=population,
            maxiter=budget // size - 1,
            tol=0,
            polish=False,
            rng=rng,
            **options,
        )
        assert found.nfev == budget
        theirs.append(-found.fun)
    assert_alike(mine, theirs)


@pytest.mark.parametrize(
    ("budget", "size"), [(math.inf, 20), (200.0, 20), (32.0, 8), (16.0, 4), (5.0, 4)]
)
def test_a_small_budget_has_a_small_population_and_so_children(budget, size):
    """With 20 members a search of 16 runs is random search."""
    assert len(make("de", SPACE, horizon=10, budget=budget)._members.occupant) == size
    assert (
        len(make("de", SPACE, horizon=10, budget=budget, population_size=9)._members.occupant) == 9
    )


def test_before_four_members_are_scored_nobody_breeds():
    optimizer = started(size=5, n=4)
    fifth = optimizer.ask(np.random.default_rng(4))
    assert (fifth.meta["slot"], fifth.origin, fifth.informed) == (4, "random", False)
    optimizer.observe(Proposed(4, fifth))
    first = optimizer.ask(np.random.default_rng(5))
    assert (first.meta["slot"], first.informed) == (0, True), "three others are enough"
    few = started(size=4, n=3)
    few.observe(Proposed(3, few.ask(np.random.default_rng(3))))
    alone = few.ask(np.random.default_rng(4))
    assert (alone.meta["slot"], alone.origin, alone.informed) == (0, "random", False)


def test_initial_configurations_take_their_slots():
    optimizer = make("de", SPACE, horizon=10, population_size=4, initial=({"x": 0.25},))
    slots = []
    for number in range(3):
        proposal = optimizer.ask(np.random.default_rng(number))
        slots.append((proposal.origin, proposal.meta["slot"]))
        optimizer.observe(Proposed(number, proposal))
    assert slots == [("default", 0), ("warm start", 1), ("random", 2)]
    assert list(optimizer.history[1].proposal.meta["point"]) == [0.25, 0.75, 0.75]
