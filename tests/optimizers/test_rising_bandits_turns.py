"""Rising bandits turn by turn: who is asked, who is waited for, what an arm is given, what informs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from autorl.core.types import (
    Config,
    Continue,
    Done,
    Failed,
    FrozenMap,
    Proposal,
    Proposed,
    Scored,
    Status,
    Wait,
)
from autorl.optimizers import make
from autorl.space import load_space
from autorl.space.algorithms import compile_algorithms
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

UNIT = {"type": "float", "lower": 0.0, "upper": 1.0}
SPACE = compile_algorithms(
    {
        "ppo": load_space({"hyperparameters": {"x": UNIT}}),
        "dqn": load_space({"hyperparameters": {"x": UNIT, "y": UNIT}}),
    }
)
RNG = np.random.default_rng(0)
RUN = {"x": 0.5}


def bandits(space=SPACE, budget=60.0, **options):
    options = {"inner": "random", "window": 2.0, **options}
    return make("rising_bandits", space, horizon=100, budget=budget, **options)


def config_of(arm, x):
    return SPACE.config({"algorithm": arm.name, f"{arm.name}.x": x})


def trained(optimizer, arm, score, x, until=100, parent=None, **more):
    """A run of an arm, from scratch or going on."""
    number = len(optimizer.history)
    proposal = Proposal(config_of(arm, x), until, parent)
    optimizer.observe(Proposed(number, proposal))
    optimizer.observe(Scored(number, (score,), **{"reached": until, **more}))
    return number


def started(**options):
    """An optimizer whose initial configurations are in, without scores."""
    optimizer = bandits(**options)
    for number in range(2):
        optimizer.observe(Proposed(number, optimizer.ask(RNG)))
    return optimizer


def answering(optimizer, monkeypatch, **answers):
    """Arms whose optimizers give these answers; the order they were asked in."""
    asked = []
    for arm in optimizer._arms:

        def ask(rng, arm=arm):
            asked.append(arm.name)
            return answers[arm.name]

        monkeypatch.setattr(arm.optimizer, "ask", ask)
    return asked


def proposal_of(x=0.125, **more):
    return Proposal(Config({"ppo.x": x}), 100, origin="drawn", **more)


# -- who is asked ---------------------------------------------------------------------------------


def test_the_arm_with_the_fewest_steps_is_asked_first(monkeypatch):
    optimizer = started()
    ppo, dqn = optimizer._arms
    ppo.spent, dqn.spent = 3.0, 2.0
    other = Proposal(Config({"dqn.x": 0.25, "dqn.y": 0.75}), 100, origin="drawn")
    asked = answering(optimizer, monkeypatch, ppo=proposal_of(), dqn=other)
    answer = optimizer.ask(RNG)
    assert asked == ["dqn"]
    assert list(answer.config.items()) == [("algorithm", "dqn"), ("dqn.x", 0.25), ("dqn.y", 0.75)]
    assert answer.origin == "dqn: drawn"


def test_of_arms_with_equal_steps_the_first_choice_is_asked(monkeypatch):
    optimizer = started()
    asked = answering(optimizer, monkeypatch, ppo=proposal_of(), dqn=Done())
    assert optimizer.ask(RNG).config["algorithm"] == "ppo"
    assert asked == ["ppo"]


def test_where_one_has_nothing_the_next_is_asked(monkeypatch):
    optimizer = started()
    optimizer._arms[1].spent = 0.0
    asked = answering(optimizer, monkeypatch, ppo=proposal_of(), dqn=Wait())
    assert optimizer.ask(RNG).config["ppo.x"] == 0.125
    assert asked == ["dqn", "ppo"]


@pytest.mark.parametrize(
    ("ppo", "dqn", "answer"),
    [
        (Wait(), Done(), Wait()),  # somebody may go on
        (Done(), Wait(), Wait()),
        (Wait(), Wait(), Wait()),
        (Done(), Done(), Done()),
    ],
)
def test_it_waits_for_any_arm_that_waits(monkeypatch, ppo, dqn, answer):
    optimizer = started()
    answering(optimizer, monkeypatch, ppo=ppo, dqn=dqn)
    assert optimizer.ask(RNG) == answer


def resting():
    """`dqn` rests: it scored 0 four times, `ppo` 1."""
    optimizer = bandits(initial=())
    ppo, dqn = optimizer._arms
    for place in range(4):
        trained(optimizer, ppo, 1.0, 0.5 if place == 0 else 0.1 * place)
        trained(optimizer, dqn, 0.0, 0.1 * place)
    assert optimizer._playing() == [ppo]
    return optimizer


def test_those_at_rest_are_asked_when_the_others_have_nothing_left(monkeypatch):
    optimizer = resting()
    optimizer._arms[1].spent = 0.0
    own = Proposal(Config({"dqn.x": 0.25, "dqn.y": 0.75}), 100, origin="drawn")
    asked = answering(optimizer, monkeypatch, ppo=Done(), dqn=own)
    assert optimizer.ask(RNG).config["algorithm"] == "dqn"
    assert asked == ["ppo", "dqn"]
    answering(optimizer, monkeypatch, ppo=Done(), dqn=Done())
    assert optimizer.ask(RNG) == Done()


def test_those_at_rest_are_not_asked_while_another_is_waited_for(monkeypatch):
    optimizer = resting()
    optimizer.observe(Proposed(8, Proposal(config_of(optimizer._arms[0], 0.9), 100)))
    asked = answering(optimizer, monkeypatch, ppo=Wait(), dqn=Done())
    assert optimizer.ask(RNG) == Wait()
    assert asked == ["ppo"]


# -- what scores have a part in ---------------------------------------------------------------------


def test_a_proposal_is_informed_from_the_first_at_which_an_arm_rests(monkeypatch):
    optimizer = bandits()
    ppo, dqn = optimizer._arms
    for place in range(3):
        trained(optimizer, ppo, 1.0, 0.5 if place == 0 else 0.1 * place)
        trained(optimizer, dqn, 0.0, 0.1 * place)
        if place < 1:
            assert not optimizer._steered
    assert optimizer._playing() == [ppo]
    assert optimizer.ask(RNG).informed
    optimizer._steered = False  # nothing was proposed yet while one rested
    assert optimizer.ask(RNG).informed


def test_scores_chose_the_arms_for_ever_since_one_rested(monkeypatch):
    optimizer = resting()
    optimizer.observe(Proposed(8, optimizer.ask(RNG)))
    assert optimizer._steered
    monkeypatch.setattr(optimizer, "_playing", lambda: list(optimizer._arms))
    assert optimizer.ask(RNG).informed, "nobody rests any more"


def test_initial_configurations_are_not_informed_though_an_arm_rests():
    """With a window of one run `dqn` rests after two of its four warm starts."""
    names = ["dqn", "ppo"] * 4
    warm = [{"algorithm": name, f"{name}.x": 0.06 * x} for x, name in enumerate(names)]
    optimizer = bandits(initial=warm, window=1.0)
    made, resting = [], []
    for number in range(12):
        made.append(optimizer.ask(RNG))
        optimizer.observe(Proposed(number, made[-1]))
        score = float(made[-1].config["algorithm"] == "ppo")
        optimizer.observe(Scored(number, (score,), reached=100))
        resting.append(len(optimizer._playing()) < 2)
    assert [one.origin for one in made[:9]] == ["default", *["warm start"] * 8]
    assert resting == [False] * 3 + [True] * 9
    assert [one.informed for one in made] == [False] * 9 + [True] * 3


def test_an_arm_says_itself_what_was_informed(monkeypatch):
    optimizer = started()
    answering(optimizer, monkeypatch, ppo=proposal_of(informed=True), dqn=Done())
    assert optimizer.ask(RNG).informed
    answering(optimizer, monkeypatch, ppo=proposal_of(), dqn=Done())
    assert not optimizer.ask(RNG).informed


# -- what an arm is told ------------------------------------------------------------------------------


def test_an_arm_is_told_of_its_own_hyperparameters_alone():
    optimizer = bandits()
    number = trained(optimizer, optimizer._arms[1], 0.5, 0.25)
    inside = optimizer._arms[1].optimizer.history[number]
    assert inside.proposal.config == Config({"dqn.x": 0.25, "dqn.y": 0.5})
    assert inside.values == (0.5,)
    assert len(optimizer._arms[0].optimizer.history) == 0


def test_an_outcome_counts_once_and_its_latest_score_for_the_bounds():
    optimizer = bandits()
    ppo = optimizer._arms[0]
    first = trained(optimizer, ppo, 0.5, 0.5)
    optimizer.observe(Scored(first, (0.25,), n_seeds=2, reached=100))
    assert (ppo.spent, ppo.ended, ppo.scores) == (1.0, 1.0, {first: 0.25})
    assert ppo.curve == [(1.0, 0.5), (1.0, 0.25)]
    optimizer.observe(Failed(first, Status.CRASH, (-1.0,)))
    assert (ppo.ended, ppo.scores) == (1.0, {first: 0.25})


def test_parts_of_runs_cost_their_steps_and_only_whole_ones_are_compared():
    optimizer = bandits()
    ppo = optimizer._arms[0]
    first = trained(optimizer, ppo, 9.0, 0.5, until=25)
    assert (ppo.spent, ppo.ended, ppo.scores, ppo.curve) == (0.25, 0.25, {}, [])
    second = trained(optimizer, ppo, 8.0, 0.5, until=75, parent=Continue(first))
    assert (ppo.spent, ppo.ended, ppo.curve) == (0.75, 0.75, [])
    third = trained(optimizer, ppo, 0.5, 0.5, parent=Continue(second))
    assert (ppo.spent, ppo.ended, ppo.scores) == (1.0, 1.0, {third: 0.5})
    assert ppo.curve == [(1.0, 0.5)]


def test_an_arm_is_too_young_until_its_first_score_is_a_window_old():
    optimizer = bandits(window=2.0)
    ppo = optimizer._arms[0]
    trained(optimizer, ppo, 0.5, 0.5)
    trained(optimizer, ppo, 1.0, 0.1)
    assert ppo.bounds(2.0, 10.0) == (1.0, math.inf)
    trained(optimizer, ppo, 0.0, 0.2)
    # In the two runs since the first it rose by 0.5: by 2.5 in ten more.
    assert ppo.bounds(2.0, 10.0) == (1.0, 3.5)
    assert ppo.bounds(2.0, 0.0) == (1.0, 1.0)


# -- what an arm is given -------------------------------------------------------------------------------


def test_each_arm_has_an_equal_part_of_the_budget_and_what_may_change_of_it():
    changeable = frozenset({"ppo.x", "dqn.y"})
    optimizer = bandits(budget=30.0, changeable=changeable)
    problems = [arm.optimizer.problem for arm in optimizer._arms]
    assert [problem.budget for problem in problems] == [15.0, 15.0]
    assert [problem.horizon for problem in problems] == [100, 100]
    assert [problem.changeable for problem in problems] == [{"ppo.x"}, {"dqn.y"}]
    assert [problem.n_objectives for problem in problems] == [1, 1]
    assert [tuple(problem.space.names) for problem in problems] == [("ppo.x",), ("dqn.x", "dqn.y")]


def test_an_arm_begins_with_the_studys_configurations_and_then_its_default():
    warm = [
        {"algorithm": "dqn", "dqn.x": 0.25},
        {"algorithm": "ppo", "ppo.x": 0.125},
        {"algorithm": "dqn", "dqn.x": 0.75},
    ]
    ppo, dqn = bandits(initial=warm)._arms
    xs = [config["ppo.x"] for config in ppo.optimizer.problem.initial]
    assert xs == [0.5, 0.125], "the default of the study is the arm's as well"
    assert [config["dqn.x"] for config in dqn.optimizer.problem.initial] == [0.25, 0.75, 0.5]
    assert (ppo.name, dict(dqn.fixed)) == ("ppo", {"algorithm": "dqn"})


def test_a_space_that_is_not_split_has_one_arm_of_all_of_it():
    space = space_of("continuous")
    optimizer = bandits(space, initial=({"x": 0.25},))
    (arm,) = optimizer._arms
    assert (arm.name, arm.fixed, arm.optimizer.problem.budget) == ("", {}, 60.0)
    assert arm.optimizer.problem.initial == optimizer.problem.initial
    made = simulate(lambda: bandits(space, initial=({"x": 0.25},)), lambda n, p: 0.0, 3).proposals
    assert [one.origin for one in made] == ["default", "warm start", "random"]


def test_a_split_that_is_named():
    space = load_space(
        {
            "hyperparameters": {
                "a": {"choices": ["p", "q", "r"]},
                "b": {"choices": ["s", "t"]},
                "x": UNIT,
            },
            "conditions": {"x": "a == 'p'"},
        }
    )
    assert [arm.name for arm in bandits(space)._arms] == ["p", "q", "r"]
    assert [arm.name for arm in bandits(space, split="b")._arms] == ["s", "t"]


def test_options_of_the_arms_reach_their_optimizers():
    optimizer = bandits(inner="tpe", inner_options={"startup": 3, "candidates": 5})
    given = [arm.optimizer.options for arm in optimizer._arms]
    assert [(one.startup, one.candidates, one.most_results) for one in given] == [(3, 5, 1000)] * 2


# -- what is kept and said ---------------------------------------------------------------------------------


def test_arms_at_rest_keep_what_an_extended_budget_goes_on_with():
    optimizer = bandits(inner="asha", inner_options={"rungs": 2, "eta": 2})
    ppo, dqn = optimizer._arms
    for number, arm in enumerate((ppo, dqn)):
        proposal = Proposal(config_of(arm, 0.5), 50, meta=FrozenMap(rung=0))
        optimizer.observe(Proposed(number, proposal))
        optimizer.observe(Scored(number, (0.5,), reached=50))
    assert sorted(optimizer.keeps()) == [0, 1]


def test_what_all_arms_caution_against_is_said_once():
    hyperparameters = {"k": {"choices": ["a", "b"]}, "x": {**UNIT, "changeable": True}}
    conditions = {"x": "k in ['a', 'b']"}
    space = load_space({"hyperparameters": hyperparameters, "conditions": conditions})
    optimizer = make(
        "rising_bandits",
        space,
        horizon=100,
        budget=40,
        changeable={"x"},
        inner="pbt",
        inner_options={"population": 4},
    )
    (text,) = optimizer.cautions()
    assert text.startswith("12 of the 20 full-length runs of the budget stay unused")
    assert optimizer.population_based
    assert len(optimizer._arms) == 2


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
    assert bandits(inner=inner).takes_enqueued is taken
    assert bandits(space_of("continuous"), inner=inner).takes_enqueued is alone


@pytest.mark.parametrize("inner", ["random", "asha"])
def test_enqueued_configurations_of_any_arm_are_its_own(inner):
    """As the driver places them: with the meta of the proposal whose place they take."""
    optimizer = bandits(inner=inner)
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
