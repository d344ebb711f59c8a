"""Differential evolution: its moves, who replaces whom, and its quality beside SciPy's."""

import math

import numpy as np
import pytest

from autorl.optimizers import de, make
from autorl.optimizers.de import Members, cross, mutate, point, point_of
from autorl.space import load_space
from autorl.testing.optimizers import assert_alike, space_of
from autorl.testing.simulation import simulate
from autorl.types import Failed, Proposed, Scored, Status, Wait

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


def test_the_mutant_is_the_sum_of_one_parent_and_half_the_difference_of_two_others():
    parents = [np.array([0.5, 0.5]), np.array([0.6, 0.4]), np.array([0.4, 0.4])]
    possible = {
        (round(float(a[0] + 0.5 * (b[0] - c[0])), 12), round(float(a[1] + 0.5 * (b[1] - c[1])), 12))
        for i, a in enumerate(parents)
        for j, b in enumerate(parents)
        for k, c in enumerate(parents)
        if len({i, j, k}) == 3
    }
    drawn = {
        tuple(np.round(mutate(parents, 0.5, np.random.default_rng(n)), 12)) for n in range(200)
    }
    assert drawn == possible


def test_coordinates_outside_the_cube_are_drawn_anew_and_not_piled_up_at_its_faces():
    parents = [np.array([1.0]), np.array([1.0]), np.array([0.0])]
    values = np.array([mutate(parents, 1.0, np.random.default_rng(n))[0] for n in range(300)])
    assert ((values >= 0) & (values <= 1)).all()
    assert (
        np.unique(values).size > 90
    )  # 1 + (1 - 0) and 0 + (1 - 1) occur, the first is replaced by a fresh draw
    assert np.isin(values, [0.0, 1.0]).mean() < 0.8


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


def test_infeasible_members_lose_against_feasible_ones():
    optimizer = started()
    proposal = optimizer.ask(np.random.default_rng(4))
    optimizer.observe(Proposed(4, proposal))
    optimizer.observe(Scored(4, (50.0,), reached=10, constraints=(0.1,)))
    assert optimizer._members.occupant[0] == 0
    optimizer.observe(Scored(4, (50.0,), reached=10, constraints=(0.0,), n_seeds=2))
    assert optimizer._members.occupant[0] == 4


def test_with_more_in_flight_than_members_it_waits():
    optimizer = make("de", SPACE, horizon=10, population_size=4)
    for number in range(4):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    assert optimizer.ask(np.random.default_rng(4)) == Wait()
    optimizer.observe(Scored(2, (1.0,), reached=10))
    assert optimizer.ask(np.random.default_rng(4)).meta["slot"] == 2


def test_a_member_that_trains_is_passed_over():
    members = Members(started().history, 3)
    members.begin(0, 0)
    members.begin(1, 1)
    assert members.idle() == 2
    members.begin(2, 2)
    assert members.idle() is None


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


@pytest.mark.parametrize("lag", [1, 8])
def test_better_than_random_search(lag):
    def best(name, **options):
        scores = [
            simulate(
                lambda: make(name, CUBE, horizon=1, **options),
                lambda number, proposal: sphere(proposal.config.values()),
                200,
                lag=lag,
                seed=seed,
            ).best
            for seed in range(10)
        ]
        return np.array(scores)

    assert (
        best("de", population_size=12) > best("random")
    ).sum() >= 9  # by chance once in 90 seeds


@pytest.mark.parametrize(
    ("budget", "size"), [(math.inf, 20), (200.0, 20), (32.0, 8), (16.0, 4), (5.0, 4)]
)
def test_a_small_budget_has_a_small_population_and_so_children(budget, size):
    """With 20 members a search of 16 runs is random search."""
    assert len(make("de", SPACE, horizon=10, budget=budget)._members.occupant) == size
    assert (
        len(make("de", SPACE, horizon=10, budget=budget, population_size=9)._members.occupant) == 9
    )


class Everything:
    """Holds every configuration."""

    def __contains__(self, config):
        return True


def test_eight_children_are_tried_and_then_a_point_at_random(monkeypatch):
    optimizer = started()
    optimizer._proposed = Everything()
    mutants = []

    def counted(parents, scale, rng):
        mutants.append((len(parents), scale))
        return mutate(parents, scale, rng)

    monkeypatch.setattr(de, "mutate", counted)
    proposal = optimizer.ask(np.random.default_rng(4))
    assert mutants == [(3, 0.5)] * 8, "of the three other members"
    assert proposal.origin == "random: every child was proposed before"
    assert proposal.informed


def test_what_is_new_is_taken_at_once(monkeypatch):
    optimizer = started()
    child = optimizer.ask(np.random.default_rng(4))
    assert (child.origin, child.informed) == ("child of proposal 0", True)
    rng = np.random.default_rng(4)
    parents = [point(optimizer.history[number]) for number in (1, 2, 3)]
    target = point(optimizer.history[0])
    drawn = cross(SPACE, target, mutate(parents, 0.5, rng), 0.5, rng)
    assert child.config == SPACE.decode(drawn, rng)
    assert list(child.meta["point"]) == pytest.approx(drawn.tolist())


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


def test_whose_turn_it_is_though_everybody_trains():
    members = Members(started().history, 3)
    assert members.turn() == 0
    for slot in range(3):
        members.begin(slot, slot)
    assert members.turn() == 0
    members.begin(3, 0)
    assert members.turn() == 1
