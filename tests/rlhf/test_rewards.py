"""Rewards against values worked out by hand."""

import json

import pytest

from autorl.core.types import InputError
from autorl.trainers.language.rewards.composition import (
    Ensemble,
    WithLength,
    WithProcess,
    clip,
    combine,
    delta,
    refine,
    soft_overlong,
    words,
)
from autorl.trainers.language.rewards.constraints import Constrained, Constraint

TABLE = [[1.0, 4.0], [3.0, 0.0]]  # two models, two completions: means 2 and 2, variances 1 and 4


def letters(letter):
    return lambda prompts, completions: [float(text.count(letter)) for text in completions]


@pytest.mark.parametrize(
    ("rule", "weight", "expected"),
    [
        ("mean", 0.5, [2.0, 2.0]),
        ("wco", 0.5, [1.0, 0.0]),
        ("uwo", 0.5, [1.5, 0.0]),
        ("uwo", 0.1, [1.9, 1.6]),
    ],
)
def test_ensemble_rules(rule, weight, expected):
    assert combine(TABLE, rule, weight) == pytest.approx(expected)
    signals = [lambda p, c, row=row: row for row in TABLE]
    assert Ensemble(signals, rule, weight)(["x", "x"], ["y", "z"]) == pytest.approx(expected)


def test_one_model_is_itself_under_every_rule():
    for rule in ("mean", "wco", "uwo"):
        assert combine([[0.3, -2.0]], rule, 5.0).tolist() == [0.3, -2.0]


@pytest.mark.parametrize(("rule", "weight"), [("median", 0.5), ("uwo", -0.1)])
def test_a_wrong_rule_or_weight_is_an_input_error_before_training(rule, weight):
    with pytest.raises(InputError, match="reward"):
        Ensemble([letters("a")], rule, weight)
    with pytest.raises(InputError, match="one row of rewards per model"):
        Ensemble([])


def test_clip_leaves_no_reward_above_zero():
    assert clip([0.9, 0.5, 0.2, 0.7], 0.5) == pytest.approx([0.0, 0.0, -0.3, 0.0])
    assert clip([], 0.5) == []


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], []),
        ([0.8], [0.0]),
        ([0.8, 0.6], [0.8, 0.0]),
        ([0.8, 0.6, 0.9, 0.1], [0.2, -0.3, 0.9, 0.0]),
    ],
)
def test_delta(steps, expected):
    assert delta(steps) == pytest.approx(expected)


def test_the_return_under_delta_is_the_first_reward_however_long_the_solution():
    """The point of the method: repeating a good step does not pay. Unrefined, it does."""
    short, padded = [0.7, 0.9, 0.8], [0.7, *[0.9] * 20, 0.8]
    assert sum(delta(short)) == pytest.approx(sum(delta(padded))) == pytest.approx(0.7)
    assert sum(padded) > sum(short) + 15
    assert sum(refine(padded, 0.7)) == pytest.approx(0.0)


def test_clip_comes_before_delta():
    """[0.9, 0.2, 0.6] clipped at 0.5 is [0, -0.3, 0]; its delta is [0.3, -0.3, 0]."""
    assert refine([0.9, 0.2, 0.6], 0.5, True) == pytest.approx([0.3, -0.3, 0.0])
    assert refine([0.9, 0.2]) == [0.9, 0.2]


def test_process_reward_is_added_to_the_outcome():
    signal = WithProcess(lambda p, c: [1.0, 0.0], lambda p, c: [[0.5, 0.1], [0.9]], 0.5)
    assert signal(["p", "p"], ["a", "b"]) == pytest.approx([1.3, 0.45])
    refined = WithProcess(lambda p, c: [1.0], lambda p, c: [[0.5, 0.1]], 2.0, threshold=0.4)
    assert refined(["p"], ["a"]) == pytest.approx([0.4])  # clip gives [0, -0.3]


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0), (12, 0), (13, -0.25), (14, -0.5), (16, -1), (40, -1)]
)
def test_soft_overlong_penalty(length, expected):
    assert soft_overlong(length, longest=16, buffer=4) == expected


