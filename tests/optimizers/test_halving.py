"""Successive halving, Hyperband and ASHA: exact brackets, exact budgets, continuation, failures."""

from collections import Counter

import numpy as np
import pytest
from driving import ask, proposed, tell, told
from refusals import expect_error

from autorl.core.types import Config, Continue, Failed, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.optimizers.base import Record
from autorl.optimizers.hyperband import may_go_on, rung_steps
from autorl.space import load_space
from autorl.statistics.evaluation import Ranking
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")


def quality(number, proposal):
    """Constant along a run, so that rankings are the same at every rung."""
    return proposal.config["x"]


def steps_trained(proposals):
    return sum(
        p.until - (0 if p.resume_from is None else proposals[p.resume_from].until)
        for p in proposals
    )


def test_brackets_are_those_of_the_paper():
    """Li et al. 2018, table 1: R = 81, eta = 3."""
    optimizer = make("hyperband", SPACE, horizon=81, eta=3, rungs=5)
    assert [optimizer.shape(bracket) for bracket in range(6)] == [
        ([81, 27, 9, 3, 1], (1, 3, 9, 27, 81)),
        ([34, 11, 3, 1], (3, 9, 27, 81)),
        ([15, 5, 1], (9, 27, 81)),
        ([8, 2], (27, 81)),
        ([5], (81,)),
        ([81, 27, 9, 3, 1], (1, 3, 9, 27, 81)),
    ]


def test_a_bracket_trains_exactly_its_new_steps():
    # 9 runs to 10; 3 from 10 to 30; 1 from 30 to 90
    simulation = simulate(
        lambda: make("successive_halving", SPACE, horizon=90, eta=3, rungs=3), quality, 13
    )
    assert Counter(proposal.until for proposal in simulation.proposals) == {10: 9, 30: 3, 90: 1}
    assert steps_trained(simulation.proposals) == 9 * 10 + 3 * 20 + 60


def test_a_bracket_without_survivors_ends_and_short_rungs_are_filled_from_what_is_left():
    def fail(number, proposal):
        return Status.CRASH if number < 9 and number != 4 else None

    factory = lambda: make("successive_halving", SPACE, horizon=90, eta=3, rungs=3)  # noqa: E731
    made = simulate(factory, quality, 20, fail=fail).proposals[9:12]
    assert [(p.until, p.resume_from) for p in made] == [(30, 4), (90, 9), (10, None)]
    nobody = simulate(factory, quality, 12, fail=lambda n, p: Status.CRASH if n < 9 else None)
    assert [p.meta["bracket"] for p in nobody.proposals[9:]] == [1, 1, 1]


def test_asha_promotes_the_top_third_at_once():
    optimizer = make("asha", SPACE, horizon=90, eta=3, rungs=3)
    resumed = [told(optimizer, [v])[0].resume_from for v in (0.3, 0.1, 0.2, 0.9, 0.8, 0.4)]
    # Of three runs the best, 0, goes on; of four (0, 1, 2, 4) the best is now 4, which was not promoted yet.
    assert resumed == [None, None, None, 0, None, 4]
    optimizer.observe(Failed(5, Status.CRASH, (0.1,)))
    assert ask(optimizer).until == 10


# What other tools get wrong: one test each.

BRACKETS = [
    ("asha", {}),
    ("successive_halving", {}),
    ("hyperband", {}),
    ("dehb", {}),
    ("bohb", {"startup": 4}),
]


@pytest.mark.parametrize(("name", "options"), BRACKETS)
def test_a_failed_run_is_never_promoted_however_good_its_penalty(name, options):
    """The penalty of a failure is the best value of all, and half of the runs fail."""
    optimizer = make(name, SPACE, horizon=100, eta=2, rungs=3, **options)
    failed = set()
    for number in range(40):
        answer = optimizer.ask(np.random.default_rng(number))
        assert answer.resume_from not in failed
        optimizer.observe(Proposed(number, answer))
        if answer.config["x"] > 0.5:
            failed.add(number)
            optimizer.observe(Failed(number, Status.CRASH, (100.0,)))
        else:
            optimizer.observe(Scored(number, (answer.config["x"],), reached=answer.until))
    assert failed


@pytest.mark.parametrize(("name", "options"), BRACKETS)
def test_a_run_whose_new_seed_failed_is_not_promoted(name, options):
    """Racing adds a seed after the rung was decided; it fails: the run cannot be continued any more."""
    optimizer = make(name, SPACE, horizon=100, eta=2, rungs=3, **options)
    told(optimizer, range(4))
    assert ask(optimizer).resume_from == 3
    tell(optimizer, 3, 3.0, n_seeds=2, resumable=False)
    assert ask(optimizer).resume_from == 2
    assert 3 not in optimizer.keeps()


@pytest.mark.parametrize("name", ["successive_halving", "hyperband", "dehb", "bohb"])
def test_a_bracket_goes_on_with_those_that_are_left_when_a_promotion_is_withdrawn(name):
    """Rungs of 4, 2 and 1 runs: the second is closed by the one run that is left for it."""
    optimizer = make(name, SPACE, horizon=100, eta=2, rungs=3)
    told(optimizer, range(4))
    tell(optimizer, 3, 3.0, n_seeds=2, resumable=False)
    following = ask(proposed(optimizer))
    assert (following.meta["bracket"], following.resume_from) == (1, None)
    tell(optimizer, 4, 1.0)
    following = ask(optimizer)
    assert (following.meta["bracket"], following.until, following.resume_from) == (0, 100, 4)


