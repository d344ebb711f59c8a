"""Population-based training: who continues, who copies whom, what may change."""

import math

import numpy as np
import pytest
from driving import ask, generation, proposed, tell, told

from autorl.core.types import Continue, Done, Exploit, FrozenMap, InputError, Proposed, Wait
from autorl.optimizers import make
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
    told(optimizer, scores)
    return optimizer


def donors(optimizer, count):
    """Whom each member of the next generation goes on from."""
    return [answer.resume_from for answer in generation(optimizer, count)]


def test_bottom_quarter_copies_top_quarter_and_the_rest_continues():
    optimizer = started([0.0, 3.0, 9.0, 4.0, 5.0, 1.0, 8.0, 2.0])
    answers = generation(optimizer, 8)
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


@pytest.mark.parametrize("mean", ["average", "slerp"])
def test_a_mean_names_the_members_own_agent_unless_that_failed(mean):
    ours, failed, *ahead = generation(started([0.0, None, 9.0, 8.0], exploit=mean, quantile=0.5), 4)
    assert ours.parent == Exploit(ours.resume_from, "0", second=0, mean=mean)
    assert failed.parent == Exploit(failed.resume_from, "1")
    assert ours.origin == f"{mean} with member {ours.resume_from}"
    assert [answer.sources for answer in ahead] == [(2,), (3,)]


def test_before_the_population_is_ready_only_failed_members_are_replaced():
    """After a tenth or two of a run rankings say little about its end; whoever leads then must not take over."""
    optimizer = started([0.0, 3.0, None, 4.0, 5.0, 1.0, 8.0, 2.0], ready=0.5)
    replaced = []
    for first in (8, 16, 24):
        made = told(optimizer, range(8))
        own = range(first - 8, first)
        replaced.append([n - own[0] for n in own if made[n - own[0]].resume_from != n])
    assert replaced == [[2], [], [0, 1]], "after 20, 40 and 60 of 100 steps"


def test_an_unresumable_or_self_stopped_member_is_replaced_and_never_copied():
    optimizer = started([1.0, 2.0, 3.0, 4.0])
    tell(optimizer, 3, 4.0, resumable=False)
    tell(optimizer, 2, 3.0, reached=13)
    assert donors(optimizer, 4) == [1, 1, 1, 1]


def test_asynchronous_members_without_survivors_wait_for_the_slowest():
    """Member 0 failed at step 40; member 1 is to get there, and is copied instead of starting anew."""
    optimizer = proposed(factory(population=2, synchronous=False)(), 2)
    tell(optimizer, 0, 1.0)
    (ahead,) = told(optimizer, [None])
    assert (ahead.member, ahead.until) == ("0", 40)
    assert ask(optimizer) == Wait(), "member 1 is still before step 20"
    tell(optimizer, 1, 2.0)
    (behind,) = generation(optimizer, 1)
    assert (behind.member, behind.until) == ("1", 40)
    assert ask(optimizer) == Wait(), "member 1 is on its way to step 40"
    tell(optimizer, 3, 2.0)
    replaced = ask(optimizer)
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
        (8.0, {}, None),
        (math.inf, {}, None),
        (16.5, {"retrain": 0}, "12.5 of the 16.5 "),
        (500.0, {"population": None}, "372 of the 500 "),
        (5.0, {"retrain": 0}, "1 of the 5 "),
    ],
)
@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_what_a_given_population_leaves_of_the_budget_is_said(name, budget, options, unused):
    given = {"population": 4, "budget": budget, "changeable": {"x"}, **options}
    cautions = make(name, load_space({"x": "uniform(0, 1)"}), horizon=100, **given).cautions()
    said = () if unused is None else (f"{unused}full-length runs of the budget stay unused",)
    assert tuple(text[: len(said[0])] for text in cautions) == said


def test_nothing_changeable_is_an_input_error():
    with pytest.raises(InputError, match="changeable: true"):
        make("pbt", SPACE, horizon=100)


# -- the whole configuration of the donor, and a history nobody can change ---------------------------------------------


def test_a_copy_has_the_whole_configuration_of_its_donor_but_for_what_may_change():
    """Published: weights were copied and the hyperparameters of the loser kept, or the other way round."""
    optimizer = started([1.0, 2.0, 3.0, 4.0], step=0.0, resample=0.0)
    copy = generation(optimizer, 4)[0]
    own, donor = (optimizer.history[number].proposal.config for number in (0, 3))
    assert copy.resume_from == 3
    fixed = set(SPACE.names) - CHANGEABLE
    assert all(copy.config[name] == donor[name] for name in fixed)
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


