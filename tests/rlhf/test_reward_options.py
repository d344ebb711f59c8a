"""A training signal put together from flat options, against values worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from user_code import importable

from autorl.core.types import InputError
from autorl.trainers.language.contract import Built
from autorl.trainers.language.rewards.options import (
    RewardOptions,
    check,
    is_option,
    maybe_trained_on,
)


def assemble(built, options):
    """The training signal that a run's hyperparameters put together."""
    return RewardOptions.read(options).signal(built)


def count(letter):
    return lambda prompts, completions: [float(text.split().count(letter)) for text in completions]


BUILT = Built(
    name="tiny",
    instance=0,
    reference=Path(),
    prompts=("p",),
    held_out=("q",),
    max_completion=8,
    signals={"proxy": count("a"), "other": count("b"), "gold": count("c")},
    training="proxy",
    selection="gold",
    report="gold",
    bounds={},
)
BATCH = (["p", "p"], ["a a a", "b c"])


@pytest.fixture(autouse=True)
def _words_are_tokens(monkeypatch):
    monkeypatch.setattr(
        "autorl.trainers.language.rewards.options.load_tokenizer",
        lambda folder: lambda text, **rest: {"input_ids": text.split()},
    )


def score(**options):
    return assemble(BUILT, {f"reward.{name}": value for name, value in options.items()})(*BATCH)


def test_without_options_it_is_the_signal_of_the_task():
    assert assemble(BUILT, {}) is BUILT.signals["proxy"]
    assert assemble(BUILT, {"learning_rate": 0.1, "beta": 1.0}) is BUILT.signals["proxy"]


def test_ensembles_over_signals():
    """Proxy 3, 0; other 0, 1: means 1.5 and 0.5, variances 2.25 and 0.25."""
    both = ("proxy", "other")
    assert score(signals=both) == [1.5, 0.5]
    assert score(signals=both, rule="wco") == [0.0, 0.0]
    assert score(signals=both, rule="uwo", weight=0.2) == pytest.approx([1.05, 0.45])
    assert score(signals="other") == score(signals=("other",)) == [0.0, 1.0]


def test_a_rule_alone_is_over_the_ensemble_of_the_task():
    built = replace(BUILT, ensemble=("proxy", "other"))
    assert assemble(built, {})(*BATCH) == [3.0, 0.0]
    assert assemble(built, {"reward.rule": "wco"})(*BATCH) == [0.0, 0.0]
    assert assemble(built, {"reward.rule": "wco", "reward.signals": "gold"})(*BATCH) == [0.0, 1.0]


def test_a_rule_with_nothing_to_put_together_is_refused_before_a_study():
    check(["reward.rule"], BUILT.signals)
    check(["reward.rule"], BUILT.signals, ensemble=("proxy", "other"))
    check(["reward.rule", "reward.signals"], BUILT.signals, ensemble=())
    with pytest.raises(InputError, match="puts several signals together"):
        check(["reward.rule"], BUILT.signals, ensemble=())


def test_a_python_function_is_a_signal(tmp_path, monkeypatch):
    code = "def brevity(prompts, completions):\n    return [-1.0 * len(text) for text in completions]\n"
    with importable("my_rewards", code, tmp_path, monkeypatch):
        assert score(signals=("my_rewards:brevity",)) == [-5.0, -3.0]
        assert score(signals=("proxy", "my_rewards:brevity")) == [-1.0, -1.5]


def test_process_rewards_with_clip():
    """Sorting `2 1 >`: `1 1` has steps 1, 0. Clipped at 0.5: 0, -0.5."""
    built = replace(BUILT, signals={"exact": lambda p, c: [0.0]}, training="exact")
    options = {
        "reward.process": "autorl.trainers.language.tasks.sorting:steps",
        "reward.process_weight": 2.0,
    }
    case = (["2 1 >"], ["1 1"])
    assert assemble(built, options)(*case) == [2.0]
    assert assemble(built, {**options, "reward.process_clip": 0.5})(*case) == [-1.0]


