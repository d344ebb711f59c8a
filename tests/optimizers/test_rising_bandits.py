"""Rising bandits: an optimizer for each algorithm, bounds on rising curves, and who rests."""

import math
from collections import Counter

import numpy as np
import pytest

from autorl.optimizers import make
from autorl.space import load_space
from autorl.space.algorithms import compile_algorithms
from autorl.spec import load_spec
from autorl.study import Study
from autorl.testing.optimizers import OptimizerConformance, space_of
from autorl.testing.simulation import replayed, simulate
from autorl.types import (
    Continue,
    Failed,
    FrozenMap,
    InputError,
    Proposal,
    Proposed,
    Scored,
    Status,
    Wait,
)

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}
SPACE = compile_algorithms(
    {
        "ppo": load_space({"hyperparameters": {"x": UNIT}}),
        "dqn": load_space({"hyperparameters": {"x": UNIT, "y": UNIT}}),
        "sac": load_space({"hyperparameters": {"z": UNIT}}),
    }
)
GOOD, BAD = "ppo", "dqn"


def bandits(space=SPACE, budget=60, horizon=100, **options):
    options = {"inner": "random", "window": 4.0, **options}
    return lambda: make("rising_bandits", space, horizon=horizon, budget=budget, **options)


def flat(levels):
    """Every run of an algorithm scores the same: its curve does not rise."""
    return lambda number, proposal: levels[proposal.config["algorithm"]]


def shares(proposals):
    return Counter(proposal.config["algorithm"] for proposal in proposals)


def test_arms_take_turns_until_their_bounds_are_known():
    proposals = simulate(bandits(), flat({"ppo": 1.0, "dqn": 0.0, "sac": 0.5}), 12).proposals
    assert shares(proposals) == {"ppo": 4, "dqn": 4, "sac": 4}
    assert [p.config["algorithm"] for p in proposals[:3]] == ["ppo", "dqn", "sac"]


def test_an_arm_that_does_not_rise_rests_once_another_is_above_it():
    proposals = simulate(bandits(), flat({"ppo": 1.0, "dqn": 0.0, "sac": 0.5}), 40).proposals
    assert shares(proposals[18:]) == {GOOD: 22}


def test_an_arm_that_rises_fast_enough_stays():
    """dqn is far below, but at its pace it would pass ppo within the budget; sac is slower and rests."""
    counts = Counter()

    def rising(number, proposal):
        algorithm = proposal.config["algorithm"]
        counts[algorithm] += 1
        return {"ppo": 1.0, "dqn": 0.03 * counts[algorithm], "sac": 0.001 * counts[algorithm]}[
            algorithm
        ]

    proposals = simulate(bandits(budget=60), rising, 40).proposals
    late = shares(proposals[18:])
    assert late["sac"] == 0
    assert late[BAD] >= 5


def test_the_upper_bound_is_the_slope_of_the_window_times_what_is_left():
    optimizer = bandits(window=2.0)()
    arm = optimizer._arms[0]
    assert arm.bounds(2.0, 10.0) == (-math.inf, math.inf)
    arm.scores, arm.ended = {0: 0.2, 1: 0.6}, 3.0
    arm.curve = [(1.0, 0.2), (2.0, 0.5), (3.0, 0.6)]
    assert arm.bounds(2.0, 10.0) == pytest.approx((0.6, 0.6 + (0.6 - 0.2) / 2 * 10))
    assert arm.bounds(4.0, 10.0) == (0.6, math.inf)


def test_a_tie_rests_nobody():
    proposals = simulate(bandits(), flat(dict.fromkeys(("ppo", "dqn", "sac"), 0.7)), 40).proposals
    assert min(shares(proposals).values()) >= 13


def test_an_extended_budget_brings_a_rising_arm_back():
    counts = Counter()

    def rising(number, proposal):
        algorithm = proposal.config["algorithm"]
        counts[algorithm] += 1
        return {"ppo": 1.0, "dqn": 0.02 * counts[algorithm], "sac": 0.0}[algorithm]

    events = simulate(bandits(budget=30), rising, 30).events
    assert [arm.name for arm in replayed(bandits(budget=30), events)._playing()] == [GOOD]
    assert {arm.name for arm in replayed(bandits(budget=500), events)._playing()} == {GOOD, BAD}


def test_short_runs_do_not_count_for_the_bounds():
    """dqn's short runs score above everything; only its full runs are compared, and they are bad."""

    def misleading(number, proposal):
        if proposal.config["algorithm"] == BAD:
            return 100.0 if proposal.until < 100 else 0.0
        return 0.5

    simulation = simulate(bandits(inner="hyperband", budget=80), misleading, 160, lag=4)
    assert shares(simulation.proposals[120:])[BAD] == 0
    arm = replayed(bandits(inner="hyperband", budget=80), simulation.events)._arms[1]
    assert set(arm.scores.values()) == {0.0}