@pytest.mark.parametrize("synchronous", [True, False])
@pytest.mark.parametrize("lag", [1, 3])
def test_the_best_schedules_of_members_that_copied_are_trained_again(synchronous, lag):
    simulation = simulate(
        factory(population=8, retrain=3, quantile=0.5, synchronous=synchronous),
        lambda i, p: float((i * 37) % 101),
        99,
        lag=lag,
    )
    assert simulation.done
    proposals = simulation.proposals
    scores = {one.proposal: one.values[0] for one in simulation.scored}
    copied = {
        number
        for number in range(len(proposals))
        if len({proposals[link].member for link in chain(proposals, number)}) > 1
    }
    assert {number for number, proposal in enumerate(proposals) if proposal.provisional} == copied
    again = [number for number, proposal in enumerate(proposals) if "retrains" in proposal.meta]
    assert again == list(range(40, len(proposals))), "after everything else"
    best = sorted((n for n in copied if proposals[n].until == 100), key=lambda n: -scores[n])[:3]
    ends = {proposals[n].meta["retrains"]: n for n in again if proposals[n].until == 100}
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
    optimizer = proposed(factory(synchronous=False)(), 4)
    assert ask(optimizer) == Wait()
    tell(optimizer, 2, 5.0)
    (first,) = generation(optimizer, 1)
    assert (first.member, first.resume_from, first.until, first.origin) == ("2", 2, 40, "continue")
    assert ask(optimizer) == Wait()
    tell(optimizer, 4, 99.0)
    (ahead,) = generation(optimizer, 1)
    assert (ahead.member, ahead.resume_from, ahead.until) == ("2", 4, 60), "nobody waits"
    tell(optimizer, 0, 1.0)
    behind = ask(optimizer)
    assert (behind.member, behind.resume_from, behind.until) == ("0", 2, 40), "at equal steps"
    assert {0, 1, 2, 3, 4, 5} <= set(optimizer.keeps())


@pytest.mark.parametrize(
    ("options", "message"),
    [
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
    told(optimizer, [None, None])
    made = told(optimizer, [1.0, 1.0])
    assert [one.origin for one in made] == ["random: nobody survived"] * 2
    assert [(one.member, one.meta, one.until) for one in made] == [
        (str(member), FrozenMap(generation=2), 60) for member in range(2)
    ]
    assert not any(one.informed or one.provisional for one in made)


# -- sizes and ends --------------------------------------------------------------------------------


def test_only_as_many_schedules_as_were_planned_are_trained_again():
    optimizer = factory(generations=2, retrain=1, quantile=0.5)()
    told(optimizer, [1.0, 2.0, 3.0, 4.0])
    made = told(optimizer, [5.0, 6.0, 1.0, 2.0])
    assert [one.provisional for one in made] == [True, True, False, False]
    (first,) = told(optimizer, [None])
    assert first.meta["retrains"] == 5, "the better one of the two that copied"
    assert ask(optimizer) == Done()


# -- truncation --------------------------------------------------------------------------------


def test_members_that_are_copied_are_never_replaced():
    """Half of four are to be replaced; with one failed the two best of three stay."""
    made = generation(started([1.0, None, 3.0, 2.0], quantile=0.5), 4)
    assert {one.resume_from for one in made} == {2, 3}
    assert [type(one.parent) for one in made] == [Exploit, Exploit, Continue, Continue]


def test_with_a_quantile_of_nothing_only_failed_members_copy_and_the_best_alone_is_copied():
    optimizer = started([None, 3.0, 9.0, 4.0], quantile=0.0)
    assert {ask(optimizer, seed).resume_from for seed in range(60)} == {2}
    assert donors(optimizer, 4) == [2, 1, 2, 3]


def test_a_quantile_that_is_no_whole_number_of_members_is_rounded_up():
    replaced = donors(started([4.0, 1.0, 3.0, 2.0, 5.0], quantile=0.25), 5)
    assert [member for member, donor in enumerate(replaced) if donor != member] == [1, 3]


# -- a task whose optimum moves ----------------------------------------------------------------------------------------

MOVING = load_space(
    {
        "rate": {"type": "float", "lower": 1e-5, "upper": 1e-1, "scale": "log", "changeable": True},
        "x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
    }
)


def moving_scores(name, seed, **options):
    """Noiseless skill at the horizon of the member with the best noisy score, and of the best fixed configuration."""
    task = MovingOptimum(MOVING, 1000, width=0.3, noise=0.01, seed=seed)
    # Scores rank skills from step 0.
    chosen = {"population": 8, "generations": 20, "ready": 0.0, "retrain": 0, **options}
    made = lambda: make(name, MOVING, horizon=1000, changeable=MOVING.changeable, **chosen)  # noqa: E731
    simulation = simulate(made, task, 160, lag=8, seed=seed)
    ends = [one for one in simulation.scored if simulation.proposals[one.proposal].until == 1000]
    # The best fixed configuration lies in the middle of the optimum's path.
    fixed = task.gained(np.full(len(MOVING.names), 0.5), 0, 1000)
    return task.skill[max(ends, key=lambda one: one.values[0]).proposal], fixed


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
