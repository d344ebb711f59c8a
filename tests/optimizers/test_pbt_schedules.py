"""Schedules that are trained again part by part, and what populations do at ties and ends."""

import numpy as np
import pytest
from driving import told

from autorl.core.types import (
    Change,
    Config,
    Continue,
    Done,
    Exploit,
    Failed,
    FrozenMap,
    Proposal,
    Proposed,
    Scored,
    Status,
    Wait,
)
from autorl.optimizers import History, make
from autorl.optimizers._retraining import Retraining
from autorl.optimizers.pbt import _changes
from autorl.testing.optimizers import space_of

SPACE = space_of("types")
CHANGEABLE = {"rate", "gamma"}


def pbt(**options):
    chosen = {"population": 4, "generations": 5, "ready": 0.0, "retrain": 0} | options
    return make("pbt", SPACE, horizon=100, changeable=CHANGEABLE, **chosen)


# -- schedules, by hand -------------------------------------------------------------------------


class Schedules:
    """A history of two members: 3 ends a schedule of two configurations, 4 one of three."""

    def __init__(self):
        self.history = History()
        self.retraining = Retraining(self.history, 90)
        a, b, c = (Config(x=value) for value in (0.1, 0.2, 0.3))
        self.configs = (a, b, c)
        for number, config, until, parent in (
            (0, a, 30, None),
            (1, b, 60, Exploit(0, stream="1")),
            (2, a, 60, Continue(0)),
            (3, b, 90, Continue(1)),
            (4, c, 90, Exploit(1, stream="0")),
        ):
            self.propose(number, Proposal(config, until, parent))
            self.score(number)

    def propose(self, number, proposal):
        event = Proposed(number, proposal)
        self.history.observe(event)
        return self.retraining.observe(event)

    def score(self, number, **more):
        until = self.history[number].proposal.until
        self.history.observe(Scored(number, (float(number),), **{"reached": until, **more}))

    def ask(self, *ends):
        return self.retraining.ask([self.history[number] for number in ends])


def test_the_parts_of_a_schedule_are_trained_one_after_another():
    played = Schedules()
    made = []
    for number in (5, 6, 7):
        made.append(played.ask(4))
        assert played.propose(number, made[-1]) is True
        if number < 7:
            assert played.ask(4) == Wait()
            assert played.retraining.keeps() == [number]
        played.score(number)
    assert [one.config for one in made] == list(played.configs)
    assert [one.until for one in made] == [30, 60, 90]
    assert [one.parent for one in made] == [None, Continue(5), Continue(6)]
    assert [one.origin for one in made] == [
        f"schedule of proposal 4 from step {step}" for step in (0, 30, 60)
    ]
    assert {(one.member, one.meta, one.provisional) for one in made} == {
        ("schedule of 4", FrozenMap(retrains=4), False)
    }
    assert all(one.informed and one.retain for one in made)
    assert (played.ask(4), played.retraining.keeps()) == (Done(), [])


def test_parts_of_one_configuration_are_one():
    """Proposal 3 was trained with its own configuration in its last two segments."""
    played = Schedules()
    first = played.ask(3)
    assert (first.config, first.until) == (played.configs[0], 30)
    played.propose(5, first)
    played.score(5)
    second = played.ask(3)
    assert (second.config, second.until, second.parent) == (played.configs[1], 90, Continue(5))


def test_while_one_schedule_waits_for_its_part_the_next_begins():
    played = Schedules()
    played.propose(5, played.ask(4, 3))
    other = played.ask(4, 3)
    assert (other.meta["retrains"], other.parent) == (3, None)
    played.propose(6, other)
    assert played.retraining.keeps() == [5, 6]
    assert played.ask(4, 3) == Wait()
    played.score(6)
    assert played.ask(4, 3).parent == Continue(6), "the first is still waited for"
    played.score(5)
    assert played.ask(4, 3).parent == Continue(5)


