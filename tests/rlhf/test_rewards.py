"""Rewards, and the training signal put together from flat options, against values by hand."""

import json
from dataclasses import replace

import pytest
from rlhf_support import built, importable, write_policy

from autorl.core.types import InputError
from autorl.trainers.language.models import load_tokenizer
from autorl.trainers.language.rewards.composition import (
    Constrained,
    at_steps,
    clipped,
    differences,
    ensemble,
    with_length,
    with_process,
)
from autorl.trainers.language.rewards.options import RewardOptions, maybe_trained_on
from autorl.trainers.language.sampling import sample
from autorl.trainers.language.tasks.letters import load
from autorl.trainers.language.tasks.tiny_models import write_tokenizer
from autorl.trainers.rlhf.counted_reward import CountedReward

TABLE = [[1.0, 4.0], [3.0, 0.0]]  # two models, two completions: means 2 and 2, variances 1 and 4


def count(letter):
    return lambda prompts, completions: [float(text.split().count(letter)) for text in completions]


def lengths(prompts, completions):
    return [float(len(text.split())) for text in completions]


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
    signals = [lambda p, c, row=row: row for row in TABLE]
    assert ensemble(signals, rule, weight)(["x", "x"], ["y", "z"]) == pytest.approx(expected)
    one = ensemble([lambda p, c: [0.3, -2.0]], rule, 5.0)
    assert one(["x", "x"], ["y", "z"]) == [0.3, -2.0]


def test_process_reward_is_added_to_the_outcome():
    signal = with_process(lambda p, c: [1.0, 0.0], lambda p, c: [[0.5, 0.1], [0.9]], 0.5)
    assert signal(["p", "p"], ["a", "b"]) == pytest.approx([1.3, 0.45])
    clipped = with_process(lambda p, c: [1.0], lambda p, c: [[0.5, 0.1]], 2.0, threshold=0.4)
    assert clipped(["p"], ["a"]) == pytest.approx([0.4])  # clip gives [0, -0.3]


@pytest.mark.parametrize(
    ("steps", "delta", "clip_and_delta"),
    [
        # r_1 - r_2, r_2 - r_3, r_3, 0; at a threshold of 0.5 the steps are 0, -0.3, 0, -0.4
        ([0.9, 0.2, 0.6, 0.1], [0.7, -0.4, 0.6, 0.0], [0.3, -0.3, 0.0, 0.0]),
        ([0.4, 0.9], [0.4, 0.0], [-0.1, 0.0]),
        ([0.9], [0.0], [0.0]),
        ([], [], []),
    ],
)
def test_delta_and_clip_before_it(steps, delta, clip_and_delta):
    assert differences(steps) == pytest.approx(delta)
    assert differences(clipped(steps, 0.5)) == pytest.approx(clip_and_delta)
    # what is still to come at each step but the last is its own reward
    returns = [sum(differences(steps)[place:]) for place in range(len(steps))]
    assert returns[:-1] == pytest.approx(steps[:-1])


def test_rewards_at_the_ends_of_steps():
    texts = ["a\nb c\n\n", "\n \n", "d"]
    steps = [[0.5, 0.25], [], [1.0]]
    assert at_steps(lambda p, c: steps, "\n", 2.0, None, False)(["p"] * 3, texts) == [
        [(1, 1.0), (5, 0.5)],
        [],
        [(1, 2.0)],
    ]
    clip_and_delta = at_steps(lambda p, c: steps, "\n", 2.0, 0.25, True)
    assert clip_and_delta(["p"] * 3, texts) == [[(1, 0.0), (5, 0.0)], [], [(1, 0.0)]]
    with pytest.raises(InputError, match=r"for each of 1 steps between .*, got 2"):
        at_steps(lambda p, c: steps[:1], "\n", 2.0, None, False)(["p"], ["a b"])


def test_soft_overlong_penalty():
    texts = ["a" * length for length in (0, 12, 13, 14, 16, 40)]
    signal = with_length(lambda prompts, texts: [2.0] * len(texts), 16, 4, 2.0, len)
    assert signal(["p"] * 6, texts) == [2.0, 2.0, 1.5, 1.0, 0.0, 0.0]


SIGNALS = {"length": lengths, "b": count("b")}
BATCH = (["p", "p"], ["a a a", "b"])  # proxy 3, 0; length 3, 1 (mean 2); b 0, 1 (mean 0.5)


AT_MOST = ("length", "at_most")


def constrained(limits, **options):
    return Constrained(count("a"), SIGNALS, limits, **options)


def test_constrained_reward_by_hand():
    reward = constrained({AT_MOST: 1.5, ("b", "at_least"): 0.75}, learning_rate=0.4)
    assert reward(*BATCH) == [3.0, 0.0]  # multipliers are 0 in the first batch
    multipliers = {"length at_most": 0.4 * 0.5, "b at_least": 0.4 * 0.25}
    assert reward.multipliers == pytest.approx(multipliers)
    # 3 - 0.2 (3 - 1.5) + 0.1 (0 - 0.75), 0 - 0.2 (1 - 1.5) + 0.1 (1 - 0.75)
    assert reward(*BATCH) == pytest.approx([2.625, 0.125])


