"""Differential evolution: its moves, who replaces whom, and its quality beside SciPy's."""

import math

import numpy as np
import pytest
from driving import ask, generation, proposed, tell, told
from mixed_task import CUBE

from autorl.core.types import Wait
from autorl.optimizers import make
from autorl.optimizers.de import cross, point_of, rank
from autorl.optimizers.hyperband import Bracket
from autorl.space import load_space
from autorl.testing.optimizers import assert_alike, space_of
from autorl.testing.simulation import replayed, simulate

SPACE = space_of("continuous")


def sphere(vector):
    return -sum((value - 0.3 - 0.05 * i) ** 2 for i, value in enumerate(vector))


def started(size=4, n=None, **options):
    """An optimizer whose founders 0..n-1 are scored with their number."""
    optimizer = make("de", SPACE, horizon=10, population_size=size, **options)
    told(optimizer, range(size if n is None else n))
    return optimizer


def test_at_least_one_coordinate_that_varies_comes_from_the_mutant():
    one = {"type": "categorical", "choices": ["one"]}
    space = load_space(
        {"fixed": {"type": "constant", "value": 1}, "only": one, "x": "uniform(0, 1)"}
    )
    for seed in range(20):
        child = cross(space, np.zeros(3), np.ones(3), 0.0, np.random.default_rng(seed))
        assert child.tolist() == [0.0, 0.0, 1.0]
    child = cross(space, np.zeros(3), np.ones(3), 1.0, np.random.default_rng(0))
    assert child.tolist() == [1.0, 1.0, 1.0]


def test_a_child_replaces_its_own_target_only_when_it_is_at_least_as_good():
    optimizer = started()
    for slot, child in enumerate(told(optimizer, [0.0, 0.5, 2.5, 9.0])):
        assert (child.meta["slot"], child.origin) == (slot, f"child of proposal {slot}")
    assert optimizer._members.occupant == [4, 1, 6, 7]  # 4 is as good as 0, 5 is worse than 1


def test_a_failed_child_never_replaces_and_a_failed_founder_is_founded_again():
    optimizer = started(n=3)
    for failures in (1, 3):
        told(optimizer, [None] * failures)
        assert optimizer._members.occupant == [0, 1, 2, None]
    again = ask(optimizer)
    assert (again.meta["slot"], again.origin) == (3, "random")


def test_with_more_in_flight_than_members_it_waits():
    optimizer = proposed(make("de", SPACE, horizon=10, population_size=4), 4)
    assert ask(optimizer) == Wait()
    tell(optimizer, 2, 1.0)
    assert ask(optimizer).meta["slot"] == 2


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
    space = load_space({"a": "int(1, 4)", "b": "int(1, 4)"})
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
        found = differential_evolution(
            lambda vector: -sphere(vector),
            [(0.0, 1.0)] * 4,
            init=population,
            maxiter=budget // size - 1,
            tol=0,
            polish=False,
            rng=rng,
            strategy="rand1bin",
            mutation=0.5,
            recombination=0.5,
            updating="immediate",
        )
        assert found.nfev == budget
        theirs.append(-found.fun)
    assert_alike(mine, theirs)


@pytest.mark.parametrize(
    ("budget", "size"), [(math.inf, 20), (200.0, 20), (32.0, 8), (16.0, 4), (5.0, 4)]
)
def test_a_small_budget_has_a_small_population_and_so_children(budget, size):
    """With 20 members a search of 16 runs is random search."""
    for given, members in (({}, size), ({"population_size": 9}, 9)):
        optimizer = make("de", SPACE, horizon=10, budget=budget, **given)
        assert len(optimizer._members.occupant) == members


def test_before_four_members_are_scored_nobody_breeds():
    optimizer = started(size=5, n=4)
    (fifth,) = generation(optimizer, 1)
    assert (fifth.meta["slot"], fifth.origin, fifth.informed) == (4, "random", False)
    first = ask(optimizer)
    assert (first.meta["slot"], first.informed) == (0, True), "three others are enough"
    alone = ask(proposed(started(size=4, n=3)))
    assert (alone.meta["slot"], alone.origin, alone.informed) == (0, "random", False)


CYCLE = (4 + 2 + 1) + (3 + 1) + 3  # proposals of the three brackets of the first cycle


def dehb(**options):
    return make("dehb", SPACE, horizon=100, **options)


def by_x(number, proposal):
    return proposal.config["x"]


def test_the_first_cycle_is_hyperbands_and_goes_on_from_checkpoints():
    mine = simulate(dehb, by_x, CYCLE).proposals
    hyperband = simulate(lambda: make("hyperband", SPACE, horizon=100), by_x, CYCLE).proposals
    assert [p.until for p in mine] == [p.until for p in hyperband]
    assert [p.resume_from is None for p in mine] == [p.resume_from is None for p in hyperband]
    best = sorted(range(4), key=lambda number: -mine[number].config["x"])
    assert [mine[4].resume_from, mine[5].resume_from] == best[:2]
    assert mine[6].resume_from == 4
    for proposal in mine:
        if proposal.resume_from is not None:
            assert proposal.config == mine[proposal.resume_from].config


def test_later_cycles_are_children_from_scratch():
    proposals = simulate(dehb, by_x, 3 * CYCLE).proposals[CYCLE:]
    assert [p.until for p in proposals[:7]] == [25, 25, 25, 25, 50, 50, 100]
    assert {p.resume_from for p in proposals} == {None}
    assert all(p.origin.startswith("child of proposal") for p in proposals)


