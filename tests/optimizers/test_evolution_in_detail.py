"""Differential evolution and DEHB in detail: moves, slots, whose parents, and what a child is."""

import numpy as np
import pytest
from driving import ask, proposed, tell

from autorl.core.types import Config, Continue, Failed, Proposal, Scored, Status
from autorl.optimizers import de, dehb, make
from autorl.optimizers.base import Record
from autorl.optimizers.de import Members, cross, mutate, point, point_of, rank
from autorl.optimizers.hyperband import Bracket
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")
CONDITIONAL = space_of("conditional")
CYCLE = (4 + 2 + 1) + (3 + 1) + 3  # proposals of DEHB's first brackets, eta 2 and 3 rungs


class Everything:
    """Holds every configuration."""

    def __contains__(self, config):
        return True

    def add(self, config):
        """Nothing is missing."""


# -- moves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", [0.0, 1.0])
def test_a_mutant_on_a_face_of_the_cube_stays_there(face):
    parents = [np.full(2, face)] * 3
    assert mutate(parents, 0.5, np.random.default_rng(0)).tolist() == [face, face]


def test_a_mutant_is_made_of_three_parents_that_are_drawn_and_repaired_by_further_draws():
    parents = [np.array(p) for p in ([0.1, 0.9], [0.2, 0.3], [0.95, 0.05], [0.6, 0.6])]
    outside = 0
    for seed in range(30):
        mutant = mutate(parents, 1.5, np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        a, b, c = (parents[index] for index in rng.choice(4, 3, replace=False))
        expected = a + 1.5 * (b - c)
        anew = rng.random(2)
        for place in range(2):
            if not 0 <= expected[place] <= 1:
                expected[place] = anew[place]
                outside += 1
        np.testing.assert_allclose(mutant, expected)
    assert outside > 10


def test_the_coordinate_that_is_sure_to_be_taken_may_be_any_that_varies():
    children = {
        tuple(cross(SPACE, np.zeros(3), np.ones(3), 0.0, np.random.default_rng(seed)).tolist())
        for seed in range(40)
    }
    assert children == {(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)}


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.9])
def test_a_coordinate_is_taken_with_its_probability(probability):
    for seed in range(20):
        child = cross(SPACE, np.zeros(3), np.ones(3), probability, np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        taken = rng.random(3) < probability
        taken[rng.integers(3)] = True
        assert child.tolist() == taken.astype(float).tolist()


def test_a_point_without_a_draw_has_the_defaults_of_what_is_inactive():
    """By hand: `a.v.rate` is 0.01 of 1e-4 .. 1 on the log scale, `b.width` 0.75 of 0 .. 1."""
    default = CONDITIONAL.default()
    assert set(CONDITIONAL.names) - set(default) == {"a.v.rate", "b.width"}
    expected = {"kind": 0.25, "x": 0.75, "a.depth": 2.5 / 9, "a.mode": 0.25}
    expected |= {"a.v.rate": 0.5, "b.width": 0.75}
    place = dict(zip(CONDITIONAL.names, point_of(CONDITIONAL, default), strict=True))
    assert place == pytest.approx(expected)


def test_a_point_follows_its_draw_where_that_gives_the_value():
    space = space_of("constrained")
    drawn = np.array(
        [{"n": 0.31, "m": 0.77, "c": 0.4, "d": 0.41, "x": 0.52}[name] for name in space.names]
    )
    config = space.from_unit(drawn)
    assert point_of(space, config, drawn) == drawn.tolist()
    repaired = Config({**config, "m": config["n"]})
    place = dict(zip(space.names, point_of(space, repaired, drawn), strict=True))
    assert place["m"] == space.to_unit(repaired)[space.names.index("m")] != 0.77
    assert (place["n"], place["x"]) == (0.31, 0.52)


def record(number, outcome):
    return Record(number, Proposal(Config(x=0.5), 10), outcome)


def test_a_member_is_better_that_breaks_less_and_then_scores_more():
    assert rank(record(0, Scored(0, (3.0,)))) == (0.0, -3.0)
    assert rank(record(0, Scored(0, (9.0,), constraints=(0.5, -1.0, 0.25)))) == (0.75, -9.0)


# -- slots -------------------------------------------------------------------------------------------


def test_slots_take_turns_in_a_circle_and_those_that_train_are_passed_over():
    members = Members({}, 3)
    assert (members.idle(), members.turn(), members.occupant) == (0, 0, [None] * 3)
    members.begin(10, 1)
    assert (members.idle(), members.turn()) == (2, 2)
    members.begin(11, 2)
    assert (members.idle(), members.turn()) == (0, 0)
    members.begin(12, 0)
    assert (members.idle(), members.turn()) == (None, 1)
    members.judge(record(11, Failed(11, Status.CRASH, (1.0,))), 2)
    assert (members.idle(), members.turn()) == (2, 2)
    assert members.occupant == [None] * 3


def test_a_slot_with_two_in_training_is_idle_when_both_have_ended():
    history = {n: record(n, Scored(n, (float(n),))) for n in range(4)}
    members = Members(history, 1)
    members.begin(2, 0)
    members.begin(3, 0)
    members.judge(history[3], 0)
    assert (members.idle(), members.occupant) == (None, [3])
    members.judge(history[2], 0)
    assert (members.idle(), members.occupant) == (0, [3])
    assert members.records() == [history[3]]


def test_initial_configurations_beyond_the_slots_begin_again_with_the_first():
    warm = [{"x": value / 10} for value in range(5)]
    optimizer = proposed(make("de", SPACE, horizon=10, population_size=4, initial=warm), 6)
    assert [record.proposal.meta["slot"] for record in optimizer.history] == [0, 1, 2, 3, 0, 1]
    assert [record.proposal.origin for record in optimizer.history] == [
        "default",
        *["warm start"] * 5,
    ]


def founded(size=4, **options):
    optimizer = proposed(make("de", SPACE, horizon=10, population_size=size, **options), size)
    for number in range(size):
        tell(optimizer, number, number)
    return optimizer


@pytest.mark.parametrize("options", [{}, {"scale": 1.5, "crossover": 0.1}])
def test_scale_and_crossover_are_those_of_the_options(options):
    optimizer = founded(**options)
    child = ask(optimizer)
    rng = np.random.default_rng(4)
    parents = [point(optimizer.history[number]) for number in (1, 2, 3)]
    mutant = mutate(parents, options.get("scale", 0.5), rng)
    target = point(optimizer.history[0])
    drawn = cross(SPACE, target, mutant, options.get("crossover", 0.5), rng)
    assert child.config == SPACE.decode(drawn, rng)
    assert list(child.meta["point"]) == pytest.approx(drawn.tolist())


def test_after_eight_children_that_were_proposed_a_point_is_drawn():
    optimizer = founded()
    optimizer._proposed = Everything()
    proposal = ask(optimizer)
    rng = np.random.default_rng(4)
    parents = [point(optimizer.history[number]) for number in (1, 2, 3)]
    for _ in range(8):
        drawn = cross(SPACE, point(optimizer.history[0]), mutate(parents, 0.5, rng), 0.5, rng)
        SPACE.decode(drawn, rng)
    drawn = rng.random(3)
    assert proposal.config == SPACE.decode(drawn, rng)
    assert list(proposal.meta["point"]) == pytest.approx(drawn.tolist())
    assert proposal.origin == "random: every child was proposed before"
    assert proposal.informed


def test_a_founder_that_was_proposed_is_drawn_eight_times_more():
    optimizer = proposed(make("de", SPACE, horizon=10, population_size=4), 1)
    optimizer._proposed = Everything()
    proposal = ask(optimizer)
    rng = np.random.default_rng(1)
    drawn = None
    for _ in range(9):
        drawn = rng.random(3)
        config = SPACE.decode(drawn, rng)
    assert proposal.config == config
    assert (proposal.origin, proposal.informed) == (
        "random: every child was proposed before",
        False,
    )


def test_the_first_founder_that_is_new_is_taken():
    optimizer = proposed(make("de", SPACE, horizon=10, population_size=4), 1)
    proposal = ask(optimizer)
    rng = np.random.default_rng(1)
    assert proposal.config == SPACE.decode(rng.random(3), rng)
    assert (proposal.origin, proposal.informed, proposal.until) == ("random", False, 10)


def test_a_later_worse_score_of_a_member_does_not_bring_its_target_back():
    optimizer = founded()
    proposed(optimizer)
    tell(optimizer, 4, 9.0)
    tell(optimizer, 4, -9.0, n_seeds=2)
    assert optimizer._members.occupant == [4, 1, 2, 3]
    assert de.REDRAWS == 8


# -- DEHB --------------------------------------------------------------------------------------------


def by_x(number, proposal):
    return proposal.config["x"]


def hyper(horizon=100, **options):
    return make("dehb", SPACE, horizon=horizon, **options)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, {25: 4, 50: 3, 100: 3}),
        ({"eta": 3, "horizon": 90}, {10: 9, 30: 5, 90: 3}),
        ({"rungs": 2}, {50: 2, 100: 2}),
        ({"rungs": 1}, {100: 1}),
    ],
)
def test_a_population_is_as_large_as_the_largest_rung_of_its_length(options, sizes):
    optimizer = hyper(**options)
    assert {step: members.size for step, members in optimizer._members.items()} == sizes


