"""Designs, phases, stand-ins and the share of a model, at their borders."""

import numpy as np
import pytest
from driving import ask, proposed, tell

from autorl.core.types import (
    Config,
    Exploit,
    Failed,
    InputError,
    Proposal,
    Proposed,
    Scored,
    Status,
    Wait,
)
from autorl.optimizers import make
from autorl.optimizers.model_share import ModelShare, share_dict, share_text
from autorl.optimizers.sobol import SobolOptions, SobolSearch
from autorl.space import load_space
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")
CONSTRAINED = space_of("constrained")
CHANGEABLE = load_space({"x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}})


# -- random, Sobol, grid -----------------------------------------------------------------------------


def test_random_search_draws_from_the_space_with_the_generator_of_the_ask():
    optimizer = proposed(make("random", CONSTRAINED, horizon=30), 1)
    proposal = ask(optimizer, 7)
    assert proposal == Proposal(
        CONSTRAINED.sample(np.random.default_rng(7)), 30, origin="random", informed=False
    )


@pytest.mark.parametrize(("tries", "refused"), [(0, True), (1, False)])
def test_sobol_gives_up_after_so_many_points_that_break_a_rule(tries, refused, monkeypatch):
    optimizer = make("sobol", CONSTRAINED, horizon=10, seed=3)
    points = SobolSearch(optimizer.problem, SobolOptions(seed=3))
    valid = [
        number
        for number in range(60)
        if CONSTRAINED.is_valid(CONSTRAINED.from_unit(points.point(number)))
    ]
    # The first valid point that follows an invalid one: so many are looked at from there on.
    place = next(k for k in range(1, len(valid)) if valid[k] > valid[k - 1] + 1)
    proposed(optimizer, 1 + place)
    assert optimizer.history[place].proposal.meta["index"] == valid[place - 1]
    monkeypatch.setattr(
        "autorl.optimizers.sobol.SKIPS", valid[place] - valid[place - 1] - 1 + tries
    )
    if refused:
        with pytest.raises(InputError, match="use `random`") as caught:
            ask(optimizer)
        assert caught.value.key == "optimizer.name"
    else:
        assert ask(optimizer).origin == f"sobol {valid[place]}"
        assert not ask(optimizer).informed


@pytest.mark.parametrize(
    ("name", "key", "origin"), [("sobol", "index", "sobol 1"), ("grid", "position", "grid 1")]
)
def test_a_proposal_of_the_caller_takes_no_place_of_a_design(name, key, origin):
    optimizer = proposed(make(name, SPACE, horizon=10), 2)
    assert optimizer.history[1].proposal.meta[key] == 0
    optimizer.observe(Proposed(2, Proposal(Config(x=0.1, y=0.1, z=0.1), 10)))
    proposal = ask(optimizer)
    assert (proposal.origin, proposal.meta[key], proposal.informed) == (origin, 1, False)


def test_a_grid_has_two_levels_at_the_bounds_and_odd_ones_on_the_scale():
    rate = {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log", "default": 0.1}
    space = load_space({"hyperparameters": {"rate": rate, "n": {**UNIT_INT, "upper": 9}}})
    by_levels = {
        levels: make("grid", space, horizon=1, levels=levels)._levels for levels in (1, 2, 3, 5)
    }
    assert by_levels[1] == {"rate": (0.01,), "n": (5,)}
    assert by_levels[2] == {"rate": (1e-4, 1.0), "n": (1, 9)}
    assert by_levels[3]["rate"] == pytest.approx((1e-4, 1e-2, 1.0))
    assert by_levels[3]["n"] == (1, 5, 9)
    assert by_levels[5]["rate"] == pytest.approx((1e-4, 1e-3, 1e-2, 1e-1, 1.0))
    assert by_levels[5]["n"] == (1, 3, 5, 7, 9)


UNIT_INT = {"type": "int", "lower": 1, "upper": 9, "default": 2}


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "2", None, True])
def test_levels_of_a_hyperparameter_are_whole_numbers(wrong):
    with pytest.raises(InputError) as caught:
        make("grid", SPACE, horizon=1, levels={"y": wrong})
    assert caught.value.key == "optimizer.levels.y"
    assert caught.value.message == f"expected int >= 1, got {wrong!r}"


# -- configurations of the caller --------------------------------------------------------------------


# -- phases ------------------------------------------------------------------------------------------


def phases(count=2, **options):
    options = {"horizon": 90, "changeable": {"x"}, "configurations": count, **options}
    return make("phases", CHANGEABLE, **options)


def test_in_a_phase_between_two_others_its_own_runs_and_where_it_began_are_kept():
    optimizer = proposed(phases(), 2)
    tell(optimizer, 0, 2.0)
    tell(optimizer, 1, 1.0)
    proposed(optimizer)
    assert sorted(optimizer.keeps()) == [0, 2], "another run of this phase begins with 0"
    tell(optimizer, 2, 5.0)
    assert sorted(optimizer.keeps()) == [0, 2]
    proposed(optimizer)
    assert sorted(optimizer.keeps()) == [2, 3]
    tell(optimizer, 3, 1.0)
    assert sorted(optimizer.keeps()) == [2]


def test_of_equal_runs_a_phase_goes_on_from_the_earlier_and_never_from_one_that_cannot():
    optimizer = proposed(phases(4), 4)
    tell(optimizer, 3, 9.0, resumable=False)
    tell(optimizer, 2, 7.0)
    optimizer.observe(Failed(0, Status.CRASH, (99.0,)))
    assert ask(optimizer) == Wait()
    tell(optimizer, 1, 7.0)
    proposal = ask(optimizer)
    assert proposal.parent == Exploit(1, stream="phase 2")
    assert proposal.config == optimizer.history[0].proposal.config, "a failed one has its place"


def test_sobol_points_of_a_first_phase_are_those_after_the_initial_configurations():
    optimizer = proposed(phases(4, seed=5, initial=({"x": 0.25},)), 4)
    points = SobolSearch(optimizer.problem, SobolOptions(5))
    made = [record.proposal for record in optimizer.history]
    assert [proposal.config for proposal in made[2:]] == [
        CHANGEABLE.from_unit(points.point(index)) for index in range(2)
    ]
    assert [dict(proposal.meta) for proposal in made] == [
        {"phase": 0},
        {"phase": 0},
        {"index": 0, "phase": 0},
        {"index": 1, "phase": 0},
    ]
    assert [proposal.member for proposal in made] == ["phase 1"] * 4
    assert [number for number in range(9) if optimizer.blind(number)] == [0, 1, 2, 3]


def test_what_cannot_change_is_named_in_order():
    unit = {"type": "float", "lower": 0.0, "upper": 1.0}
    space = load_space({"hyperparameters": {"z": unit, "a": unit, "m": unit}})
    with pytest.raises(InputError, match="but a, z cannot change") as caught:
        make("phases", space, horizon=9, changeable={"m"})
    assert caught.value.key == "space"


@pytest.mark.parametrize(
    ("options", "ends"),
    [({}, (30, 60, 90)), ({"phases": 2}, (45, 90)), ({"phases": 4}, (23, 45, 68, 90))],
)
def test_phases_are_of_equal_length(options, ends):
    assert phases(**options).ends == ends


# -- stand-ins ---------------------------------------------------------------------------------------


def stand_in(**options):
    return make("autorl.optimizers.stand_in:StandIn", SPACE, **{"horizon": 90, **options})


def test_a_stand_in_gives_its_problem_to_whom_it_stands_for():
    optimizer = stand_in(
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


def test_a_stand_in_stands_for_random_search_unless_told_otherwise():
    optimizer = proposed(stand_in(), 1)
    assert type(optimizer._real).__name__ == "RandomSearch"
    assert optimizer.options.settings is None
    proposal = ask(optimizer, 4)
    assert proposal.config == SPACE.sample(np.random.default_rng(4))
    assert (proposal.origin, proposal.informed, proposal.until) == ("random", False, 90)


def test_a_stand_in_says_what_the_other_says():
    optimizer = stand_in(stands_for="hyperband", settings={"eta": 3}, budget=9)
    real = make("hyperband", SPACE, horizon=90, eta=3, budget=9)
    assert optimizer.outline() == real.outline() != ()
    assert optimizer.cautions() == real.cautions() != ()


@pytest.mark.parametrize(
    ("outcome", "informed"),
    [
        (Scored(0, (1.0,), reached=90), True),
        (Failed(0, Status.CRASH, (1.0,)), True),
        (Failed(0, Status.CRASH, ()), False),
    ],
)
def test_a_stand_in_counts_scores_and_penalties(outcome, informed):
    optimizer = proposed(stand_in(stands_for="tpe", settings={"startup": 2}), 2)
    assert not ask(optimizer).informed
    optimizer.observe(outcome)
    assert ask(optimizer).informed is informed


# -- the share of a model ----------------------------------------------------------------------------


def test_a_share_in_words_of_an_estimate_and_without_a_model():
    share = ModelShare(5, 2, 0)
    assert share_text(share, learns=True, about="~") == (
        "~5 new configurations (~2 by the model, ~3 of the start-up)"
    )
    assert share_text(ModelShare(5, 0, 3), learns=False, about="~") == (
        "~5 new configurations, ~3 promoted or continued"
    )
    assert share_dict(ModelShare(5, 0, 3), learns=False) == {
        "total": 5,
        "by_model": None,
        "continued": 3,
    }