def test_scores_of_different_lengths_are_never_compared():
    """Short runs score far better than any long one: each population still holds runs of its own length only."""

    def shrinking(number, proposal):
        return 1000 - proposal.until + proposal.config["x"]

    simulation = simulate(dehb, shrinking, 5 * CYCLE)
    optimizer = replayed(dehb, simulation.events)
    best = {}
    for step, members in optimizer._members.items():
        assert {record.proposal.until for record in members.records()} == {step}
        best[step] = max(record.values[0] for record in members.records())
    assert best[25] > best[50] > best[100]


def test_a_warm_start_is_trained_although_the_first_bracket_is_full():
    warm = [SPACE.from_unit(np.full(3, 0.1 * k)) for k in range(1, 9)]
    proposals = simulate(lambda: dehb(initial=warm), by_x, 2 * CYCLE).proposals
    placed = [p.config for p in proposals if p.origin in ("default", "warm start")]
    assert placed == [SPACE.default(), *warm]


# The original, on five functions of the unit cube whose short runs mislead a little.


def _sphere(x):
    return float(((x - 0.3) ** 2).sum())


def _rosenbrock(x):
    z = 3 * x - 1
    return float((100 * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2).sum()) / 100


def _rastrigin(x):
    z = 4 * (x - 0.4)
    return float((z**2 + 1 - np.cos(2 * math.pi * z)).sum())


def _ackley(x):
    z = 8 * (x - 0.6)
    return (
        20
        + math.e
        - 20 * math.exp(-0.2 * math.sqrt((z**2).mean()))
        - math.exp(np.cos(2 * math.pi * z).mean())
    )


def _steps(x):
    return float(np.abs(np.floor(8 * x) - np.arange(2, 6)).sum())


LONGEST = 27  # steps of a full run
BUDGET = 40  # full runs, each run charged from scratch
REPEATS = 24


def loss(function, x, steps):
    """The function, its optimum moved for short runs."""
    return function(np.asarray(x) + 0.05 * (1 - steps / LONGEST)) + 0.1 * (1 - steps / LONGEST)


def best_of(trained):
    """The best loss of a full run within the budget; `trained`: steps and losses in order."""
    spent, best = 0.0, math.inf
    for steps, value in trained:
        spent += steps / LONGEST
        if spent > BUDGET:
            return best
        best = min(best, value) if steps == LONGEST else best
    raise AssertionError("fewer runs than the budget pays for")


def ours(function, seed):
    simulation = simulate(
        lambda: make("dehb", CUBE, horizon=LONGEST, eta=3, rungs=4),
        lambda number, proposal: -loss(function, list(proposal.config.values()), proposal.until),
        260,
        seed=seed,
    )
    proposals = simulation.proposals
    return best_of([(proposals[s.proposal].until, -s.values[0]) for s in simulation.scored])


def theirs(function, seed, folder):
    from dehb import DEHB

    original = DEHB(
        dimensions=4,
        min_fidelity=1,
        max_fidelity=LONGEST,
        eta=3,
        n_workers=1,
        output_path=str(folder),
        save_freq="end",
        seed=seed,
    )
    trained = []
    for _ in range(260):
        job = original.ask()
        steps = float(job["fidelity"])
        trained.append((steps, loss(function, job["config"], steps)))
        original.tell(job, {"fitness": trained[-1][1], "cost": steps})
    return best_of(trained)


@pytest.mark.slow
@pytest.mark.parametrize("function", [_sphere, _rosenbrock, _rastrigin, _ackley, _steps])
def test_as_good_as_the_original(function, tmp_path):
    pytest.importorskip(
        "dehb",
        reason="the original is a test oracle: pip install --no-deps dehb==0.1.2 loguru dask",
    )
    from loguru import logger

    logger.disable("dehb")
    mine = [-ours(function, 300 + seed) for seed in range(REPEATS)]
    assert_alike(mine, [-theirs(function, seed, tmp_path) for seed in range(REPEATS)])


def test_parents_are_the_best_of_one_length_and_where_those_are_few_everybody():
    optimizer = replayed(dehb, simulate(dehb, by_x, CYCLE + 7).events)

    def best(step, count):
        return sorted(optimizer._members[step].records(), key=rank)[:count]

    first = Bracket(6, *optimizer.shape(6))
    assert first.sizes == [4, 2, 1]
    assert optimizer._parents(first) == best(25, 4)
    fourth = Bracket(4, *optimizer.shape(4))
    assert optimizer._parents(fourth) == best(50, 3), "three are enough"
    first.rungs.append([])
    parents = optimizer._parents(first)
    assert parents[:2] == best(25, 2)
    assert len(parents) == len({parent.id for parent in parents}) == 4 + 3 + 3
    first.rungs.append([])
    assert optimizer._parents(first)[0] == best(50, 1)[0]


def test_runs_of_the_first_cycle_are_kept_and_later_ones_not():
    assert sorted(proposed(dehb(), 4).keeps()) == [0, 1, 2, 3]
    whole = replayed(dehb, simulate(dehb, by_x, CYCLE - 3).events)
    assert list(whole.keeps()) == []
    proposed(whole, 4)  # bracket 2, of full runs, and the first of bracket 3
    assert whole.history[CYCLE].proposal.meta["bracket"] == 3
    assert list(whole.keeps()) == []
