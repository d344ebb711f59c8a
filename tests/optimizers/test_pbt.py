"""Population-based training: who continues, who copies whom, what may change."""

import math
from collections import Counter

import numpy as np
import pytest
from driving import told

from autorl.core.types import (
    Continue,
    Done,
    Exploit,
    Failed,
    FrozenMap,
    InputError,
    Proposed,
    Scored,
    Status,
    Wait,
)
from autorl.optimizers import make
from autorl.optimizers.pbt import Copy
from autorl.space import load_space
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import MovingOptimum, simulate

SPACE = space_of("types")
CHANGEABLE = {"rate", "gamma"}


def factory(**options):
    chosen = {"population": 4, "generations": 5, "ready": 0.0, "retrain": 0} | options
    return lambda: make("pbt", SPACE, horizon=100, changeable=CHANGEABLE, **chosen)


def started(scores, **options):
    """An optimizer whose first generation has these outcomes."""
    optimizer = factory(population=len(scores), **options)()
    for number in range(len(scores)):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    for number, value in enumerate(scores):
        outcome = (
            Failed(number, Status.DIVERGED, (-9.0,))
            if value is None
            else Scored(number, (value,), reached=20)
        )
        optimizer.observe(outcome)
    return optimizer


def generation(optimizer, first, count):
    answers = []
    for number in range(first, first + count):
        answers.append(optimizer.ask(np.random.default_rng(number)))
        optimizer.observe(Proposed(number, answers[-1]))
    return answers


def donors(optimizer, first, count):
    """Whom each member of the next generation goes on from."""
    return [answer.resume_from for answer in generation(optimizer, first, count)]


def test_bottom_quarter_copies_top_quarter_and_the_rest_continues():
    optimizer = started([0.0, 3.0, 9.0, 4.0, 5.0, 1.0, 8.0, 2.0])
    answers = generation(optimizer, 8, 8)
    assert {member for member, a in enumerate(answers) if a.resume_from != member} == {0, 5}
    for member, answer in enumerate(answers):
        donor = optimizer.history[answer.resume_from].proposal
        assert answer.member == str(member)
        assert answer.until == 40
        if member in {0, 5}:
            assert answer.resume_from in {2, 6}
            assert answer.origin == f"exploit member {answer.resume_from}"
            assert answer.parent == Exploit(answer.resume_from, stream=str(member))
            assert {change.name for change in answer.changes} <= set(CHANGEABLE)
            for change in answer.changes:
                assert change.old == donor.config.get(change.name)
                assert change.new == answer.config[change.name] != change.old
        else:
            assert (answer.parent, answer.changes) == (Continue(member), None)
            assert answer.config == donor.config


def test_before_the_population_is_ready_only_failed_members_are_replaced():
    """After a tenth or two of a run rankings say little about its end; whoever leads then must not take over."""
    optimizer = started([0.0, 3.0, None, 4.0, 5.0, 1.0, 8.0, 2.0], ready=0.5)
    assert [
        member for member, a in enumerate(generation(optimizer, 8, 8)) if a.resume_from != member
    ] == [2]
    for number in range(8, 16):
        optimizer.observe(Scored(number, (float(number),), reached=40))
    assert [answer.resume_from for answer in generation(optimizer, 16, 8)] == list(range(8, 16)), (
        "40 of 100 steps"
    )
    for number in range(16, 24):
        optimizer.observe(Scored(number, (float(number),), reached=60))
    replaced = [
        member
        for member, a in enumerate(generation(optimizer, 24, 8))
        if a.resume_from != 16 + member
    ]
    assert replaced == [0, 1], "60 of 100 steps: the bottom quarter"


def test_an_unresumable_or_self_stopped_member_is_replaced_and_never_copied():
    optimizer = started([1.0, 2.0, 3.0, 4.0])
    optimizer.observe(Scored(3, (4.0,), reached=20, resumable=False))
    optimizer.observe(Scored(2, (3.0,), reached=13))
    answers = generation(optimizer, 4, 4)
    assert [answer.resume_from for answer in answers] == [1, 1, 1, 1]


