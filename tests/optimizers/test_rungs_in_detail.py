"""Brackets and rungs at their borders: when one is begun, closed, given up, and what BOHB starts."""

import math

import numpy as np
import pytest
from driving import ask, proposed, tell

from autorl.core.types import (
    Config,
    Continue,
    Failed,
    InputError,
    Proposal,
    Proposed,
    Scored,
    Status,
    Wait,
)
from autorl.optimizers import make
from autorl.optimizers.base import Record
from autorl.optimizers.hyperband import Bracket, cautions_of, may_go_on, merit, rung_steps
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")


# -- rungs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("horizon", "eta", "rungs", "steps"),
    [
        (100, 2, 3, (25, 50, 100)),
        (90, 3, 3, (10, 30, 90)),
        (100, 3, 3, (12, 34, 100)),  # rounded up
        (3, 2, 3, (1, 2, 3)),
        (7, 2, 1, (7,)),
        (1, 2, 1, (1,)),
    ],
)
def test_rungs_end_at_the_horizon_by_powers_of_eta(horizon, eta, rungs, steps):
    assert rung_steps(horizon, eta, rungs) == steps


def test_two_rungs_cannot_end_at_one_step():
    with pytest.raises(InputError, match="3 rungs with eta 2 do not fit into 2 steps") as caught:
        rung_steps(2, 2, 3)
    assert caught.value.key == "optimizer.rungs"


@pytest.mark.parametrize(
    ("steps", "share"), [((19, 100), "19.0%"), ((20, 100), None), ((5,), None)]
)
def test_rungs_before_a_fifth_of_a_run_are_warned_of(steps, share):
    said = cautions_of(steps)
    if share is None:
        assert said == ()
    else:
        assert said == (
            f"the lowest rung ends after {share} of a run, where rankings say little about full "
            "runs: fewer `rungs` or a smaller `eta` make it longer",
        )


def record(number, outcome):
    return Record(number, Proposal(Config(x=0.5), 10), outcome)


@pytest.mark.parametrize(
    ("outcome", "goes_on"),
    [
        (None, False),
        (Failed(0, Status.CRASH, (9.0,)), False),
        (Scored(0, (1.0,), reached=10), True),
        (Scored(0, (1.0,), reached=11), True),
        (Scored(0, (1.0,), reached=9), False),
        (Scored(0, (1.0,), reached=10, resumable=False), False),
    ],
)
def test_who_may_go_on(outcome, goes_on):
    assert may_go_on(record(0, outcome)) is goes_on


def test_better_runs_are_feasible_then_score_more_then_are_earlier():
    outcomes = [
        Scored(0, (9.0,), constraints=(0.2, 0.2)),
        Scored(1, (8.0,), constraints=(0.3,)),
        Scored(2, (1.0,), constraints=(-1.0,)),
        Scored(3, (2.0,)),
        Scored(4, (2.0,)),
    ]
    records = [record(number, outcome) for number, outcome in enumerate(outcomes)]
    assert [better.id for better in sorted(records, key=merit)] == [3, 4, 2, 1, 0]
    assert merit(records[0]) == (0.4, -9.0, 0)


def test_a_bracket_says_how_far_it_is():
    bracket = Bracket(0, [3, 2], (5, 10))
    states = []

    def note():
        states.append((bracket.rung, bracket.awaited, bracket.proposed, bracket.finished))

    bracket.rungs[-1] += [0, 1]
    note()
    bracket.rungs[-1].append(2)
    note()
    bracket.promoted.append([2, 0])
    bracket.rungs.append([])
    note()
    bracket.rungs[-1].append(3)
    note()
    bracket.rungs[-1].append(4)
    note()
    assert states == [
        (0, [], False, False),
        (0, [], True, False),
        (1, [2, 0], False, False),
        (1, [0], False, False),
        (1, [], True, True),
    ]


# -- brackets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "before_waiting"), [(0, 9), (1, 9 + 5), (2, 9 + 5 + 3 + 9)])
def test_so_many_are_proposed_before_any_outcome(ahead, before_waiting):
    """The third bracket, of three full runs, waits for nothing: it counts for no bracket ahead."""
    optimizer = make("hyperband", SPACE, horizon=90, eta=3, rungs=3, ahead=ahead)
    for _ in range(before_waiting):
        answer = ask(optimizer)
        assert isinstance(answer, Proposal)
        optimizer.observe(Proposed(len(optimizer.history), answer))
    assert ask(optimizer) == Wait()


def test_by_itself_one_bracket_is_begun_ahead():
    optimizer = proposed(make("hyperband", SPACE, horizon=90, eta=3, rungs=3), 14)
    assert ask(optimizer) == Wait()