@pytest.mark.parametrize("more", [{"resumable": False}, {"reached": 29}])
def test_a_schedule_whose_part_cannot_go_on_ends_there(more):
    played = Schedules()
    played.propose(5, played.ask(4))
    played.score(5, **more)
    assert played.ask(4) == Done()
    assert played.ask(4, 3).meta["retrains"] == 3
    assert played.ask() == Done()


def test_what_is_no_part_of_a_schedule_is_not_noted():
    played = Schedules()
    assert played.propose(5, Proposal(played.configs[0], 30)) is False
    assert played.retraining.keeps() == []


# -- the first generation, and a population that died out ----------------------------------------


def test_what_the_first_members_are():
    optimizer = pbt(initial=[{"rate": 1e-3}])
    made = told(optimizer, [1.0, 2.0, 3.0, 4.0])
    assert [one.origin for one in made] == ["default", "warm start", "random", "random"]
    assert [one.member for one in made] == ["0", "1", "2", "3"]
    assert {(one.until, one.parent, one.meta, one.retain) for one in made} == {
        (20, None, FrozenMap(generation=0), True)
    }
    assert not any(one.informed or one.provisional for one in made)


def test_who_begins_anew_where_nobody_survived():
    optimizer = pbt(population=2, retrain=1)
    told(optimizer, [None, None])
    told(optimizer, [None, None], first=2, until=40)
    made = told(optimizer, [1.0, 1.0], first=4, until=60)
    assert [one.origin for one in made] == ["random: nobody survived"] * 2
    assert [(one.member, one.meta, one.until) for one in made] == [
        (str(member), FrozenMap(generation=2), 60) for member in range(2)
    ]
    assert not any(one.informed or one.provisional for one in made)


# -- ties -----------------------------------------------------------------------------------------


def test_of_equal_members_the_earlier_one_counts_as_ahead():
    """With all scores equal the first is copied and the last replaced, in a tournament as well."""
    optimizer = pbt(population=4, quantile=0.25)
    told(optimizer, [1.0] * 4)
    assert [one.resume_from for one in told(optimizer, [1.0] * 4, first=4, until=40)] == [
        0,
        1,
        2,
        0,
    ]
    rival = pbt(population=2, selection="tournament")
    told(rival, [1.0, 1.0])
    assert [one.resume_from for one in told(rival, [1.0, 1.0], first=2, until=40)] == [0, 0]


def test_an_equal_migrant_replaces_who_was_proposed_later_and_nobody_earlier():
    """Second-lowest bracket: one of four. The best of the other part has the same score."""
    earlier = pbt(population=8, frequencies=2, quantile=0.25)
    told(earlier, [9.0, 8.0, 5.0, 1.0, 5.0, 0.5, 0.5, 0.5])
    assert told(earlier, [1.0] * 8, first=8, until=40)[2].resume_from == 2
    later = pbt(population=8, frequencies=2, quantile=0.25)
    told(later, [5.0, 0.5, 0.5, 0.5, 9.0, 8.0, 5.0, 1.0])
    made = told(later, [float(-number) for number in range(8)], first=8, until=40)
    assert made[6].resume_from == 6, "the slower part has its turn in the generation after"
    # Generation 2: member 6 has the third place of its part and -6; the best of the other is 0.
    assert told(later, [1.0] * 8, first=16, until=60)[6].origin == "migrate from member 0"


def test_a_feasible_member_is_ahead_of_any_that_breaks_a_constraint():
    optimizer = pbt(population=4, quantile=0.25)
    for number in range(4):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    for number, broken in enumerate((0.0, 0.0, 2.0, 1.0)):
        scored = Scored(number, (float(number),), constraints=(broken,), reached=20)
        optimizer.observe(scored)
    made = told(optimizer, [1.0] * 4, first=4, until=40)
    assert [one.resume_from for one in made] == [0, 1, 1, 3]


