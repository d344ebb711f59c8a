"""Successive halving, Hyperband and ASHA: exact brackets, exact budgets, continuation, failures."""

from collections import Counter

import numpy as np
import pytest

from autorl.core.types import Failed, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.statistics.evaluation import Ranking
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")


def root(proposals, number):
    while proposals[number].resume_from is not None:
        number = proposals[number].resume_from
    return number


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


@pytest.mark.parametrize("lag", [1, 4])
def test_the_best_of_each_rung_go_on_from_their_own_checkpoints(lag):
    simulation = simulate(
        lambda: make("successive_halving", SPACE, horizon=90, eta=3, rungs=3), quality, 24, lag=lag
    )
    proposals = simulation.proposals
    first = {
        number: p.config["x"]
        for number, p in enumerate(proposals)
        if p.meta["bracket"] == 0 and p.until == 10
    }
    best = sorted(first, key=first.get, reverse=True)
    second = [
        root(proposals, n)
        for n, p in enumerate(proposals)
        if p.meta["bracket"] == 0 and p.until == 30
    ]
    assert second == best[:3]
    for proposal in proposals:
        if proposal.resume_from is not None:
            assert proposal.config == proposals[proposal.resume_from].config


def test_a_bracket_without_survivors_ends_and_short_rungs_are_filled_from_what_is_left():
    def fail(number, proposal):
        return Status.CRASH if proposal.meta["bracket"] == 0 and number != 4 else None

    factory = lambda: make("successive_halving", SPACE, horizon=90, eta=3, rungs=3)  # noqa: E731
    simulation = simulate(
        factory, quality, 20, fail=lambda n, p: fail(n, p) if p.until == 10 else None
    )
    assert [(p.until, p.resume_from) for p in simulation.proposals[9:12]] == [
        (30, 4),
        (90, 9),
        (10, None),
    ]
    nobody = simulate(factory, quality, 12, fail=lambda n, p: Status.CRASH if n < 9 else None)
    assert [p.meta["bracket"] for p in nobody.proposals[9:]] == [1, 1, 1]


def test_kept_are_the_running_rung_and_those_to_be_promoted():
    optimizer = make("successive_halving", SPACE, horizon=90, eta=3, rungs=3)
    for number in range(9):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    assert sorted(optimizer.keeps()) == list(range(9))
    for number in range(9):
        optimizer.observe(Scored(number, (float(number),), reached=10))
    assert sorted(optimizer.keeps()) == [6, 7, 8]
    optimizer.observe(Proposed(9, optimizer.ask(np.random.default_rng(9))))
    assert sorted(optimizer.keeps()) == [6, 7, 9]


def test_runs_of_a_last_rung_are_not_kept():
    """Nobody goes on from the horizon: bracket 1 is of two full runs, of which one is under way."""
    optimizer = make("hyperband", SPACE, horizon=90, eta=3, rungs=2)
    for number in range(4):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    assert [record.proposal.until for record in optimizer.history] == [30, 30, 30, 90]
    assert sorted(optimizer.keeps()) == [0, 1, 2]


def test_asha_promotes_the_top_third_at_once():
    optimizer = make("asha", SPACE, horizon=90, eta=3, rungs=3)
    values = [0.3, 0.1, 0.2, 0.9, 0.8, 0.4]
    resumed = []
    for number, value in enumerate(values):
        answer = optimizer.ask(np.random.default_rng(number))
        resumed.append(answer.resume_from)
        optimizer.observe(Proposed(number, answer))
        optimizer.observe(Scored(number, (value,), reached=answer.until))
    # Of three runs the best, 0, goes on; of four (0, 1, 2, 4) the best is now 4, which was not promoted yet.
    assert resumed == [None, None, None, 0, None, 4]
    optimizer.observe(Failed(5, Status.CRASH, (0.1,)))
    assert optimizer.ask(np.random.default_rng(9)).until == 10