def test_slots_and_points_of_the_first_cycle():
    made = simulate(hyper, by_x, CYCLE).proposals
    assert [proposal.meta["slot"] for proposal in made] == [
        *(0, 1, 2, 3),  # to 25
        *(0, 1),  # on to 50
        0,  # on to 100
        *(2, 0, 1),  # to 50
        1,  # on to 100
        *(2, 0, 1),  # to 100
    ]
    assert [proposal.meta["rung"] for proposal in made] == [0] * 4 + [1] * 2 + [2] + [0] * 3 + [
        1,
        *[0] * 3,
    ]
    for proposal in made:
        own = SPACE.to_unit(proposal.config).tolist()
        assert list(proposal.meta["point"]) == pytest.approx(own)
        if proposal.resume_from is not None:
            assert proposal.parent == Continue(proposal.resume_from)
            assert proposal.meta["point"] == made[proposal.resume_from].meta["point"]
    # Where promotions have filled a slot before, and there are three parents, a child challenges.
    assert [proposal.origin.split()[0] for proposal in made] == [
        *("default", "random", "random", "random", "promoted", "promoted", "promoted"),
        *("random", "child", "child", "promoted"),
        *("random", "child", "child"),
    ]
    assert [proposal.informed for proposal in made] == [
        proposal.origin.split()[0] in ("promoted", "child") for proposal in made
    ]


