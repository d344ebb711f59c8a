"""Edge cases of copying between members: few survivors, equal thresholds, parts of a population,
migrants."""

from collections import Counter

import numpy as np
import pytest
from driving import told

from autorl.core.types import Continue, Exploit, Failed, InputError, Proposed, Scored, Status, Wait
from autorl.optimizers import make
from autorl.optimizers.pbt import Copy
from autorl.testing.optimizers import space_of

SPACE = space_of("types")
CHANGEABLE = {"rate", "gamma"}


def pbt(**options):
    chosen = {"population": 4, "generations": 5, "ready": 0.0, "retrain": 0} | options
    return make("pbt", SPACE, horizon=100, changeable=CHANGEABLE, **chosen)


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


def test_where_fewer_survive_than_are_copied_all_of_them_may_be():
    optimizer = started([None, None, None, 9.0, None, 4.0], quantile=0.5)
    assert set(drawn(optimizer)) == {3, 5}


def test_a_quantile_that_is_no_whole_number_of_members_is_rounded_up():
    replaced = donors(started([4.0, 1.0, 3.0, 2.0, 5.0], quantile=0.25), 5, 5)
    assert [member for member, donor in enumerate(replaced) if donor != member] == [1, 3]


def test_members_copy_from_the_step_on_at_which_they_are_ready():
    """40 of 100 steps are the part 0.4: the generation that ends there is the first decided."""
    optimizer = started([1.0, 2.0, 3.0, 4.0], ready=0.4)
    told(optimizer, [1.0, 2.0, 3.0, 4.0], first=4, until=40)
    assert [optimizer.history[number].proposal.resume_from for number in range(4, 8)] == [
        0,
        1,
        2,
        3,
    ]
    assert donors(optimizer, 8, 4) == [7, 5, 6, 7]


# -- tournaments -------------------------------------------------------------------------------


def test_a_failed_member_of_a_tournament_copies_the_worse_survivor_one_time_in_four():
    """The better of two that are drawn with repetition among two."""
    counts = drawn(started([None, 3.0, 9.0], selection="tournament"), draws=400)
    assert set(counts) == {1, 2}
    assert counts[1] / 400 == pytest.approx(1 / 4, abs=0.06)  # an eighth of the best of three


def test_the_last_member_of_a_tournament_has_nobody_to_meet():
    optimizer = started([None, 3.0], selection="tournament")
    assert donors(optimizer, 2, 2) == [1, 1]
    assert type(optimizer.history[3].proposal.parent) is Continue


# -- what a copy is told to the study ------------------------------------------------------------


@pytest.mark.parametrize(("retrain", "provisional"), [(0, False), (1, True)])
def test_a_copy_is_provisional_where_schedules_are_trained_again(retrain, provisional):
    optimizer = started([1.0, 2.0, 3.0, 4.0], retrain=retrain)
    first, second = (optimizer.ask(np.random.default_rng(4)), optimizer.history[1].proposal)
    assert first.parent == Exploit(3, stream="0")
    assert (first.provisional, first.informed, first.retain) == (provisional, True, True)
    assert (second.provisional, second.informed, second.retain) == (False, False, True)
    assert first.meta["generation"] == second.meta["generation"] + 1 == 1


def test_nobody_waits_for_the_end_of_one_generation_at_the_beginning_of_another():
    optimizer = pbt(synchronous=False)
    donors(optimizer, 0, 4)
    optimizer.observe(Scored(1, (1.0,), reached=20))
    optimizer.observe(Failed(0, Status.CRASH, ()))
    assert donors(optimizer, 4, 2) == [1, 1], "a survivor among those scored is enough"
    assert optimizer.ask(np.random.default_rng(6)) == Wait()


# -- parts -------------------------------------------------------------------------------------


def test_a_failed_member_copies_a_survivor_of_its_own_part():
    optimizer = started([None, 1.0, 2.0, 3.0, 9.0, 8.0, 7.0, 6.0], frequencies=2, quantile=0.5)
    assert set(drawn(optimizer)) == {2, 3}


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


def test_the_outline_names_the_last_generation_that_can_copy():
    assert pbt(generations=10, ready=0.9).outline()[0].endswith("from step 90 on")
    assert pbt(generations=10, ready=0.91).outline()[0].endswith("only failed members copy others")


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