def test_a_rung_is_decided_when_its_last_run_is_scored_and_the_oldest_bracket_goes_first():
    optimizer = proposed(make("hyperband", SPACE, horizon=90, eta=3, rungs=3), 10)
    for number in range(8):
        tell(optimizer, number, number)
    assert ask(optimizer).meta["bracket"] == 1
    tell(optimizer, 8, -1.0)
    promotion = ask(optimizer)
    assert (promotion.parent, promotion.until) == (Continue(7), 30)
    assert dict(promotion.meta) == {"bracket": 0, "rung": 1}
    assert promotion.config == optimizer.history[7].proposal.config
    assert promotion.origin == "promoted to rung 1 of bracket 0"
    assert promotion.informed
    proposed(optimizer, 3)
    assert [optimizer.history[number].proposal.resume_from for number in (10, 11, 12)] == [7, 6, 5]
    assert ask(optimizer).meta["bracket"] == 1


def test_warm_starts_are_placed_in_brackets():
    warm = ({"x": 0.1}, {"x": 0.2})
    optimizer = proposed(make("hyperband", SPACE, horizon=100, rungs=2, initial=warm), 2)
    for number in range(2):
        tell(optimizer, number, number)
    proposed(optimizer, 3)  # a promotion, then the next bracket
    made = [record.proposal for record in optimizer.history]
    assert [proposal.origin for proposal in made] == [
        "default",
        "warm start",
        "promoted to rung 1 of bracket 0",
        "warm start",
        "random",
    ]
    assert made[3].config["x"] == 0.2
    assert made[4].config == SPACE.sample(np.random.default_rng(4))
    assert [proposal.meta["rung"] for proposal in made] == [0, 0, 1, 0, 0]


@pytest.mark.parametrize("name", ["hyperband", "successive_halving"])
def test_a_bracket_whose_only_promotion_is_withdrawn_is_over(name):
    """2 runs to 50, 1 of them to 100: the second bracket follows, and nobody is kept."""
    optimizer = proposed(make(name, SPACE, horizon=100, rungs=2), 2)
    tell(optimizer, 0, 0.0)
    tell(optimizer, 1, 1.0)
    assert ask(optimizer).resume_from == 1
    tell(optimizer, 1, 1.0, n_seeds=2, resumable=False)
    following = ask(optimizer)
    assert (following.meta["bracket"], following.resume_from) == (1, None)
    assert list(optimizer.keeps()) == []
    tell(optimizer, 0, 5.0, n_seeds=2)  # of a bracket that is over
    assert ask(optimizer) == following
    proposed(optimizer, 2)
    assert list(optimizer._open) == ([] if name == "hyperband" else [1])


def test_a_bracket_ends_where_all_promotions_are_withdrawn():
    optimizer = proposed(make("hyperband", SPACE, horizon=100, rungs=3), 4)
    for number in range(4):
        tell(optimizer, number, number)
    tell(optimizer, 3, 3.0, n_seeds=2, resumable=False)
    assert ask(optimizer).resume_from == 2
    assert optimizer._open[0].sizes == [4, 1, 1]
    tell(optimizer, 2, 2.0, n_seeds=2, resumable=False)
    assert ask(optimizer).meta["bracket"] == 1
    assert 0 not in optimizer._open


def test_a_later_score_of_a_run_that_goes_on_withdraws_nothing():
    optimizer = proposed(make("hyperband", SPACE, horizon=100, rungs=3), 4)
    for number in range(4):
        tell(optimizer, number, number)
    proposed(optimizer)  # 3 goes on
    tell(optimizer, 3, 3.0, n_seeds=2, resumable=False)
    tell(optimizer, 2, 9.0, n_seeds=2)
    assert optimizer._open[0].sizes == [4, 2, 1]
    assert ask(optimizer).resume_from == 2


# -- ASHA --------------------------------------------------------------------------------------------


def test_asha_counts_a_run_once_however_often_it_is_scored():
    optimizer = proposed(make("asha", SPACE, horizon=100), 1)
    tell(optimizer, 0, 1.0)
    tell(optimizer, 0, 1.0, n_seeds=2)
    assert ask(optimizer).resume_from is None
    proposed(optimizer)
    tell(optimizer, 1, 0.0)
    assert ask(optimizer).parent == Continue(0)


def test_asha_promotes_nobody_twice_also_after_a_later_score():
    optimizer = proposed(make("asha", SPACE, horizon=100), 2)
    for number in range(2):
        tell(optimizer, number, number)
    proposed(optimizer)
    assert optimizer.history[2].proposal.resume_from == 1
    tell(optimizer, 1, 5.0, n_seeds=2)
    assert ask(optimizer).resume_from is None
    assert list(optimizer.keeps()) == [2, 0]


def test_asha_forgets_a_run_that_a_later_seed_has_failed():
    optimizer = proposed(make("asha", SPACE, horizon=100), 2)
    for number in range(2):
        tell(optimizer, number, number)
    tell(optimizer, 1, 5.0, n_seeds=2, resumable=False)
    assert ask(optimizer).resume_from == 0
    tell(optimizer, 1, 5.0, n_seeds=3)
    assert ask(optimizer).resume_from == 1