def test_asynchronous_members_without_survivors_wait_for_the_slowest():
    """Member 0 failed at step 40; member 1 is to get there, and is copied instead of starting anew."""
    optimizer = factory(population=2, synchronous=False)()
    generation(optimizer, 0, 2)
    optimizer.observe(Scored(0, (1.0,), reached=20))
    (ahead,) = generation(optimizer, 2, 1)
    assert (ahead.member, ahead.until) == ("0", 40)
    optimizer.observe(Failed(2, Status.DIVERGED, (-9.0,)))
    assert optimizer.ask(np.random.default_rng(3)) == Wait(), "member 1 is still before step 20"
    optimizer.observe(Scored(1, (2.0,), reached=20))
    (behind,) = generation(optimizer, 3, 1)
    assert (behind.member, behind.until) == ("1", 40)
    assert optimizer.ask(np.random.default_rng(4)) == Wait(), "member 1 is on its way to step 40"
    optimizer.observe(Scored(3, (2.0,), reached=40))
    (replaced,) = generation(optimizer, 4, 1)
    assert (replaced.member, replaced.until, replaced.resume_from) == ("0", 60, 3)


@pytest.mark.parametrize(
    ("budget", "options", "sizes"),
    [
        (math.inf, {}, (8, 2)),
        (20.5, {}, (15, 5)),
        (3.0, {}, (3, 0)),
        (500.0, {}, (64, 64)),
        (16.0, {"retrain": 7}, (9, 7)),
        (12.0, {"population": 8}, (8, 4)),
        (8.0, {"population": 8, "retrain": 3}, (8, 3)),
        (math.inf, {"population": 2}, (2, 0)),
        (4.0, {"population": 8}, (8, 0)),  # more members than runs: nothing is left
        (86.9, {}, (64, 22)),
        (5.0, {"retrain": 4}, (2, 4)),
        (5.9, {"population": 3}, (3, 2)),
    ],
)
def test_the_budget_decides_the_population_and_what_is_trained_again(budget, options, sizes):
    optimizer = make("pbt", SPACE, horizon=100, budget=budget, changeable=CHANGEABLE, **options)
    assert (optimizer.population, optimizer.retrain) == sizes


