"""Schedules that are trained again part by part, and what populations do at ties and ends."""

from collections import Counter

import numpy as np
import pytest
from driving import told

from autorl.core.types import (
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
from autorl.optimizers.pbt import Copy
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


@pytest.mark.parametrize("more", [{"resumable": False}, {"reached": 29}])
def test_a_schedule_whose_part_cannot_go_on_ends_there(more):
    played = Schedules()
    played.propose(5, played.ask(4))
    played.score(5, **more)
    assert played.ask(4) == Done()
    assert played.ask(4, 3).meta["retrains"] == 3
    assert played.ask() == Done()


# -- the first generation, and a population that died out ----------------------------------------


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


def started(values, **options):
    optimizer = pbt(population=len(values), **options)
    told(optimizer, values)
    return optimizer


def donors(optimizer, first, count):
    """Whom each member of the next generation goes on from."""
    found = []
    for number in range(first, first + count):
        answer = optimizer.ask(np.random.default_rng(number))
        optimizer.observe(Proposed(number, answer))
        found.append(answer.resume_from)
    return found


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
