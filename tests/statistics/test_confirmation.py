"""The rule of adaptive seeds: how many runs confirm, and whom."""

import itertools

import pytest

from autorl.statistics.confirmation import confirmed_at, levels_of, runs_to_confirm


@pytest.mark.parametrize(
    ("runs", "confirm"),
    [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (8, 2), (16, 2), (24, 4), (32, 5), (96, 14), (7.5, 2)],
)
def test_a_share_of_the_runs_confirms_at_least_two_and_at_most_half(runs, confirm):
    assert runs_to_confirm(runs) == confirm


def test_a_new_configuration_can_have_as_many_seeds_as_the_best():
    assert runs_to_confirm(16, confirmed=4) == 4
    assert runs_to_confirm(6, confirmed=4) == 3, "at most half"
    assert runs_to_confirm(100, 0.3, confirmed=4) == 30


@pytest.mark.parametrize(
    ("runs", "levels", "expected"),
    [
        (2, 4, (2,)),
        (3, 4, (3,)),
        (5, 4, (3, 2)),
        (5, 2, (3, 2)),
        (14, 4, (6, 4, 2, 2)),
        (1, 4, (1,)),
        (0, 4, ()),
        (5, 0, ()),
    ],
)
def test_fewer_configurations_go_on_from_level_to_level(runs, levels, expected):
    assert levels_of(runs, 80, levels) == expected


def test_levels_descend_and_take_all_runs_that_the_configurations_can():
    for runs, candidates, levels, confirmed in itertools.product(
        range(0, 60, 3), range(7), range(5), (0, 3)
    ):
        counts = levels_of(runs, candidates, levels, confirmed=confirmed)
        case = (runs, candidates, levels, confirmed, counts)
        assert len(counts) <= levels, case
        assert list(counts) == sorted(counts, reverse=True), case
        assert all(0 < count <= candidates for count in counts), case
        assert sum(counts) <= runs, case
        if runs >= 2 * levels:
            assert sum(counts) == min(runs, candidates * levels), case


def test_one_new_configuration_is_enough_beside_a_confirmed_one():
    assert levels_of(2, 10, 4, confirmed=2) == (1, 1)
    assert levels_of(2, 10, 4) == (2,)


def test_negative_numbers_are_refused():
    for numbers in ((-1, 2, 2), (2, -1, 2), (2, 2, -1)):
        with pytest.raises(ValueError, match="no negative numbers"):
            levels_of(*numbers)
    with pytest.raises(ValueError, match="no negative numbers"):
        levels_of(2, 2, 2, confirmed=-1)


def test_the_best_take_seeds_while_the_runs_last_and_who_has_them_passes():
    one = dict.fromkeys(range(4), 1)
    assert confirmed_at([2, 0, 3, 1], one, target=2, runs=3) == [2, 0, 3]
    assert confirmed_at([2, 0, 3, 1], {0: 5, 1: 2, 2: 1, 3: 1}, target=2, runs=1) == [2, 0, 1]
    # Two seeds are lacking and one run is left: no worse one takes it.
    assert confirmed_at([0, 1], {0: 1, 1: 2}, target=3, runs=1) == []