def test_asha_proposes_the_initial_configurations_and_then_draws():
    optimizer = proposed(make("asha", SPACE, horizon=100, initial=({"x": 0.1},)), 3)
    made = [record.proposal for record in optimizer.history]
    assert [proposal.origin for proposal in made] == ["default", "warm start", "random"]
    assert made[2].config == SPACE.sample(np.random.default_rng(2))
    assert [dict(proposal.meta) for proposal in made] == [{"rung": 0}] * 3
    assert not any(proposal.informed for proposal in made)
    assert [proposal.until for proposal in made] == [25] * 3


def test_asha_outlines_no_budget_that_is_infinite():
    optimizer = make("asha", SPACE, horizon=2000, eta=2, rungs=2)
    assert optimizer.outline() == (
        "rungs end at 1,000, 2,000 steps; one in 2 goes on from each at once",
    )


# -- BOHB --------------------------------------------------------------------------------------------


def bohb(**options):
    return make("bohb", SPACE, **{"horizon": 100, "random_fraction": 0.0, **options})


@pytest.mark.parametrize(
    ("options", "startup", "blind"),
    [
        ({"budget": 8}, 2, 2),
        ({"budget": 2}, 1, 1),
        ({"budget": 40, "eta": 3}, 10, 9),
        ({"budget": 40, "eta": 3, "rungs": 4, "horizon": 81}, 10, 10),
        ({"eta": 3, "rungs": 4, "horizon": 81}, 10, 10),
        ({"budget": 8, "startup": 3}, 3, 3),
    ],
)
def test_the_start_up_of_a_length_is_ten_runs_and_at_most_a_quarter(options, startup, blind):
    optimizer = bohb(**options)
    assert optimizer._startup == startup
    assert [number for number in range(99) if optimizer.blind(number)] == list(range(blind))


def test_a_model_is_used_from_the_last_run_of_its_start_up_on():
    """Also a failed one: nobody promoted, the next brackets are begun from the model of step 25."""
    optimizer = proposed(bohb(startup=3), 3)
    tell(optimizer, 0, 1.0)
    optimizer.observe(Failed(1, Status.CRASH, (1.0,)))
    assert ask(optimizer).origin == "random"
    tell(optimizer, 2, 0.0)
    fourth = ask(optimizer)
    assert (fourth.origin, fourth.informed, fourth.until) == ("tpe, of runs to step 25", True, 25)


def test_one_run_may_be_a_start_up():
    optimizer = proposed(bohb(startup=1), 1)
    assert ask(optimizer).origin == "random"
    tell(optimizer, 0, 1.0)
    assert (ask(optimizer).origin, ask(optimizer).informed) == ("tpe, of runs to step 25", True)


def test_the_model_is_that_of_the_longest_runs_that_are_enough():
    optimizer = proposed(bohb(startup=2), 4)
    for number in range(4):
        tell(optimizer, number, number)
    proposed(optimizer, 2)
    tell(optimizer, 4, 1.0)
    assert optimizer._ended == {25: 4, 50: 1, 100: 0}
    assert ask(optimizer).origin == "tpe, of runs to step 25"
    tell(optimizer, 5, 1.0)
    tell(optimizer, 5, 2.0, n_seeds=2)  # no further run
    assert optimizer._ended == {25: 4, 50: 2, 100: 0}
    proposed(optimizer)
    assert optimizer.history[6].proposal.until == 100
    assert ask(optimizer).origin == "tpe, of runs to step 50"


@pytest.mark.parametrize(("options", "fraction"), [({}, 0.2), ({"random_fraction": 1.0}, 1.0)])
def test_a_part_of_the_new_configurations_is_drawn_at_random(options, fraction):
    optimizer = proposed(make("bohb", SPACE, horizon=100, startup=2, **options), 3)
    for number in range(3):
        tell(optimizer, number, number)
    drawn = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        at_random = rng.random() < fraction
        proposal = ask(optimizer, seed)
        assert (proposal.origin == "random") == at_random
        assert proposal.informed != at_random
        if at_random:
            assert proposal.config == SPACE.sample(rng)
        drawn += at_random
    assert drawn > 0
    assert (drawn == 40) == (fraction == 1.0)


def test_its_models_are_tpes_that_are_ready_at_once():
    optimizer = bohb(candidates=7, most_results=300)
    assert sorted(optimizer._models) == [25, 50, 100]
    for model in optimizer._models.values():
        chosen = model.options
        assert chosen.startup == 1
        assert (chosen.candidates, chosen.most_results) == (7, 300)
        assert model._proposed is optimizer._models[25]._proposed
    plain = bohb()._models[25].options
    assert (plain.candidates, plain.most_results) == (24, 1000)
    assert math.isinf(bohb().problem.budget)


def test_its_model_proposes_what_tpe_would_of_the_runs_to_a_length():
    optimizer = proposed(bohb(startup=2), 3)
    tpe = make("tpe", SPACE, horizon=100, startup=1)
    for number in range(3):
        tell(optimizer, number, number)
        tpe.observe(Proposed(number, optimizer.history[number].proposal))
        tpe.observe(Scored(number, (float(number),), reached=25))
    rng = np.random.default_rng(8)
    rng.random()  # whether at random
    assert ask(optimizer, 8).config == tpe.ask(rng).config