def test_promotions_stay_within_their_arm_and_are_kept():
    factory = bandits(inner="asha", budget=100)
    proposals = simulate(
        factory, lambda n, p: max(v for v in p.config.values() if v != p.config["algorithm"]), 80
    )
    for proposal in proposals.proposals:
        if proposal.resume_from is not None:
            assert proposals.proposals[proposal.resume_from].config == proposal.config


def test_failed_arms_have_no_bounds_and_the_others_go_on():
    def fail(number, proposal):
        return Status.CRASH if proposal.config["algorithm"] == "sac" else None

    simulation = simulate(bandits(), flat({"ppo": 1.0, "dqn": 0.0, "sac": 9.0}), 60, fail=fail)
    assert len(simulation.proposals) == 60
    assert {s.values[0] for s in simulation.scored} == {0.0, 1.0}


def test_default_and_warm_starts_come_first_whatever_their_arm():
    warm = [{"algorithm": "sac", "sac.z": 0.25}, {"algorithm": "ppo", "ppo.x": 0.125}]
    factory = lambda: make("rising_bandits", SPACE, horizon=10, inner="random", initial=warm)  # noqa: E731
    proposals = simulate(factory, flat({"ppo": 1.0, "dqn": 0.0, "sac": 0.5}), 8, lag=4).proposals
    assert proposals[0].config == SPACE.default()
    assert [dict(p.config) for p in proposals[1:3]] == warm
    assert [p.origin for p in proposals[:3]] == ["default", "warm start", "warm start"]
    assert any(p.origin == "dqn: default" for p in proposals)


def test_it_waits_only_when_no_arm_in_play_can_go_on():
    optimizer = bandits(inner="hyperband", inner_options={"ahead": 0, "rungs": 2})()
    number = 0
    while not isinstance(answer := optimizer.ask(np.random.default_rng(number)), Wait):
        optimizer.observe(Proposed(number, answer))
        number += 1
    assert number == 6  # the first rungs of three brackets of two


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner": "nothing"}, "no optimizer 'nothing'"),
        ({"inner_options": {"population_size": 3}}, "unknown option"),
        ({"inner_options": {"stop": "median"}}, "stopping rule"),
        ({"split": "ppo.x"}, "unconditional categorical"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=message):
        bandits(**options)()


def test_populations_in_the_arms_are_told_to_the_study():
    changeable = load_space({"hyperparameters": {"x": {**UNIT, "changeable": True}}})
    kwargs = {"horizon": 10, "budget": 20, "changeable": {"x"}}
    assert make("rising_bandits", changeable, inner="pbt", **kwargs).population_based
    assert not make("rising_bandits", changeable, inner="tpe", **kwargs).population_based


class TestSplit(OptimizerConformance):
    """Spaces with a conditional part are split at `kind`."""

    optimizer = "rising_bandits"
    options = {"inner": "tpe", "inner_options": {"startup": 2}, "window": 2.0}  # noqa: RUF012


class TestArmsOfBrackets(OptimizerConformance):
    optimizer = "rising_bandits"
    options = {"inner": "hyperband", "inner_options": {"rungs": 2}, "window": 1.0}  # noqa: RUF012


def test_the_kit_does_split_its_conditional_space():
    assert len(make("rising_bandits", space_of("conditional"), horizon=10)._arms) == 2


def test_a_study_with_algorithms():
    spec = load_spec(
        {
            "algorithms": {
                "good": {
                    "trainer": {"name": "synthetic", "kwargs": {"optimum": 0.7}},
                    "space": {"hyperparameters": {"x": UNIT}},
                },
                "bad": {
                    "trainer": {"name": "synthetic", "kwargs": {"optimum": 0.2, "height": 0.3}},
                    "space": {"hyperparameters": {"x": UNIT, "y": UNIT}},
                },
            },
            "fidelity": {"steps": 20, "evaluations": 2},
            "budget": {"runs": 40},
            "seeds": {"tuning": 1, "test": 1},
            "optimizer": {"name": "rising_bandits", "inner": "tpe", "window": 5},
            "executor": {"name": "in_process"},
        }
    )
    study = Study.in_memory(spec)
    result = study.run()
    assert result.incumbent.config["algorithm"] == "good"
    counts = shares([study.driver.lineage[number] for number in range(len(study.driver.lineage))])
    assert counts["good"] > 25 > counts["bad"] >= 5


def test_one_arm_is_described_as_its_optimizer_and_several_by_name():
    space, how = space_of("continuous"), {"horizon": 100, "budget": 30.0}
    alone = make("rising_bandits", space, inner="hyperband", **how)
    assert alone.outline() == make("hyperband", space, **how).outline()
    several = bandits(inner="hyperband", budget=30)().outline()
    assert several[0] == (
        "arms: ppo, dqn, sac, each with hyperband and at first an equal part of the budget"
    )
    own = make("hyperband", space, horizon=100, budget=10.0).outline()
    assert several[1:] == tuple(f"{arm}: {line}" for arm in ("ppo", "dqn", "sac") for line in own)