@pytest.mark.parametrize(
    ("budget", "options", "unused"),
    [
        (8.0, {"population": 4}, None),
        (16.5, {"population": 4, "retrain": 0}, "12.5 of the 16.5 "),
        (500.0, {}, "372 of the 500 "),
        (math.inf, {"population": 4}, None),
        (5.0, {"population": 4, "retrain": 0}, "1 of the 5 "),
    ],
)
@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_what_a_given_population_leaves_of_the_budget_is_said(name, budget, options, unused):
    space = load_space({"x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}})
    found = make(name, space, horizon=100, budget=budget, changeable={"x"}, **options).cautions()
    if unused is None:
        assert found == ()
    else:
        (text,) = found
        assert text.startswith(f"{unused}full-length runs of the budget stay unused")


def test_nothing_changeable_is_an_input_error():
    with pytest.raises(InputError, match="changeable: true"):
        make("pbt", SPACE, horizon=100)


# -- the whole configuration of the donor, and a history nobody can change ---------------------------------------------


def test_a_copy_has_the_whole_configuration_of_its_donor_but_for_what_may_change():
    """Published: weights were copied and the hyperparameters of the loser kept, or the other way round."""
    answers = generation(started([1.0, 2.0, 3.0, 4.0], step=0.0, resample=0.0), 4, 4)
    optimizer = started([1.0, 2.0, 3.0, 4.0])
    donor, own = (optimizer.history[number].proposal.config for number in (3, 0))
    fixed = set(SPACE.names) - CHANGEABLE
    assert answers[0].resume_from == 3
    assert {name: answers[0].config[name] for name in fixed} == {
        name: donor[name] for name in fixed
    }
    assert any(own[name] != donor[name] for name in fixed)


# -- selection ---------------------------------------------------------------------------------------------------------


def test_a_tournament_copies_whoever_is_met_and_better():
    scores = [0.0, 3.0, 9.0, 4.0, 5.0, 1.0, 8.0, 2.0]
    copied = set()
    for draw in range(40):
        optimizer = started(scores, selection="tournament")
        for member in range(8):
            answer = optimizer.ask(np.random.default_rng([draw, member]))
            donor = optimizer.history[answer.resume_from].id
            assert donor == member or scores[donor] > scores[member]
            copied |= {(member, donor)} if donor != member else set()
            optimizer.observe(Proposed(8 + member, answer))
    assert not {pair for pair in copied if pair[0] == 2}, "the best meets nobody better"
    assert {donor for member, donor in copied if member == 0} == {1, 2, 3, 4, 5, 6, 7}
    # One of 7 pairs of the worst is missed in 40 tournaments with probability 7 (6/7)^40 = 1.5 %; the seeds are fixed.


# -- schedules trained again -------------------------------------------------------------------------------------------


def chain(proposals, number):
    """Proposals from scratch to `number`."""
    links = [number]
    while (before := proposals[links[0]].resume_from) is not None:
        links.insert(0, before)
    return links


def changes(proposals, number):
    """Return the configurations an agent was trained with, by the step each began."""
    found, start = {}, 0
    for link in chain(proposals, number):
        if proposals[link].config not in list(found.values())[-1:]:
            found[start] = proposals[link].config
        start = proposals[link].until
    return found


@pytest.mark.parametrize(
    "options", [{}, {"synchronous": False}], ids=["synchronous", "asynchronous"]
)
@pytest.mark.parametrize("lag", [1, 3])
def test_in_the_end_the_best_schedules_of_members_that_copied_are_trained_from_scratch(
    options, lag
):
    simulation = simulate(
        factory(population=8, retrain=3, quantile=0.5, **options),
        lambda i, p: float((i * 37) % 101),
        99,
        lag=lag,
    )
    assert simulation.done
    proposals, scores = (
        simulation.proposals,
        {one.proposal: one.values[0] for one in simulation.scored},
    )
    copied = {
        number
        for number in range(len(proposals))
        if len({proposals[link].member for link in chain(proposals, number)}) > 1
    }
    assert {number for number, proposal in enumerate(proposals) if proposal.provisional} == copied
    again = [number for number, proposal in enumerate(proposals) if "retrains" in proposal.meta]
    assert again == list(range(40, len(proposals))), "after everything else"
    best = sorted((n for n in copied if proposals[n].until == 100), key=lambda n: -scores[n])[:3]
    ends = {
        proposals[number].meta["retrains"]: number
        for number in again
        if proposals[number].until == 100
    }
    assert sorted(ends) == sorted(best)
    for original, retrained in ends.items():
        assert changes(proposals, retrained) == changes(proposals, original)
        assert len({proposals[link].member for link in chain(proposals, retrained)}) == 1, (
            "no forked random streams"
        )
        assert not proposals[retrained].provisional
    assert len(changes(proposals, best[0])) > 1, "a schedule that changes"


# -- asynchronous ------------------------------------------------------------------------------------------------------


def test_an_asynchronous_member_is_decided_among_those_scored_at_its_step():
    optimizer = factory(synchronous=False)()
    generation(optimizer, 0, 4)
    assert optimizer.ask(np.random.default_rng(4)) == Wait()
    optimizer.observe(Scored(2, (5.0,), reached=20))
    first = optimizer.ask(np.random.default_rng(4))
    assert (first.member, first.resume_from, first.until, first.origin) == ("2", 2, 40, "continue")
    optimizer.observe(Proposed(4, first))
    assert optimizer.ask(np.random.default_rng(5)) == Wait()
    optimizer.observe(Scored(4, (99.0,), reached=40))
    ahead = optimizer.ask(np.random.default_rng(5))
    assert (ahead.member, ahead.resume_from, ahead.until) == ("2", 4, 60), (
        "nobody waits for the others"
    )
    optimizer.observe(Proposed(5, ahead))
    optimizer.observe(Scored(0, (1.0,), reached=20))
    behind = optimizer.ask(np.random.default_rng(6))
    assert (behind.member, behind.resume_from, behind.until) == ("0", 2, 40), (
        "copies at equal steps, not from step 40"
    )
    assert {0, 1, 2, 3, 4, 5} <= set(optimizer.keeps())


# -- several frequencies -----------------------------------------------------------------------------------------------


def test_slower_parts_evolve_more_rarely():
    simulation = simulate(
        factory(population=12, generations=9, frequencies=3),
        lambda number, p: float((number * 7) % 31),
        108,
    )
    changed = {0: set(), 1: set(), 2: set()}
    for proposal in simulation.proposals:
        if proposal.origin.startswith(("exploit", "migrate")):
            changed[int(proposal.member) // 4].add(proposal.meta["generation"])
    assert changed == {0: {1, 2, 3, 4, 5, 6, 7, 8}, 1: {2, 4, 6, 8}, 2: {4, 8}}


def test_migrants_bring_their_configuration_into_a_faster_part_only():
    """Parts {0..3} and {4..7}: into the faster the whole configuration, into the slower weights alone."""
    options = {"frequencies": 2}
    fast = generation(started([4.0, 3.0, 2.0, 1.0, 9.0, 8.0, 7.0, 6.0], **options), 8, 8)
    assert fast[2].resume_from == 4
    assert (fast[2].origin, fast[2].changes) == ("migrate from member 4", ())
    assert fast[2].config == fast[4].config, "unexplored"
    assert [answer.resume_from for answer in fast[4:]] == [4, 5, 6, 7], (
        "the slower part only continues"
    )
    optimizer = started([4.0, 3.0, 2.0, 1.0, 9.0, 8.0, 7.0, 6.0], **options)
    generation(optimizer, 8, 8)
    for number, value in zip(range(8, 16), [9.0, 8.0, 7.0, 6.0, 4.0, 3.0, 2.0, 1.0], strict=True):
        optimizer.observe(Scored(number, (value,), reached=40))
    slow = generation(optimizer, 16, 8)
    migrant, best = optimizer.history[8].proposal.config, optimizer.history[12].proposal.config
    assert slow[6].resume_from == 8, "the weights of the best of the faster part"
    assert {name: slow[6].config[name] for name in CHANGEABLE} == {
        name: best[name] for name in CHANGEABLE
    }
    assert {name: slow[6].config[name] for name in set(SPACE.names) - CHANGEABLE} == {
        name: migrant[name] for name in set(SPACE.names) - CHANGEABLE
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frequencies": 3}, "at most 2 for a population of 4"),
        ({"population": 5, "frequencies": 3}, "at most 2 for a population of 5, got 3"),
        ({"frequencies": 2, "slower": 1}, "slower"),
        ({"frequencies": 2, "synchronous": False}, "synchronous: true"),
        ({"selection": "roulette"}, "truncation or tournament"),
        ({"population": 1}, "int >= 2 or null|int or null >= 2"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=message):
        factory(**options)()


# -- the first generation, and a population that died out ----------------------------------------


def test_who_begins_anew_where_nobody_survived():
    optimizer = factory(population=2, retrain=1)()
    told(optimizer, [None, None])
    told(optimizer, [None, None], first=2, until=40)
    made = told(optimizer, [1.0, 1.0], first=4, until=60)
    assert [one.origin for one in made] == ["random: nobody survived"] * 2
    assert [(one.member, one.meta, one.until) for one in made] == [
        (str(member), FrozenMap(generation=2), 60) for member in range(2)
    ]
    assert not any(one.informed or one.provisional for one in made)


# -- sizes and ends --------------------------------------------------------------------------------


def test_only_as_many_schedules_as_were_planned_are_trained_again():
    optimizer = factory(generations=2, retrain=1, quantile=0.5)()
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=50)
    made = told(optimizer, [5.0, 6.0, 1.0, 2.0], first=4, until=100)
    assert [one.provisional for one in made] == [True, True, False, False]
    first = optimizer.ask(np.random.default_rng(8))
    assert first.meta["retrains"] == 5, "the better one of the two that copied"
    optimizer.observe(Proposed(8, first))
    optimizer.observe(Failed(8, Status.CRASH, ()))
    assert optimizer.ask(np.random.default_rng(9)) == Done()


def drawn(optimizer, draws=60):
    """Whom the member whose turn it is goes on from, by many random generators."""
    return Counter(optimizer.ask(np.random.default_rng(draw)).resume_from for draw in range(draws))


# -- truncation --------------------------------------------------------------------------------


def test_members_that_are_copied_are_never_replaced():
    """Half of four are to be replaced; with one failed the two best of three stay."""
    optimizer = started([1.0, None, 3.0, 2.0], quantile=0.5)
    assert set(donors(optimizer, 4, 4)) == {2, 3}
    kinds = [type(optimizer.history[number].proposal.parent) for number in range(4, 8)]
    assert kinds == [Exploit, Exploit, Continue, Continue]


def test_with_a_quantile_of_nothing_only_failed_members_copy_and_the_best_alone_is_copied():
    optimizer = started([None, 3.0, 9.0, 4.0], quantile=0.0)
    assert set(drawn(optimizer)) == {2}
    assert donors(optimizer, 4, 4) == [2, 1, 2, 3]


def test_a_quantile_that_is_no_whole_number_of_members_is_rounded_up():
    replaced = donors(started([4.0, 1.0, 3.0, 2.0, 5.0], quantile=0.25), 5, 5)
    assert [member for member, donor in enumerate(replaced) if donor != member] == [1, 3]


# -- what a migrant trains with ----------------------------------------------------------------------


def test_a_mixture_that_breaks_a_rule_stays_the_donors():
    """`m <= n`: what may change of the source, m, is too large for the donor's n."""
    space = space_of("constrained")
    initial = [space.config({"n": 64, "m": 64}), space.config({"n": 2, "m": 1})]
    optimizer = make(
        "pbt", space, horizon=100, changeable={"m"}, population=4, frequencies=2, initial=initial
    )
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=10)
    wide, narrow = optimizer.history[1], optimizer.history[2]
    rng = np.random.default_rng(0)
    assert optimizer._mixed(Copy(narrow, wide), rng) == narrow.proposal.config
    mixed = optimizer._mixed(Copy(wide, narrow), rng)
    assert mixed == {**wide.proposal.config, "m": 1}


# -- a task whose optimum moves ----------------------------------------------------------------------------------------

LOG = {"type": "float", "scale": "log"}
MOVING = load_space(
    {
        "hyperparameters": {
            "rate": {**LOG, "lower": 1e-5, "upper": 1e-1, "changeable": True},
            "x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
        }
    }
)


def moving_scores(name, seed, **options):
    """Noiseless skill at the horizon of the member with the best noisy score, and of the best fixed configuration."""
    task = MovingOptimum(MOVING, 1000, width=0.3, noise=0.01, seed=seed)
    chosen = {
        "population": 8,
        "generations": 20,
        "ready": 0.0,
        "retrain": 0,
    } | options  # scores rank skills from step 0
    simulation = simulate(
        lambda: make(name, MOVING, horizon=1000, changeable=MOVING.changeable, **chosen),
        task,
        160,
        lag=8,
        seed=seed,
    )
    ends = [one for one in simulation.scored if simulation.proposals[one.proposal].until == 1000]
    return task.skill[max(ends, key=lambda one: one.values[0]).proposal], task.best_fixed()


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("pbt", range(10)),
        ("pb2", range(5)),
        pytest.param("pb2", range(5, 25), marks=pytest.mark.slow),
    ],
)
def test_a_schedule_beats_the_best_fixed_configuration_where_the_optimum_moves(name, seeds):
    """The best fixed configuration is known exactly: no search for one can do better.

    The task was chosen among harder ones (narrower peaks, three dimensions) on which pb2 with eight members fails. The
    seeds below 16 were seen then: only pb2's seeds 16 to 24 say how often it wins here, nine of nine, which chance
    alone would do once in 2^9 times. A population that cannot change is never above: the test below.
    """
    # The paper's factor cannot follow so fast an optimum (`docs/optimizers.md`).
    options = {"explore": "step"} if name == "pbt" else {}
    scores = [moving_scores(name, seed, **options) for seed in seeds]
    assert all(found > fixed for found, fixed in scores)
    assert np.median([found / fixed for found, fixed in scores]) > 1.25


def test_a_population_that_never_copies_does_not_beat_it():
    scores = [moving_scores("pbt", seed, quantile=0.0) for seed in range(5)]
    assert all(found <= fixed + 1e-12 for found, fixed in scores)
