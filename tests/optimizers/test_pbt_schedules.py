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
    InputError,
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


def test_a_feasible_member_is_ahead_of_any_that_breaks_a_constraint():
    optimizer = pbt(population=4, quantile=0.25)
    for number in range(4):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    for number, broken in enumerate((0.0, 0.0, 2.0, 1.0)):
        scored = Scored(number, (float(number),), constraints=(broken,), reached=20)
        optimizer.observe(scored)
    made = told(optimizer, [1.0] * 4, first=4, until=40)
    assert [one.resume_from for one in made] == [0, 1, 1, 3]


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


# -- tournaments -------------------------------------------------------------------------------


def test_a_failed_member_of_a_tournament_copies_the_worse_survivor_one_time_in_four():
    """The better of two that are drawn with repetition among two."""
    counts = drawn(started([None, 3.0, 9.0], selection="tournament"), draws=400)
    assert set(counts) == {1, 2}
    assert counts[1] / 400 == pytest.approx(1 / 4, abs=0.06)  # an eighth of the best of three


# -- parts -------------------------------------------------------------------------------------


def test_a_part_without_survivors_copies_those_of_others():
    optimizer = started([None] * 4 + [9.0, 8.0, 7.0, 6.0], frequencies=2, quantile=0.5)
    assert set(drawn(optimizer)) == {4, 5}


def test_each_migrant_replaces_one_member():
    """The second-lowest bracket of six members is two; the best of the other part come in order."""
    own = [10.0, 9.0, 4.0, 3.0, 2.0, 1.0]
    other = [8.0, 7.0, 6.0, 5.0, 0.5, 0.25]
    optimizer = started([*own, *other], frequencies=2, quantile=0.25)
    found = donors(optimizer, 12, 6)
    assert found[:2] == [0, 1]
    assert found[2:4] == [6, 7]
    assert set(found[4:]) <= {0, 1}
    origins = [optimizer.history[number].proposal.origin for number in range(12, 18)]
    assert [origin.split()[0] for origin in origins] == [
        *["continue"] * 2,
        *["migrate"] * 2,
        *["exploit"] * 2,
    ]


def test_a_migrant_that_is_no_better_replaces_nobody():
    own = [10.0, 9.0, 8.0, 7.5, 2.0, 1.0]
    other = [7.75, 7.0, 6.0, 5.0, 0.5, 0.25]
    optimizer = started([*own, *other], frequencies=2, quantile=0.25)
    found = donors(optimizer, 12, 4)
    assert found == [0, 1, 2, 3], "the first place is better than the best migrant: it ends there"


# -- what is refused and said ----------------------------------------------------------------------


def test_as_many_warm_starts_as_members_fit():
    rng = np.random.default_rng(0)
    optimizer = pbt(initial=[SPACE.sample(rng) for _ in range(3)])
    origins = []
    for number in range(4):
        origins.append(optimizer.ask(rng).origin)
        optimizer.observe(Proposed(number, optimizer.ask(rng)))
    assert origins == ["default", *["warm start"] * 3]
    with pytest.raises(InputError, match="do not fit into a population of 4"):
        pbt(initial=[SPACE.sample(rng) for _ in range(4)])


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