def test_the_point_of_a_promotion_is_where_its_run_began():
    """Also of what is inactive, which a configuration does not say."""
    made = simulate(
        lambda: make("dehb", CONDITIONAL, horizon=100), lambda n, p: p.config["x"], 4 * CYCLE
    ).proposals
    promotions = [proposal for proposal in made if proposal.resume_from is not None]
    assert promotions
    for proposal in promotions:
        assert proposal.meta["point"] == made[proposal.resume_from].meta["point"]


def small(fourth_fails=False):
    """Two runs to 50, of which the first fails, one of them on to 100, two to 100: then children."""
    optimizer = proposed(hyper(rungs=2), 2)
    optimizer.observe(Failed(0, Status.CRASH, ()))
    tell(optimizer, 1, 1.0)
    proposed(optimizer, 3)
    for number in (2, 3, 4):
        if number == 3 and fourth_fails:
            optimizer.observe(Failed(3, Status.CRASH, (0.0,)))
        else:
            tell(optimizer, number, number)
    return optimizer


@pytest.mark.parametrize(("fails", "breeds"), [(False, True), (True, False)])
def test_three_members_of_all_lengths_are_enough_parents_and_two_are_not(fails, breeds):
    optimizer = small(fails)
    first = ask(optimizer)
    assert (first.origin, first.informed, first.meta["slot"]) == ("random", False, 0)
    proposed(optimizer)
    second = ask(optimizer)
    assert (second.until, second.meta["slot"]) == (50, 1)
    assert second.origin == ("child of proposal 1" if breeds else "random")
    assert second.informed == breeds
    assert second.parent is None


def grown(**options):
    """Its first cycle is over, and the seven runs of the bracket after it are scored."""
    optimizer = hyper(**options)
    simulation = simulate(lambda: hyper(**options), by_x, CYCLE + 7)
    for event in simulation.events:
        optimizer.observe(event)
    return optimizer