def test_a_length_penalty():
    """Three words against a limit of 4 with a buffer of 2: half the penalty; two words: none."""
    assert score(length_limit=4, length_buffer=2, length_weight=2.0) == [2.0, 0.0]


def test_constraints_learn_and_can_be_saved():
    """Lengths 3 and 2, mean 2.5, limit 2: the multiplier becomes 0.5; gold's mean 0.5 meets its limit."""
    options = {
        "reward.length.at_most": 2.0,
        "reward.gold.at_least": 0.25,
        "reward.lagrange_rate": 1.0,
    }
    reward = assemble(BUILT, options)
    assert reward.learn(*BATCH) == [3.0, 0.0]
    assert reward(*BATCH) == pytest.approx([3.0 - 0.5 * 1.0, 0.0])
    resumed = assemble(BUILT, options)
    resumed.load(reward.state())
    assert resumed.learn(*BATCH) == reward.learn(*BATCH)


def test_runs_do_not_share_multipliers():
    first, second = (assemble(BUILT, {"reward.length.at_most": 1.0}) for _ in range(2))
    first.learn(*BATCH)
    assert first.state() != second.state()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward.rul": "mean"}, "unknown option"),
        ({"reward.kl.at_most": 1.0}, "no signal 'kl'"),
        ({"reward.weight": 1.0}, r"nothing without reward\.rule"),
        ({"reward.process_clip": 0.5}, r"nothing without reward\.process"),
        (
            {"reward.process": "json:loads", "reward.process_delta": True},
            "leave the reward of the first step alone",
        ),
        ({"reward.length_buffer": 2}, r"nothing without reward\.length_limit"),
        ({"reward.lagrange_rate": 0.1}, "nothing without a constraint"),
        ({"reward.signals": ("nothing",)}, "no signal 'nothing' in tiny"),
        ({"reward.signals": ("no_such_module:f",)}, "cannot import"),
        ({"reward.signals": ("json:nothing",)}, "cannot import"),
        ({"reward.signals": ("json:__name__",)}, "not a function"),
        ({"reward.signals": ("proxy", "other"), "reward.rule": "max"}, "mean, wco, uwo"),
        ({"reward.length_limit": 4, "reward.length_buffer": 5}, "buffer"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=message):
        assemble(BUILT, options)


def test_names_can_be_checked_before_anything_is_built():
    check(["learning_rate", "reward.rule", "reward.length.at_most"], ("proxy", "gold"))
    assert is_option("reward.rule")
    assert not is_option("rewards")


def test_what_a_run_is_trained_on():
    assert RewardOptions.read({"learning_rate": 0.1}).trained_on("proxy") == {"proxy"}
    assert RewardOptions.read({"reward.signals": ("other", "gold")}).trained_on("proxy") == {
        "other",
        "gold",
    }
    assert RewardOptions.read({"reward.gold.at_least": 0.1}).trained_on("proxy") == {
        "proxy",
        "gold",
    }
    assert RewardOptions.read({"reward.rule": "mean"}).trained_on(
        "proxy", ("proxy_0", "proxy_1")
    ) == {"proxy_0", "proxy_1"}


def test_what_some_configuration_of_a_space_is_trained_on():
    numbers = {"learning_rate": (), "reward.kl.at_most": ()}
    assert maybe_trained_on({}, numbers, "proxy") == {"proxy", "kl"}
    listed = {"reward.signals": ("proxy", ("other", "gold"))}
    assert maybe_trained_on({}, listed, "proxy") == {"proxy", "other", "gold"}
    assert maybe_trained_on({"reward.signals": "gold"}, {}, "proxy") == {"gold"}
    assert maybe_trained_on({}, {"reward.rule": ("mean", "wco")}, "proxy", ("one", "two")) == {
        "one",
        "two",
    }
