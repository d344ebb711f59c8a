"""Rising bandits: an optimizer for each algorithm, bounds on rising curves, and who rests."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from driving import ask, tell

from autorl.core.types import InputError, Proposal, Proposed, Scored
from autorl.optimizers import make
from autorl.space import load_space
from autorl.space.algorithms import compile_algorithms
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import replayed, simulate

SPACE = compile_algorithms(
    {
        "ppo": load_space({"x": "uniform(0, 1)"}),
        "dqn": load_space({"x": "uniform(0, 1)", "y": "uniform(0, 1)"}),
        "sac": load_space({"z": "uniform(0, 1)"}),
    }
)


def bandits(space=SPACE, budget=60, horizon=100, **options):
    options = {"inner": "random", "window": 4.0, **options}
    return lambda: make("rising_bandits", space, horizon=horizon, budget=budget, **options)


def test_an_arm_that_rises_fast_enough_stays():
    """dqn is far below, but at its pace it would pass ppo within the budget; sac is slower and rests."""
    counts = Counter()

    def rising(number, proposal):
        algorithm = proposal.config["algorithm"]
        counts[algorithm] += 1
        return 1.0 if algorithm == "ppo" else slope[algorithm] * counts[algorithm]

    slope = {"dqn": 0.03, "sac": 0.001}
    late = [p.config["algorithm"] for p in simulate(bandits(), rising, 40).proposals[18:]]
    assert late.count("sac") == 0
    assert late.count("dqn") >= 5


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


def test_the_kit_does_split_its_conditional_space():
    assert len(make("rising_bandits", space_of("conditional"), horizon=10)._arms) == 2


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


TWO = compile_algorithms(
    {
        "ppo": load_space({"x": "uniform(0, 1)"}),
        "dqn": load_space({"x": "uniform(0, 1)", "y": "uniform(0, 1)"}),
    }
)


def pair(space=TWO, budget=60.0, **options):
    options = {"inner": "random", "window": 2.0, **options}
    return make("rising_bandits", space, horizon=100, budget=budget, **options)


def config_of(arm, x):
    return TWO.config({"algorithm": arm.name, f"{arm.name}.x": x})


# -- what scores have a part in ---------------------------------------------------------------------


def test_a_proposal_is_informed_from_the_first_at_which_an_arm_rests():
    optimizer = pair()
    ppo = optimizer._arms[0]
    for number in range(6):
        arm = optimizer._arms[number % 2]
        x = 0.1 * number or 0.5  # the default first
        optimizer.observe(Proposed(number, Proposal(config_of(arm, x), 100)))
        tell(optimizer, number, arm is ppo)
        assert number > 1 or not optimizer._steered
    assert optimizer._playing() == [ppo]
    assert ask(optimizer).informed
    optimizer._steered = False  # nothing was proposed yet while one rested
    assert ask(optimizer).informed


# -- what an arm is given -------------------------------------------------------------------------------


def test_a_split_that_is_named():
    letters = {"a": {"choices": ["p", "q", "r"]}, "b": {"choices": ["s", "t"]}}
    space = load_space(
        {"hyperparameters": {**letters, "x": "uniform(0, 1)"}, "conditions": {"x": "a == 'p'"}}
    )
    assert [arm.name for arm in pair(space)._arms] == ["p", "q", "r"]
    assert [arm.name for arm in pair(space, split="b")._arms] == ["s", "t"]


# -- configurations of the caller's ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "taken", "alone"),
    [
        ("random", True, True),
        ("tpe", True, True),
        ("asha", True, True),
        # The number of a bracket is of the arm that was asked, the configuration maybe another's.
        ("hyperband", False, True),
        ("bohb", False, True),
        ("successive_halving", False, True),
        ("dehb", False, False),
        ("grid", False, False),
        ("de", False, False),
    ],
)
def test_an_enqueued_configuration_is_taken_where_it_can_be_any_arms(inner, taken, alone):
    assert pair(inner=inner).takes_enqueued is taken
    assert pair(space_of("continuous"), inner=inner).takes_enqueued is alone


@pytest.mark.parametrize("inner", ["random", "asha"])
def test_enqueued_configurations_of_any_arm_are_its_own(inner):
    """As the driver places them: with the meta of the proposal whose place they take."""
    optimizer = pair(inner=inner)
    rng = np.random.default_rng(0)
    for number in range(20):
        proposal = optimizer.ask(rng)
        if number % 2 and proposal.parent is None:
            arm = optimizer._arms[number % 4 // 2]
            proposal = replace(proposal, config=config_of(arm, number / 20), origin="enqueued")
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(Scored(number, (float(rng.normal()),), reached=proposal.until))
        arm = optimizer._arm_of[number]
        assert arm.name == proposal.config["algorithm"]
        assert arm.optimizer.history[number].values