def test_multipliers_rise_while_violated_fall_when_met_and_stay_in_bounds():
    reward = constrained({AT_MOST: 1.0}, learning_rate=1.0, ceiling=2.5)

    def learn(*texts):
        reward(["p"] * len(texts), texts)
        return reward.multipliers["length at_most"]

    assert [learn("a a a", "b") for _ in range(4)] == [1.0, 2.0, 2.5, 2.5]
    # length 0 is one below, length 1 exactly on the threshold
    assert [learn(text) for text in ("", "a", "a", "", "", "")] == [1.5, 1.5, 1.5, 0.5, 0.0, 0.0]


def test_the_state_of_a_constrained_reward_goes_through_json_with_the_counts():
    limits = {AT_MOST: 1.5, ("length", "at_least"): 0.5}
    straight, first, resumed = (CountedReward("a", constrained(limits)) for _ in range(3))
    for reward in (straight, first):
        reward(*BATCH, completion_ids=[[1, 2, 3], [4]])
    resumed.load(json.loads(json.dumps(first.state())))
    assert (resumed.tokens, resumed.completions) == (4, 2)
    assert resumed(*BATCH) == straight(*BATCH)
    assert resumed.state() == straight.state() | {"tokens": 4}
    with pytest.raises(InputError, match="multipliers for"):
        CountedReward("a", constrained({AT_MOST: 1.5})).load(first.state())
    assert CountedReward("a", count("a")).state()["signal"] is None


# -- options -------------------------------------------------------------------------------------

OF_TASK = {"proxy": count("a"), "other": count("b"), "gold": count("c")}
BUILT = built(signals=OF_TASK, training="proxy")
TEXTS = (["p", "p"], ["a a a", "b c"])


def assemble(task, options):
    """The training signal that a run's hyperparameters put together."""
    return RewardOptions.read(options).signal(task)


@pytest.fixture
def words_are_tokens(monkeypatch):
    monkeypatch.setattr(
        "autorl.trainers.language.rewards.options.load_tokenizer",
        lambda folder: lambda text, **rest: {"input_ids": text.split()},
    )


@pytest.mark.parametrize(
    ("options", "ensemble", "expected"),
    [
        ({}, (), [3.0, 0.0]),
        # Proxy 3, 0; other 0, 1: means 1.5 and 0.5, variances 2.25 and 0.25.
        ({"signals": ("proxy", "other")}, (), [1.5, 0.5]),
        ({"signals": ("proxy", "other"), "rule": "wco"}, (), [0.0, 0.0]),
        ({"signals": ("proxy", "other"), "rule": "uwo", "weight": 0.2}, (), [1.05, 0.45]),
        ({"signals": "other"}, (), [0.0, 1.0]),
        ({"signals": ("other",)}, (), [0.0, 1.0]),
        # A rule alone is over the ensemble of the task.
        ({}, ("proxy", "other"), [3.0, 0.0]),
        ({"rule": "wco"}, ("proxy", "other"), [0.0, 0.0]),
        ({"rule": "wco", "signals": "gold"}, ("proxy", "other"), [0.0, 1.0]),
        # Three words against a limit of 4 with a buffer of 2: half the penalty; two words: none.
        ({"length_limit": 4, "length_buffer": 2, "length_weight": 2.0}, (), [2.0, 0.0]),
        ({"signals": "my_rewards:brevity"}, (), [-5.0, -3.0]),
        ({"signals": ("proxy", "my_rewards:brevity")}, (), [-1.0, -1.5]),
    ],
)
def test_options_make_a_signal(
    options, ensemble, expected, words_are_tokens, tmp_path, monkeypatch
):
    code = "def brevity(prompts, completions):\n    return [-1.0 * len(text) for text in completions]\n"
    with importable("my_rewards", code, tmp_path, monkeypatch):
        task = replace(BUILT, ensemble=ensemble)
        given = {f"reward.{name}": value for name, value in options.items()}
        assert assemble(task, given)(*TEXTS) == pytest.approx(expected)