@pytest.mark.parametrize("name", ["asha", "hyperband", "dehb", "bohb", "cost_aware"])
def test_the_incumbent_is_of_the_highest_fidelity(name):
    """DEHB 0.1.2 and hypersweeper name the best score of any length. Here short runs score best."""
    ranking = Ranking()

    def shrinking(number, proposal):
        return 1000 - proposal.until + proposal.config["x"]

    simulation = simulate(lambda: make(name, SPACE, horizon=100), shrinking, 40)
    for scored in simulation.scored:
        ranking.observe(scored)
    full = [s.proposal for s in simulation.scored if s.reached == 100]
    assert ranking.best() == max(full, key=lambda number: simulation.proposals[number].config["x"])


@pytest.mark.parametrize("name", ["hyperband", "dehb", "bohb", "cost_aware"])
def test_seeds_race_at_every_length(name):
    """SMAC3 cannot combine budgets and seeds. Here short runs race too, every seed to the same step."""
    spec = load_spec(
        {
            "trainer": {"name": "synthetic", "kwargs": {"noise": 0.1, "interaction": 0.1}},
            "space": {"x": "uniform(0, 1)"},
            "fidelity": {"steps": 20, "evaluations": 1},
            "optimizer": name,
            "budget": {"runs": 14},
            "seeds": {"tuning": 3, "test": 0},
            "evaluation": {"seeds": "racing", "min": 1, "max": 3},
            "parallelism": 2,
            "executor": {"name": "in_process"},
        }
    )
    study = Study.in_memory(spec)
    study.run()
    ends = {}
    for segment, begin, end, notes in study.store.query(
        "SELECT segment, from_step, to_step, notes FROM segments"
    ):
        proposal, seed = map(int, segment.split("."))
        ends.setdefault(proposal, {})[seed] = (begin, end)
        if begin != ends[proposal][0][0]:
            assert notes == "no checkpoint to continue: trained from step 0"
    study.close()
    raced = {cuts[0][1] for cuts in ends.values() if len(cuts) > 1}
    assert min(raced) < 20, "runs that end before the horizon got more seeds"
    assert all(len({end for _, end in cuts.values()}) == 1 for cuts in ends.values())


def test_the_schedule_of_a_budget_and_a_caution_about_early_rungs():
    optimizer = make("hyperband", SPACE, horizon=90, eta=3, rungs=3, budget=23.0)
    assert optimizer.outline()[:3] == (
        "bracket 0: 9 runs to 10, 3 runs to 30, 1 run to 90 steps",
        "bracket 1: 5 runs to 30, 1 run to 90 steps",
        "bracket 2: 3 runs to 90 steps",
    )
    spent = 9 * 10 + 3 * 20 + 60 + 5 * 30 + 60 + 3 * 90
    assert f"{23 * 90 / spent * 3:.3g} brackets" in optimizer.outline()[3]
    (caution,) = optimizer.cautions()
    assert "after 11.1% of a run" in caution
    assert make("hyperband", SPACE, horizon=90).cautions() == ()
    (_, line, *_) = make("asha", SPACE, horizon=100, budget=23.0).outline()
    assert "about 46 configurations, 12 to the end" in line


def test_state_does_not_grow_with_finished_brackets():
    factory = lambda: make("hyperband", SPACE, horizon=100)  # noqa: E731
    optimizer = factory()
    for event in simulate(factory, quality, 400, lag=4).events:
        optimizer.observe(event)
        assert len(optimizer._open) <= 2
    assert optimizer._begun > 80


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
    expect_error("rungs: 3 rungs with eta 2 do not fit into 2 steps", rung_steps, 2, 2, 3)


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
    assert may_go_on(Record(0, Proposal(Config(x=0.5), 10), outcome)) is goes_on


# -- brackets ----------------------------------------------------------------------------------------


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


# -- BOHB --------------------------------------------------------------------------------------------


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


def bohb(space=SPACE, **options):
    return make("bohb", space, horizon=100, random_fraction=0.0, **options)


def test_scores_of_different_lengths_are_never_compared():
    """Short runs score best where long ones are worst: a model of both would go there."""

    def misleading(number, proposal):
        x = proposal.config["x"]
        return -abs(x - 0.9) + 100 if proposal.until < 100 else -abs(x - 0.1)

    for lag in (1, 4):
        proposals = simulate(lambda: bohb(startup=6), misleading, 90, lag=lag).proposals
        late = [p.config["x"] for p in proposals[45:] if p.origin.endswith("of runs to step 100")]
        assert len(late) > 10
        assert np.median(late) < 0.4


def test_no_configuration_is_started_twice():
    space = load_space({"n": {"type": "int", "lower": 1, "upper": 60, "default": 1}})
    made = simulate(lambda: bohb(space), lambda n, p: -p.config["n"], 40).proposals
    modelled = [one for one in made if one.origin.startswith("tpe")]
    started = [one.config for one in modelled if "at random" not in one.origin]
    assert len(set(started)) == len(started) >= 8