def test_asha_keeps_what_may_be_promoted_one_day_and_nothing_of_the_last_rung():
    optimizer = make("asha", SPACE, horizon=100, eta=2, rungs=2)
    for number in range(2):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    assert sorted(optimizer.keeps()) == [0, 1]
    for number in range(2):
        optimizer.observe(Scored(number, (float(number),), reached=50))
    assert sorted(optimizer.keeps()) == [0, 1]
    promotion = optimizer.ask(np.random.default_rng(2))
    assert (promotion.until, promotion.resume_from) == (100, 1)
    optimizer.observe(Proposed(2, promotion))
    assert list(optimizer.keeps()) == [0]
    optimizer.observe(Scored(2, (1.0,), reached=100))
    assert list(optimizer.keeps()) == [0]


def test_asha_counts_failures_as_runs_at_the_bottom():
    optimizer = make("asha", SPACE, horizon=90, eta=3, rungs=3)
    for number in range(3):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    optimizer.observe(Failed(0, Status.CRASH, ()))
    optimizer.observe(Failed(1, Status.CRASH, ()))
    optimizer.observe(Scored(2, (0.0,), reached=10))
    assert optimizer.ask(np.random.default_rng(3)).resume_from == 2


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
    for number in range(4):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    for number in range(4):
        optimizer.observe(Scored(number, (float(number),), reached=25))
    assert optimizer.ask(np.random.default_rng(9)).resume_from == 3
    optimizer.observe(Scored(3, (3.0,), reached=25, n_seeds=2, resumable=False))
    assert optimizer.ask(np.random.default_rng(9)).resume_from == 2
    assert 3 not in optimizer.keeps()


@pytest.mark.parametrize("name", ["successive_halving", "hyperband", "dehb", "bohb"])
def test_a_bracket_goes_on_with_those_that_are_left_when_a_promotion_is_withdrawn(name):
    """Rungs of 4, 2 and 1 runs: the second is closed by the one run that is left for it."""
    optimizer = make(name, SPACE, horizon=100, eta=2, rungs=3)
    for number in range(4):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    for number in range(4):
        optimizer.observe(Scored(number, (float(number),), reached=25))
    optimizer.observe(Scored(3, (3.0,), reached=25, n_seeds=2, resumable=False))
    optimizer.observe(Proposed(4, optimizer.ask(np.random.default_rng(4))))
    following = optimizer.ask(np.random.default_rng(5))
    assert (following.meta["bracket"], following.resume_from) == (1, None)
    optimizer.observe(Scored(4, (1.0,), reached=50))
    following = optimizer.ask(np.random.default_rng(5))
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
            "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
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
        assert (
            begin == ends[proposal][0][0]
            or notes == "no checkpoint to continue: trained from step 0"
        )
    study.close()
    raced = {cuts[0][1] for cuts in ends.values() if len(cuts) > 1}
    assert min(raced) < 20, "runs that end before the horizon got more seeds"
    assert all(len({end for _, end in cuts.values()}) == 1 for cuts in ends.values())


@pytest.mark.parametrize(("rungs", "least"), [(3, 1.45), (4, 1.5), (5, 1.6)])
def test_asha_with_continuation_trains_fewer_steps_for_the_same_promotions(rungs, least):
    """The ratio tends to rungs / (1 + (rungs - 1) / 2) with eta 2: 1.5, 1.6, 1.67."""
    proposals = simulate(
        lambda: make("asha", SPACE, horizon=1000, eta=2, rungs=rungs), quality, 200, lag=8
    ).proposals
    assert sum(proposal.until for proposal in proposals) >= least * steps_trained(proposals)


