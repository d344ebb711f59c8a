"""The training signal as trainers call it: a signal that learns is the run's own, and is saved."""

from autorl.trainers.language.rewards.constraints import Constrained, Constraint
from autorl.trainers.rlhf.counted_reward import CountedReward

BATCH = (["p", "p"], ["a a a", "b"])


def lengths(prompts, completions):
    return [float(len(text.split())) for text in completions]


def constrained():
    return Constrained(lengths, {"length": lengths}, [Constraint("length", 1.0)], learning_rate=0.5)


def test_two_runs_with_one_signal_learn_apart_and_leave_it_as_it_was():
    """Mean length 2, limit 1: the multiplier of a run rises by 0.5 with each of its batches."""
    shared = constrained()
    first, second = CountedReward("length", shared), CountedReward("length", shared)
    assert first(*BATCH) == [3.0, 1.0]
    assert first(*BATCH) == [3.0 - 0.5 * 2.0, 1.0]
    second(*BATCH)
    states = [run.state()["signal"]["multipliers"]["length at_most"] for run in (first, second)]
    assert states == [1.0, 0.5]
    assert shared.multipliers == {"length at_most": 0.0}


def test_what_a_run_has_learnt_goes_on_from_its_checkpoint():
    first, resumed = CountedReward("length", constrained()), CountedReward("length", constrained())
    first(*BATCH)
    resumed.load(first.state() | {"tokens": 7})
    assert resumed(*BATCH) == first(*BATCH)
    assert resumed.tokens == 7


def test_a_signal_that_does_not_learn_has_no_state():
    reward = CountedReward("length", lengths)
    assert reward(*BATCH) == [3.0, 1.0]
    assert reward.state() == {"signal": None, "tokens": 0, "groups": [1, 0]}