# -- explore ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("explore", "factor"), [("step", None), ("factor", 1.5)])
def test_the_options_of_explore_reach_the_space(monkeypatch, explore, factor):
    asked = []

    def perturb(space, config, rng, changeable, step, resample, by):
        asked.append((config, changeable, step, resample, by))
        return config

    monkeypatch.setattr(type(SPACE), "perturb", perturb)
    optimizer = pbt(explore=explore, factor=1.5, step=0.3, resample=0.1)
    made = told(optimizer, [1.0, 2.0, 3.0, 4.0])
    copied = optimizer.ask(np.random.default_rng(4))
    assert asked == [(made[3].config, frozenset(CHANGEABLE), 0.3, 0.1, factor)]
    assert (copied.changes, copied.meta) == ((), FrozenMap(generation=1))


def test_changes_are_what_differs_in_the_order_of_the_new_configuration():
    old = Config(a=1, b=2, c=3)
    new = Config(d=7, c=3, b=5)
    assert _changes(old, new) == (Change("d", None, 7), Change("b", 2, 5))
    assert _changes(old, old) == ()


# -- sizes and ends --------------------------------------------------------------------------------


def test_only_as_many_schedules_as_were_planned_are_trained_again():
    optimizer = pbt(generations=2, retrain=1, quantile=0.5)
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=50)
    made = told(optimizer, [5.0, 6.0, 1.0, 2.0], first=4, until=100)
    assert [one.provisional for one in made] == [True, True, False, False]
    first = optimizer.ask(np.random.default_rng(8))
    assert first.meta["retrains"] == 5, "the better one of the two that copied"
    optimizer.observe(Proposed(8, first))
    optimizer.observe(Failed(8, Status.CRASH, ()))
    assert optimizer.ask(np.random.default_rng(9)) == Done()


def test_schedules_are_chosen_when_all_members_are_scored():
    optimizer = pbt(generations=2, retrain=1, quantile=0.5)
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=50)
    for number in range(4, 8):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    for number in range(4, 7):
        optimizer.observe(Scored(number, (1.0,), reached=100))
        assert optimizer.ask(np.random.default_rng(8)) == Wait()
    optimizer.observe(Failed(7, Status.CRASH, ()))
    assert optimizer.ask(np.random.default_rng(8)).meta["retrains"] == 4


def test_a_failed_copy_is_no_schedule_to_train_again():
    optimizer = pbt(generations=2, retrain=4, quantile=0.25)
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=50)
    told(optimizer, [None, 6.0, 1.0, 2.0], first=4, until=100)
    assert optimizer.ask(np.random.default_rng(8)) == Done()


def test_nothing_is_kept_at_the_end_of_a_population():
    optimizer = pbt(generations=2)
    told(optimizer, [1.0, 2.0, 3.0, 4.0], until=50)
    assert optimizer.keeps() == [0, 1, 2, 3]
    for number in range(4, 7):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        assert optimizer.keeps() == [0, 1, 2, 3]
    optimizer.observe(Proposed(7, optimizer.ask(np.random.default_rng(7))))
    assert optimizer.keeps() == []


def test_members_of_one_step_have_their_turn_by_number_and_the_slowest_first():
    optimizer = pbt(synchronous=False, population=3)
    turns = []
    for number in range(3):
        turns.append(optimizer.ask(np.random.default_rng(number)))
        optimizer.observe(Proposed(number, turns[-1]))
    optimizer.observe(Scored(2, (1.0,), reached=20))
    optimizer.observe(Proposed(3, optimizer.ask(np.random.default_rng(3))))
    optimizer.observe(Scored(3, (1.0,), reached=40))
    for number in (1, 0):
        optimizer.observe(Scored(number, (1.0,), reached=20))
    for number in (4, 5, 6):
        turns.append(optimizer.ask(np.random.default_rng(number)))
        optimizer.observe(Proposed(number, turns[-1]))
    assert [one.member for one in turns] == ["0", "1", "2", "0", "1", "2"]
    assert [one.until for one in turns] == [20, 20, 20, 40, 40, 60]