def test_the_curve_of_an_arm_goes_back_a_window():
    space = space_of("continuous")
    made = lambda: make("rising_bandits", space, horizon=100, inner="random", window=2.0)  # noqa: E731
    scores = [0.1, 0.5, 0.3, 0.7, 0.6]
    events = simulate(made, lambda number, proposal: scores[number], 5).events
    curves = [replayed(made, events[: 2 * count])._arms[0].curve for count in range(6)]
    assert curves == [
        [],
        [(1.0, 0.1)],
        [(1.0, 0.1), (2.0, 0.5)],
        [(1.0, 0.1), (2.0, 0.5), (3.0, 0.5)],
        [(2.0, 0.5), (3.0, 0.5), (4.0, 0.7)],
        [(3.0, 0.5), (4.0, 0.7), (5.0, 0.7)],
    ]
    arm = replayed(made, [*events, Scored(3, (0.2,), n_seeds=2, reached=100)])._arms[0]
    assert (arm.spent, arm.ended, max(arm.scores.values())) == (5.0, 5.0, 0.6)
    assert arm.bounds(2.0, 10.0) == pytest.approx((0.6, 0.6 + 0.1 / 2 * 10))
    worse = replayed(made, [*events, *(Scored(n, (0.0,), reached=100) for n in range(1, 5))])
    assert worse._arms[0].bounds(2.0, 10.0) == (0.1, 0.1), "no arm is expected to get worse"


@pytest.mark.parametrize(
    ("budget", "spent", "playing"),
    [
        (math.inf, 10.0, ["ppo", "dqn", "sac"]),  # of an endless budget as much again
        (math.inf, 9.5, ["ppo", "sac"]),
        (30.0, 20.0, ["ppo", "dqn", "sac"]),
        (30.0, 20.5, ["ppo", "sac"]),
        (30.0, 31.0, ["ppo", "sac"]),
    ],
)
def test_an_arm_plays_that_can_draw_level_with_what_is_left(budget, spent, playing):
    """In four runs `dqn` rose by a quarter; half is missing. `sac` has no score yet."""
    optimizer = bandits(budget=budget)()
    ppo, dqn, _ = optimizer._arms
    ppo.scores, ppo.ended, ppo.curve = {0: 1.125}, 5.0, [(1.0, 1.125)]
    dqn.scores, dqn.ended, dqn.curve = {1: 0.5}, 5.0, [(1.0, 0.25)]
    ppo.spent = spent
    assert [arm.name for arm in optimizer._playing()] == playing


def test_infeasible_and_failed_runs_are_spent_and_reach_nothing():
    space = space_of("continuous")
    optimizer = make("rising_bandits", space, horizon=100, inner="random", window=1.0)
    outcomes = [
        Scored(0, (9.0,), constraints=(0.5,), reached=100),
        Failed(1, Status.CRASH, (9.0,)),
        Scored(2, (2.0,), constraints=(-0.5,), reached=100),
    ]
    for number, outcome in enumerate(outcomes):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
        optimizer.observe(outcome)
    (arm,) = optimizer._arms
    assert (arm.spent, arm.ended, arm.curve) == (3.0, 3.0, [(3.0, 2.0)])
    assert arm.scores == {0: -math.inf, 2: 2.0}


def test_promotions_cost_their_new_steps():
    optimizer = bandits(inner="asha", inner_options={"rungs": 2}, horizon=100)()
    arm = optimizer._arms[0]
    config = SPACE.config({"algorithm": "ppo", "ppo.x": 0.5})
    optimizer.observe(Proposed(0, Proposal(config, 50, meta=FrozenMap(rung=0))))
    optimizer.observe(Scored(0, (1.0,), reached=50))
    assert (arm.spent, arm.ended) == (0.5, 0.5)
    optimizer.observe(Proposed(1, Proposal(config, 100, Continue(0), meta=FrozenMap(rung=1))))
    assert (arm.spent, arm.ended) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("inner", "given", "most"),
    [("tpe", {}, None), ("bohb", {}, None), ("tpe", {"most_results": 300}, 300)],
)
def test_arms_read_all_results_unless_they_are_told_otherwise(inner, given, most):
    optimizer = make(
        "rising_bandits", space_of("continuous"), horizon=100, inner=inner, inner_options=given
    )
    assert optimizer._arms[0].optimizer.options.most_results == most


def test_scores_have_a_part_in_proposals_once_an_arm_rests():
    made = simulate(bandits(), flat({"ppo": 1.0, "dqn": 0.0, "sac": 0.5}), 30).proposals
    informed = [proposal.informed for proposal in made]
    first = informed.index(True)
    assert 12 <= first < 20
    assert informed == [False] * first + [True] * (30 - first)