def test_the_schedule_of_a_budget_and_a_caution_about_early_rungs():
    optimizer = make("hyperband", SPACE, horizon=90, eta=3, rungs=3, budget=23.0)
    assert optimizer.outline()[:3] == (
        "bracket 0: 9 runs to 10, 3 runs to 30, 1 run to 90 steps",
        "bracket 1: 5 runs to 30, 1 run to 90 steps",
        "bracket 2: 3 runs to 90 steps",
    )
    spent = [9 * 10 + 3 * 20 + 60, 5 * 30 + 60, 3 * 90]
    assert f"{23 * 90 / sum(spent) * 3:.3g} brackets" in optimizer.outline()[3]
    (caution,) = optimizer.cautions()
    assert "after 11.1% of a run" in caution
    assert make("hyperband", SPACE, horizon=90).cautions() == ()
    assert (
        "about 46 configurations, 12 to the end"
        in make("asha", SPACE, horizon=100, budget=23.0).outline()[1]
    )


def test_state_does_not_grow_with_finished_brackets():
    optimizer = make("hyperband", SPACE, horizon=100)
    simulation = simulate(lambda: make("hyperband", SPACE, horizon=100), quality, 400, lag=4)
    for event in simulation.events:
        optimizer.observe(event)
        assert len(optimizer._open) <= 2
    assert optimizer._begun > 80


@pytest.mark.parametrize(("eta", "cautions"), [(5, 0), (6, 1)])
def test_a_fifth_of_a_run_is_no_early_rung(eta, cautions):
    assert len(make("hyperband", SPACE, horizon=100, eta=eta, rungs=2).cautions()) == cautions
    assert len(make("asha", SPACE, horizon=100, eta=eta, rungs=2).cautions()) == cautions


def test_the_outline_of_brackets_that_are_alike():
    """9 runs to 10, 3 on to 30 and 1 on to 90 train 210 steps."""
    optimizer = make("successive_halving", SPACE, horizon=90, eta=3, rungs=3, budget=21.0)
    assert optimizer.outline() == (
        "bracket 0: 9 runs to 10, 3 runs to 30, 1 run to 90 steps",
        "the budget pays for 9 brackets (2.33 full runs for each 1)",
    )
    endless = make("successive_halving", SPACE, horizon=90, eta=3, rungs=3)
    assert endless.outline() == optimizer.outline()[:1]


def test_the_outline_of_rungs_without_brackets():
    """New steps of 10, 20 and 60, reached by all, a third and a ninth, are 70 / 3 a run."""
    optimizer = make("asha", SPACE, horizon=90, eta=3, rungs=3, budget=14.0)
    assert optimizer.outline() == (
        "rungs end at 10, 30, 90 steps; one in 3 goes on from each at once",
        "the budget pays for about 54 configurations, 6 to the end",
    )


def test_the_origins_of_brackets():
    simulation = simulate(
        lambda: make("hyperband", SPACE, horizon=100, rungs=2, initial=({"x": 0.25},)), quality, 5
    )
    assert [proposal.origin for proposal in simulation.proposals] == [
        "default",
        "warm start",
        "promoted to rung 1 of bracket 0",
        "random",
        "random",
    ]
    assert [proposal.meta["rung"] for proposal in simulation.proposals] == [0, 0, 1, 0, 0]
    assert [proposal.informed for proposal in simulation.proposals] == [
        proposal.resume_from is not None for proposal in simulation.proposals
    ]


def test_a_promotion_of_asha_says_its_rung():
    optimizer = make("asha", SPACE, horizon=90, eta=2, rungs=3)
    made = []
    for number in range(6):
        made.append(optimizer.ask(np.random.default_rng(number)))
        optimizer.observe(Proposed(number, made[-1]))
        optimizer.observe(Scored(number, (float(number),), reached=made[-1].until))
    # The best of two and of three at the first rung, then the better of two at the second.
    assert [proposal.resume_from for proposal in made] == [None, None, 1, None, 3, 4]
    assert [proposal.until for proposal in made] == [23, 23, 45, 23, 45, 90]
    assert [proposal.meta["rung"] for proposal in made] == [0, 0, 1, 0, 1, 2]
    assert (made[5].origin, made[5].informed) == ("promoted to rung 2", True)
    assert optimizer.ask(np.random.default_rng(6)).resume_from is None