def test_parents_are_the_best_of_one_length_and_where_those_are_few_everybody():
    optimizer = grown()

    def best(step, count):
        return sorted(optimizer._members[step].records(), key=rank)[:count]

    first = Bracket(6, *optimizer.shape(6))
    assert first.sizes == [4, 2, 1]
    assert optimizer._parents(first) == best(25, 4)
    fourth = Bracket(4, *optimizer.shape(4))
    assert optimizer._parents(fourth) == best(50, 3), "three are enough"
    first.rungs.append([])
    parents = optimizer._parents(first)
    assert parents[:2] == best(25, 2)
    assert len(parents) == len({parent.id for parent in parents}) == 4 + 3 + 3
    first.rungs.append([])
    assert optimizer._parents(first)[0] == best(50, 1)[0]


@pytest.mark.parametrize("options", [{}, {"scale": 1.5, "crossover": 0.1}])
def test_a_child_of_dehb_is_made_of_the_best_of_its_own_length(options):
    optimizer = hyper(**options)
    for event in simulate(lambda: hyper(**options), by_x, CYCLE).events:
        optimizer.observe(event)
    child = ask(optimizer, 3)
    members = optimizer._members[25]
    target = optimizer.history[members.occupant[members.turn()]]
    rng = np.random.default_rng(3)
    points = [point(parent) for parent in sorted(members.records(), key=rank)]
    mutant = mutate(points, options.get("scale", 0.5), rng)
    drawn = cross(SPACE, point(target), mutant, options.get("crossover", 0.5), rng)
    assert child.config == SPACE.decode(drawn, rng)
    assert list(child.meta["point"]) == pytest.approx(drawn.tolist())
    assert (child.origin, child.until) == (f"child of proposal {target.id}", 25)
    assert (child.informed, child.parent) == (True, None)
    assert (child.meta["bracket"], child.meta["rung"]) == (3, 0)


def test_after_eight_children_that_were_trained_to_a_length_a_point_is_drawn(monkeypatch):
    optimizer = grown()
    optimizer._tried = {step: Everything() for step in optimizer._tried}
    made = []

    def counted(parents, scale, rng):
        made.append(scale)
        return mutate(parents, scale, rng)

    monkeypatch.setattr(dehb, "mutate", counted)
    proposal = ask(optimizer, 3)
    assert made == [0.5] * 8
    members = optimizer._members[50]
    target = point(optimizer.history[members.occupant[members.turn()]])
    points = [point(parent) for parent in sorted(members.records(), key=rank)]
    rng = np.random.default_rng(3)
    for _ in range(8):
        SPACE.decode(cross(SPACE, target, mutate(points, 0.5, rng), 0.5, rng), rng)
    drawn = rng.random(3)
    assert proposal.config == SPACE.decode(drawn, rng)
    assert proposal.informed


def test_what_was_trained_to_another_length_may_be_trained_again():
    optimizer = grown()
    assert {step: len(configs) for step, configs in optimizer._tried.items()} == {
        25: 4 + 4,
        50: 2 + 3 + 2,
        100: 1 + 1 + 3 + 1,
    }


def test_children_fill_every_rung_of_a_later_bracket():
    made = simulate(hyper, by_x, 2 * CYCLE, fail=lambda n, p: _crash(n)).proposals[CYCLE:]
    assert [proposal.until for proposal in made] == [25] * 4 + [50] * 2 + [100] + [50] * 3 + [
        100,
        *[100] * 3,
    ]


def _crash(number):
    return Status.CRASH if number in (CYCLE, CYCLE + 2) else None


def test_the_outline_says_what_is_not_continued():
    lines = hyper(budget=12).outline()
    assert lines[:-1] == make("hyperband", SPACE, horizon=100, budget=12).outline()
    assert lines[-1] == (
        "promotions go on from checkpoints in the first cycle; "
        "later cycles are children from scratch"
    )


def test_runs_of_the_first_cycle_are_kept_and_later_ones_not():
    optimizer = proposed(hyper(), 4)
    assert sorted(optimizer.keeps()) == [0, 1, 2, 3]
    whole = hyper()
    for event in simulate(hyper, by_x, CYCLE - 3).events:
        whole.observe(event)
    assert list(whole.keeps()) == []
    proposed(whole, 4)  # bracket 2, of full runs, and the first of bracket 3
    assert whole.history[CYCLE].proposal.meta["bracket"] == 3
    assert list(whole.keeps()) == []