def test_length_penalty_counts_words_unless_told_otherwise():
    signal = WithLength(letters("a"), longest=4, buffer=2, weight=2.0)
    assert signal(["p", "p"], ["a a", "a b c"]) == [2.0, 0.0]
    assert words(" a  b ") == 2
    assert WithLength(letters("a"), 4, 2, length=len)(["p"], ["a b"]) == [0.5]
    with pytest.raises(InputError, match="buffer"):
        WithLength(letters("a"), longest=4, buffer=5)


SIGNALS = {
    "proxy": letters("a"),
    "length": lambda p, c: [float(words(text)) for text in c],
    "b": letters("b"),
}
BATCH = (["p", "p"], ["a a a", "b"])  # proxy 3, 0; length 3, 1 (mean 2); b 0, 1 (mean 0.5)


def test_constrained_reward_by_hand():
    limits = [Constraint("length", 1.5), Constraint("b", 0.75, "at_least")]
    reward = Constrained(SIGNALS, "proxy", limits, learning_rate=0.4)
    assert reward.learn(*BATCH) == [3.0, 0.0]  # multipliers are 0 in the first batch
    assert reward.multipliers == pytest.approx([0.4 * 0.5, 0.4 * 0.25])
    # 3 - 0.2 (3 - 1.5) + 0.1 (0 - 0.75), 0 - 0.2 (1 - 1.5) + 0.1 (1 - 0.75)
    assert reward(*BATCH) == pytest.approx([2.625, 0.125])
    assert reward.multipliers == pytest.approx([0.2, 0.1]), "scoring alone moves nothing"


def test_multipliers_rise_while_violated_fall_when_met_and_stay_in_bounds():
    reward = Constrained(
        SIGNALS, "proxy", [Constraint("length", 1.0)], learning_rate=1.0, ceiling=2.5
    )
    seen = [reward.learn(*BATCH) and reward.multipliers[0] for _ in range(4)]
    assert seen == [1.0, 2.0, 2.5, 2.5]
    seen = [reward.learn(["p"], ["a"] if i else [""]) and reward.multipliers[0] for i in range(3)]
    assert seen == [1.5, 1.5, 1.5]  # length 0 is one below, length 1 exactly on the threshold
    for _ in range(3):
        reward.learn(["p"], [""])
    assert reward.multipliers == [0.0]


def test_rescaling_divides_by_one_plus_the_multipliers():
    limits = [Constraint("length", 1.5)]
    plain = Constrained(SIGNALS, "proxy", limits, initial=3.0)(*BATCH)
    scaled = Constrained(SIGNALS, "proxy", limits, initial=3.0, rescale=True)(*BATCH)
    assert scaled == pytest.approx([value / 4 for value in plain])


def test_the_state_of_a_constrained_reward_goes_through_json():
    limits = [Constraint("length", 1.5), Constraint("length", 0.5, "at_least")]
    straight = Constrained(SIGNALS, "proxy", limits)
    first = Constrained(SIGNALS, "proxy", limits)
    for reward in (straight, first):
        reward.learn(*BATCH)
    resumed = Constrained(SIGNALS, "proxy", limits)
    resumed.load(json.loads(json.dumps(first.state())))
    assert resumed.learn(*BATCH) == straight.learn(*BATCH)
    assert resumed.multipliers == straight.multipliers
    with pytest.raises(InputError, match="multipliers for"):
        Constrained(SIGNALS, "proxy", limits[:1]).load(first.state())


@pytest.mark.parametrize(
    ("limits", "options", "message"),
    [
        ([Constraint("kl", 1.0)], {}, "no signal 'kl'"),
        ([Constraint("b", 1.0), Constraint("b", 2.0)], {}, "given twice"),
        ([], {"initial": -1.0}, "initial"),
        ([], {"learning_rate": -0.1}, "learning_rate"),
    ],
)
def test_wrong_constraints(limits, options, message):
    with pytest.raises(InputError, match=message):
        Constrained(SIGNALS, "proxy", limits, **options)


def test_an_unknown_kind_of_constraint():
    with pytest.raises(InputError, match="at_most, at_least"):
        Constraint("b", 1.0, "below")