def test_process_rewards_with_clip():
    """Sorting `2 1 >`: `1 1` has steps 1, 0. Clipped at 0.5: 0, -0.5."""
    task = built(signals={"gold": lambda p, c: [0.0]})
    steps = "autorl.trainers.language.tasks.sorting:steps"
    options = {"reward.process": steps, "reward.process_weight": 2.0}
    case = (["2 1 >"], ["1 1"])
    assert assemble(task, options)(*case) == [2.0]
    assert assemble(task, {**options, "reward.process_clip": 0.5})(*case) == [-1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rul": "mean"}, "unknown option"),
        ({"kl.at_most": 1.0}, "no signal 'kl'"),
        ({"weight": 1.0}, r"nothing without reward\.rule"),
        ({"process_clip": 0.5}, r"nothing without reward\.process"),
        ({"process": "json:loads", "process_delta": True}, r"nothing without reward\.process_sep"),
        ({"process_separator": " "}, r"nothing without reward\.process"),
        ({"length_buffer": 2}, r"nothing without reward\.length_limit"),
        ({"lagrange_rate": 0.1}, "nothing without a constraint"),
        ({"signals": ("nothing",)}, "no signal 'nothing' in tiny"),
        ({"signals": ()}, "expected a signal"),
        ({"signals": ("no_such_module:f",)}, "cannot import"),
        ({"signals": ("json:nothing",)}, "cannot import"),
        ({"signals": ("json:__name__",)}, "not a function"),
        ({"signals": ("proxy", "other"), "rule": "max"}, "mean, wco, uwo"),
        ({"signals": ("proxy", "other"), "rule": "uwo", "weight": -0.1}, "cannot be negative"),
        ({"length_limit": 4, "length_buffer": 5}, "buffer"),
        ({"gold.at_most": 1.0, "lagrange_rate": -0.1}, "reward.lagrange_rate"),
        ({"gold.at_most": 1.0, "lagrange_ceiling": -1.0}, "reward.lagrange_ceiling"),
    ],
)
def test_wrong_options(options, message, words_are_tokens):
    with pytest.raises(InputError, match=message):
        assemble(BUILT, {f"reward.{name}": value for name, value in options.items()})


def test_a_separator_is_a_text():
    for separator in ("", 3):
        options = {"reward.process": "json:loads", "reward.process_separator": separator}
        with pytest.raises(InputError, match="expected the text between two steps"):
            RewardOptions.read(options).step_rewards()


def test_a_rule_with_nothing_to_put_together_is_refused_before_a_study():
    rule = RewardOptions.read({"reward.rule": None, "learning_rate": None})
    rule.check(OF_TASK)
    rule.check(OF_TASK, ensemble=("proxy", "other"))
    RewardOptions.read({"reward.rule": None, "reward.signals": None}).check(OF_TASK, ())
    with pytest.raises(InputError, match="puts several signals together"):
        rule.check(OF_TASK, ensemble=())


@pytest.mark.parametrize(
    ("options", "ensemble", "expected"),
    [
        ({"learning_rate": 0.1}, (), {"proxy"}),
        ({"reward.signals": ("other", "gold")}, (), {"other", "gold"}),
        ({"reward.gold.at_least": 0.1}, (), {"proxy", "gold"}),
        ({"reward.rule": "mean"}, ("proxy_0", "proxy_1"), {"proxy_0", "proxy_1"}),
    ],
)
def test_what_a_run_is_trained_on(options, ensemble, expected):
    assert RewardOptions.read(options).trained_on("proxy", ensemble) == expected
    assert maybe_trained_on(options, {}, "proxy", ensemble) == expected


def test_what_some_configuration_of_a_space_is_trained_on():
    numbers = {"learning_rate": (), "reward.kl.at_most": ()}
    assert maybe_trained_on({}, numbers, "proxy") == {"proxy", "kl"}
    listed = {"reward.signals": ("proxy", ("other", "gold"))}
    assert maybe_trained_on({}, listed, "proxy") == {"proxy", "other", "gold"}
    rule = {"reward.rule": ("mean", "wco")}
    assert maybe_trained_on({}, rule, "proxy", ("one", "two")) == {"one", "two"}


def test_a_limit_and_a_constraint_count_tokens(tmp_path):
    """By character `abc de` is two words and six tokens: half way into the buffer of 4, and 3 above the limit of 3."""
    pytest.importorskip("transformers", reason="needs the extra rlhf")
    from tokenizers import Regex, pre_tokenizers

    write_tokenizer(tmp_path, [*"abcdef", " "])
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.save_pretrained(tmp_path)
    task = built(tmp_path, signals={"gold": lambda prompts, texts: [0.0] * len(texts)})
    batch = (["a", "a"], ["abc de", "ab"])
    limited = assemble(task, {"reward.length_limit": 8, "reward.length_buffer": 4})
    assert limited(*batch) == [-0.5, 0.0]
    reward = assemble(task, {"reward.length.at_most": 3.0, "reward.lagrange_rate": 1.0})
    assert reward(*batch) == [0.0, 0.0]
    assert reward.multipliers == {"length at_most": 1.0}  # mean 4 against 3
    assert reward(*batch) == [-3.0, 1.0]


def test_it_is_the_length_that_evaluations_report(tmp_path):
    pytest.importorskip("transformers", reason="needs the extra rlhf")
    write_policy(tmp_path)
    policy, tokenizer = load(tmp_path)
    drawn = sample(policy, tokenizer, ["a b"] * 64, 8, 0)
    # No text is left of these.
    special = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id}
    (tokens, _, mask), *_ = drawn.batches
    rows = [set(row[counted].tolist()) for row, counted in zip(tokens, mask.bool(), strict=True)]
    plain = [place for place, row in enumerate(rows) if not special & row]
    task = built(tmp_path, signals={"gold": lengths})
    found = assemble(task, {"reward.length.at_most": 0.0}).signals["length"]([], drawn.texts)
    assert len(plain) > 20
    assert [found[place] for place in plain] == [drawn.lengths[place] for place in plain]
    assert len({found[place] for place in plain}) > 3
