"""The rule of adaptive seeds: how many runs confirm, and whom."""

import itertools

import numpy as np
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


def by_words(runs, candidates, levels, confirmed):
    """As the docstring says it: the last level's size everywhere, grown at the front, then filled."""
    last = min(1 if confirmed else 2, candidates, runs)
    if last == 0 or levels == 0:
        return ()
    counts = [last] * min(levels, runs // last)
    for quarters in range(1, 4 * 60):
        size = last + quarters / 4
        grown = [max(last, int(size * 0.6**level)) for level in range(len(counts))]
        if sum(grown) > runs or grown[0] > candidates:
            break
        counts = grown
    while sum(counts) < runs:
        above = [candidates, *counts]
        room = [level for level in range(len(counts)) if counts[level] < above[level]]
        if not room:
            break
        counts[room[0]] += 1
    return tuple(counts)


def test_levels_are_those_of_the_rule():
    for case in itertools.product(range(0, 40), (0, 1, 2, 3, 7, 50), (0, 1, 2, 4), (0, 2)):
        runs, candidates, levels, confirmed = case
        assert levels_of(runs, candidates, levels, confirmed=confirmed) == by_words(*case), case


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


def test_with_the_same_runs_it_chooses_better_than_three_seeds_for_each():
    """Simulated: 32 runs, normal scores, noise of half their spread."""
    rng = np.random.default_rng(1)
    adaptive, fixed = [], []
    for _ in range(400):
        truth = rng.normal(size=32)
        values = truth[:, None] + 0.5 * rng.normal(size=(32, 5))
        confirm = runs_to_confirm(32)
        seeds = dict.fromkeys(range(32 - confirm), 1)
        left = list(seeds)
        for level, runs in enumerate(levels_of(confirm, len(seeds), 4)):
            means = values[:, : level + 1].mean(axis=1)
            ranked = sorted(left, key=lambda number, means=means: -means[number])
            left = confirmed_at(ranked, seeds, level + 2, runs)
            seeds.update(dict.fromkeys(left, level + 2))
        assert sum(seeds.values()) == 32
        adaptive.append(truth[max(left, key=lambda number: values[number, : seeds[number]].mean())])
        fixed.append(truth[values[:10, :3].mean(axis=1).argmax()])
    assert np.mean(adaptive) > np.mean(fixed) + 0.2
