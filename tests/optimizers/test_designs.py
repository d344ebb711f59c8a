"""The grid is every valid combination once, in a fixed order."""

import math
from itertools import product

import numpy as np
import pytest
from driving import ask, generation, proposed, tell, told
from refusals import expect_error
from scipy.stats import qmc

from autorl.core.types import Config, Done, Exploit, Failed, Proposal, Proposed, Status, Wait
from autorl.optimizers import make
from autorl.optimizers.sobol import SobolOptions, SobolSearch
from autorl.space import load_space
from autorl.testing.optimizers import SPACES, space_of
from autorl.testing.simulation import replayed, simulate


def grid(space, n=10_000, **options):
    return simulate(lambda: make("grid", space, horizon=1, **options), lambda i, p: 0.0, n)


def test_levels_are_evenly_spaced_with_both_bounds_and_the_default_is_not_repeated():
    simulation = grid(space_of("continuous"), levels=5)
    configs = [tuple(proposal.config.values()) for proposal in simulation.proposals]
    points = [0.0, 0.25, 0.5, 0.75, 1.0]
    assert simulation.done
    assert configs[0] == (0.75, 0.75, 0.75)
    assert configs[1:] == [point for point in product(points, repeat=3) if point != configs[0]]


def test_log_and_integer_levels_follow_the_scale():
    space = space_of("types")
    optimizer = make("grid", space, horizon=1, levels={"rate": 5, "layers": 9, "batch": 2})
    assert optimizer._levels["rate"] == pytest.approx((1e-5, 1e-4, 1e-3, 1e-2, 1e-1))
    assert optimizer._levels["layers"] == (1, 2, 3, 4)
    assert optimizer._levels["batch"] == (8, 1024)
    assert len(optimizer._levels["gamma"]) == 5
    assert optimizer._levels["fixed"] == (7,)
    assert optimizer._levels["net_arch"] == ((64,), (64, 64), (256, 256))


def test_conditional_spaces_have_no_duplicates():
    space = space_of("conditional")
    proposals = grid(space, levels=3).proposals
    assert len({proposal.config for proposal in proposals}) == len(proposals)
    # x (3) times (a, mode u: depth 3; a, mode v: depth 3 x rate 3; b: width 3), and the default, off the grid
    assert len(proposals) == 3 * (3 + 9 + 3) + 1
    assert set(SPACES["conditional"]["hyperparameters"]) == set().union(
        *(proposal.config for proposal in proposals)
    )


CUBE = space_of("continuous")


def test_points_are_those_of_scipy_in_any_order_of_access():
    reference = qmc.Sobol(3, scramble=True, rng=11).random(64)
    optimizer = make("sobol", CUBE, horizon=1, seed=11)
    for index in [0, 1, 2, 40, 7, 7, 63, 0]:
        np.testing.assert_array_equal(optimizer.point(index), reference[index])


def test_invalid_points_are_skipped_and_the_index_recorded():
    space = space_of("constrained")
    simulation = simulate(lambda: make("sobol", space, horizon=1), lambda i, p: 0.0, 40)
    indices = [proposal.meta["index"] for proposal in simulation.proposals[1:]]
    optimizer = make("sobol", space, horizon=1)
    valid = [
        i for i in range(indices[-1] + 1) if space.is_valid(space.from_unit(optimizer.point(i)))
    ]
    assert indices == valid
    assert len(indices) < indices[-1] + 1
    resumed = replayed(lambda: make("sobol", space, horizon=1), simulation.events[:-1])
    assert resumed.ask(None).meta["index"] > indices[-1]


def test_a_space_with_almost_no_valid_point_is_refused(monkeypatch):
    monkeypatch.setattr("autorl.optimizers.sobol.SKIPS", 50)
    unit = {"type": "float", "lower": 0.0, "upper": 1.0}
    sizes = {"x": {**unit, "default": 0.0}, "y": {**unit, "default": 1.0}}
    space = load_space({"hyperparameters": sizes, "constraints": ["y - x >= 0.999"]})
    expect_error(
        "use `random`", simulate, lambda: make("sobol", space, horizon=1), lambda i, p: 0.0, 5
    )


SPACE = load_space({"x": "uniform(0, 1)"})


def phases(space=SPACE, **options):
    return make("phases", space, **{"horizon": 90, "changeable": {"x"}, **options})


@pytest.mark.parametrize(
    ("budget", "options", "count"),
    [(math.inf, {}, 64), (7.9, {}, 7), (0.5, {}, 1), (7.9, {"configurations": 3}, 3)],
)
def test_a_phase_has_as_many_configurations_as_the_budget_affords(budget, options, count):
    optimizer = phases(budget=budget, **options)
    assert optimizer.configurations == optimizer.planned_configurations() == count


def test_every_phase_goes_on_from_the_best_of_the_one_before():
    optimizer = phases(configurations=3, seed=2, initial=({"x": 0.25},))
    made = []
    for values in ((1.0, 3.0, 2.0), (5.0, 4.0, 6.0), (0.0, 0.0, 0.0)):
        first = len(made)
        made += generation(optimizer, 3)
        assert ask(optimizer) == (Done() if made[-1].until == 90 else Wait())
        for number, value in enumerate(values, start=first):
            tell(optimizer, number, value)
    assert ask(optimizer) == Done()
    point = SPACE.from_unit(SobolSearch(optimizer.problem, SobolOptions(2)).point(0))
    configs = [SPACE.default(), SPACE.config({"x": 0.25}), point]
    assert [proposal.config for proposal in made] == configs * 3
    first_origins = ("default", "warm start", "sobol 0")
    parents = [None, Exploit(1, stream="phase 2"), Exploit(5, stream="phase 3")]
    for number, proposal in enumerate(made):
        phase = number // 3
        assert (proposal.until, proposal.parent) == (30 * (phase + 1), parents[phase])
        origins = (first_origins[number % 3], "phase 2 from proposal 1", "phase 3 from proposal 5")
        assert proposal.origin == origins[phase]
        assert (proposal.member, proposal.meta["phase"]) == (f"phase {phase + 1}", phase)
        assert (proposal.informed, proposal.retain) == (phase > 0, True)


def test_a_phase_that_nobody_survived_is_the_last():
    optimizer = phases(configurations=1)
    told(optimizer, [None])
    assert ask(optimizer) == Done()
    assert list(optimizer.keeps()) == []


def test_what_cannot_change_is_refused_unless_it_is_constant():
    space = load_space({"x": "uniform(0, 1)", "c": {"type": "constant", "value": 1}})
    assert ask(phases(space))
    expect_error("but x cannot change during training", phases, space, changeable=())


# -- random, Sobol, grid -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key", "origin"), [("sobol", "index", "sobol 1"), ("grid", "position", "grid 1")]
)
def test_a_proposal_of_the_caller_takes_no_place_of_a_design(name, key, origin):
    optimizer = proposed(make(name, CUBE, horizon=10), 2)
    assert optimizer.history[1].proposal.meta[key] == 0
    optimizer.observe(Proposed(2, Proposal(Config(x=0.1, y=0.1, z=0.1), 10)))
    proposal = ask(optimizer)
    assert (proposal.origin, proposal.meta[key], proposal.informed) == (origin, 1, False)


# -- phases ------------------------------------------------------------------------------------------


def test_of_equal_runs_a_phase_goes_on_from_the_earlier_and_never_from_one_that_cannot():
    optimizer = proposed(phases(configurations=4), 4)
    tell(optimizer, 3, 9.0, resumable=False)
    tell(optimizer, 2, 7.0)
    optimizer.observe(Failed(0, Status.CRASH, (99.0,)))
    assert ask(optimizer) == Wait()
    tell(optimizer, 1, 7.0)
    proposal = ask(optimizer)
    assert proposal.parent == Exploit(1, stream="phase 2")
    assert proposal.config == optimizer.history[0].proposal.config, "a failed one has its place"


# -- stand-ins ---------------------------------------------------------------------------------------


def test_a_stand_in_gives_its_problem_to_whom_it_stands_for():
    optimizer = make(
        "autorl.optimizers.dry_run:DryRun",
        CUBE,
        horizon=90,
        stands_for="tpe",
        budget=33.0,
        changeable={"x", "z"},
        n_objectives=2,
        initial=({"x": 0.25}, {"y": 0.5}),
        settings={"candidates": 5},
    )
    assert optimizer._real.problem == optimizer.problem
    assert optimizer._real.options.candidates == 5
    assert optimizer._real.problem.budget == 33.0
    assert [number for number in range(20) if optimizer.blind(number)] == list(range(8))
