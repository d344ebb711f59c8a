"""A user's reward functions, plain or as TRL calls them, with columns of the data."""

import math
from types import SimpleNamespace

import pytest
from refusals import expect_error
from rlhf_support import build_files, built, files_options, importable

from autorl.core.types import InputError
from autorl.trainers.language import policy_metrics
from autorl.trainers.language.rewards import user_signals
from autorl.trainers.language.rewards.options import RewardOptions
from autorl.trainers.language.rewards.user_signals import RewardModel, function_signal, is_function
from autorl.trainers.language.tasks.files import FILES

CODE = """
def plain(texts, answers):
    return [len(text) + len(answer) for text, answer in zip(texts, answers)]

def checked(prompts, completions, answer=None):
    return [float(text == wanted) for text, wanted in zip(completions, answer or ["?"] * len(completions))]

def exact(prompts, completions, *, answer):
    return [float(text == wanted) for text, wanted in zip(completions, answer)]

def like_trl(completions, **rest):
    rows = zip(completions, rest["answer"], rest["prompts"])
    return [float(text in wanted and prompt != "") for text, wanted, prompt in rows]

def by_name(completions, **rest):
    return [float(len(rest.get("answer", ()))) for _ in completions]

async def slow(prompts, completions):
    return [float(len(text)) for text in completions]

async def slow_column(completions, answer, **rest):
    return [float(text == wanted) for text, wanted in zip(completions, answer)]

def short(prompts, completions):
    return [1.0]

def alone(text):
    return 1.0

def of_messages(completions, **rest):
    return [len(completion[0]["content"]) for completion in completions]

def none(prompts, completions):
    return [None if text == "a" else 1 for text in completions]

def nan(prompts, completions):
    return [float("nan") for text in completions]

def of_tokens(completions, completion_ids):
    return [float(len(ids)) for ids in completion_ids]

def of_chat(prompts, completions, answer=None):
    return [len(asked) + len(told[0]["content"]) for asked, told in zip(prompts, completions)]

def words(prompts, completions):
    return ["good" for text in completions]

def single(prompts, completions):
    return 1.0

def missing(prompts, completions):
    return [{}["x"] for text in completions]

def no_memory(prompts, completions):
    raise MemoryError
"""
ROWS = [
    {"prompt": "p", "answer": "x"},
    {"prompt": "q", "answer": "y z"},
    {"prompt": "p", "answer": "x"},
]
TWICE = [*ROWS, {"prompt": "q", "answer": "other"}]
KEY = "environment.kwargs.signals.gold"


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    with importable("own_rewards", CODE, tmp_path, monkeypatch):
        yield


def signal(name, rows=ROWS):
    return function_signal(f"own_rewards:{name}", [(row["prompt"], row) for row in rows], KEY)


@pytest.mark.parametrize(
    ("name", "rows", "prompts", "completions", "expected"),
    [
        ("plain", ROWS, ["p", "qq"], ["a", "bb"], [2.0, 4.0]),
        ("exact", ROWS, ["q", "p", "q"], ["y z", "y z", "x"], [1.0, 0.0, 0.0]),
        ("like_trl", ROWS, ["q", "p"], ["z", "z"], [1.0, 0.0]),
        ("slow", ROWS, ["p", "q"], ["a", "bb"], [1.0, 2.0]),
        ("slow_column", ROWS, ["p", "q"], ["x", "x"], [1.0, 0.0]),
        # A parameter with a default is a column where there is one.
        ("checked", ROWS, ["q", "p"], ["y z", "y z"], [1.0, 0.0]),
        ("checked", [{"prompt": "p"}], ["p", "p"], ["x", "?"], [0.0, 1.0]),
        # A further column that is not whole is left out in silence.
        ("by_name", [*ROWS, {"prompt": "r"}], ["p"], ["a"], [0.0]),
        ("by_name", ROWS, ["p"], ["a"], [1.0]),
    ],
)
def test_a_function_is_given_what_it_takes(name, rows, prompts, completions, expected):
    assert signal(name, rows)(prompts, completions) == expected


def test_a_reward_that_does_not_apply_is_nan():
    first, second = signal("none")(["p", "q"], ["a", "b"])
    assert (math.isnan(first), second) == (True, 1.0)
    metrics = policy_metrics._mean([first, second, 3.0])
    assert metrics == 2.0  # a mean of where it applies
    assert math.isnan(policy_metrics._mean([first]))


def test_functions_get_messages_and_tokens_as_in_trl():
    """Messages where the data has messages, `trl.rewards` among the functions; tokens of each completion."""
    chats = {"p": [{"role": "user", "content": "hi"}]}
    rows = [("p", {"prompt": chats["p"], "answer": "x"})]

    def made(source, **more):
        return function_signal(source, rows, KEY, chats, **more)

    assert made("own_rewards:of_messages")(["p", "p"], ["a", "abc"]) == [1.0, 3.0]
    assert made("own_rewards:of_chat")(["p"], ["abc"]) == [4.0]
    pytest.importorskip("trl", reason="needs the extra rlhf")
    thought = ["<think>\na\n</think>\nb", "b"]
    assert made("trl.rewards:think_format_reward")(["p", "p"], thought) == [1.0, 0.0]

    def tokenizer(texts, add_special_tokens):
        return {"input_ids": [text.split() for text in texts]}

    counted = made("own_rewards:of_tokens", tokenizer=lambda: tokenizer)
    assert counted(["p"], ["a b c"]) == [3.0]


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("exact", [{"prompt": "p"}], "takes 'answer', and the data has no such column"),
        ("exact", TWICE, "exact takes 'answer', which has two values for the prompt 'q'"),
        ("checked", TWICE, "checked takes 'answer', which has two values for the prompt 'q'"),
        ("checked", [*ROWS, {"prompt": "r"}], "which has no value for the prompt 'r'"),
        ("alone", ROWS, r"must take prompts and completions, not \(text\)"),
        ("nothing", ROWS, "cannot import"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(name, rows, message):
    expect_error(message, signal, name, rows)


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("of_messages", ROWS, r"failed: TypeError: string indices .* comes as a text"),
        ("nan", ROWS, "returned nan, expected a number for each completion, or None where"),
        ("words", ROWS, "returned 'good', expected a number"),
        ("single", ROWS, "failed: TypeError: 'float' object is not iterable"),
        ("missing", ROWS, "failed: KeyError: 'x'"),
        ("short", ROWS, "returned 1 number for 2 completions"),
        ("like_trl", TWICE, "failed: KeyError"),  # such a column is not handed on
    ],
)
def test_what_goes_wrong_in_a_reward_says_in_which(name, rows, message):
    expect_error(f"{KEY}: own_rewards:{name} {message}", signal(name, rows), ["p", "q"], ["a", "b"])


def test_failures_of_the_machine_keep_their_kind():
    with pytest.raises(MemoryError):
        signal("no_memory")(["p"], ["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"signals": "own_rewards:missing"},
            "reward.signals: own_rewards:missing failed: KeyError",
        ),
        ({"signals": ["gold", "own_rewards:nan"], "rule": "mean"}, "own_rewards:nan returned nan"),
        ({"process": "own_rewards:of_messages"}, "reward.process: own_rewards:of_messages failed"),
    ],
)
def test_functions_among_the_options_of_the_reward_are_named_too(options, message):
    task = built(signals={"gold": lambda prompts, texts: [0.0] * len(texts)})
    given = {f"reward.{name}": value for name, value in options.items()}
    expect_error(message, RewardOptions.read(given).signal(task), ["p"], ["a"])


def test_a_function_is_told_from_a_folder(tmp_path):
    (tmp_path / "a:b").mkdir()
    assert is_function("own_rewards:exact")
    assert not is_function("models/reward")
    assert not is_function(str(tmp_path / "a:b"))


PROMPTS = [f"prompt {number}" for number in range(20)]
ANSWERED = [{"prompt": prompt, "answer": prompt[-1]} for prompt in PROMPTS]
GOLD = {"training": "gold", "selection": "length", "report": "gold"}


def test_a_reward_is_called_once_before_a_study(tmp_path):
    """The task `files` calls every signal on a few rows; nothing is trained for it."""
    signals = {"fine": "own_rewards:slow", "gold": "own_rewards:of_messages"}
    options = files_options(tmp_path, ANSWERED, **GOLD, signals=signals)
    with pytest.raises(InputError, match=r"signals\.gold: own_rewards:of_messages failed: TypeE"):
        FILES.with_options(options).check(options)
    signals["gold"] = "own_rewards:plain"
    assert FILES.with_options(options).check(options) == ["prompts"]


@pytest.mark.parametrize("name", ["checked", "exact"])
def test_every_prompt_that_is_sampled_from_has_its_answer(name, tmp_path):
    """From the data, from `prompts` beside texts or other data, and from a held-out set whose answers then count."""
    others = [{"prompt": f"other {number}", "chosen": "a", "rejected": "b"} for number in range(20)]
    texts = [{"text": f"text {number}"} for number in range(20)]
    asked = [{"prompt": prompt} for prompt in PROMPTS]
    apart = [{"prompt": prompt, "answer": "kept"} for prompt in PROMPTS[:4]]
    own = {row["prompt"]: row["answer"] for row in ANSWERED}
    kept = own | {row["prompt"]: row["answer"] for row in apart}
    for wanted, data, more in (
        (own, ANSWERED, {}),
        (own, others, {"prompts": ANSWERED}),
        (own, texts, {"prompts": ANSWERED}),
        (own, ANSWERED, {"prompts": asked}),
        (kept, ANSWERED, {"held_out": apart}),
        (kept, ANSWERED, {"held_out": apart, "prompts": ANSWERED}),
    ):
        options = GOLD | {"signals": {"gold": f"own_rewards:{name}"}} | more
        task = build_files(tmp_path, data, **options)
        assert set(task.prompts) | set(task.held_out) == set(PROMPTS)
        assert task.signals["gold"](PROMPTS, [wanted[prompt] for prompt in PROMPTS]) == [1.0] * 20
        assert task.signals["gold"](PROMPTS, ["no"] * 20) == [0.0] * 20


def test_prompts_without_the_column_of_the_data_are_refused(tmp_path):
    asked = [{"prompt": f"other {number}"} for number in range(20)] + ANSWERED
    signals = {"gold": "own_rewards:exact"}
    with pytest.raises(InputError, match="'answer', which has no value for the prompt 'other 0'"):
        build_files(tmp_path, ANSWERED, **GOLD, signals=signals, prompts=asked)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_reward_model_goes_where_the_policy_trains(monkeypatch, on_gpu):
    moved = []
    model = object.__new__(RewardModel)
    vars(model).update(model=SimpleNamespace(to=moved.append), tokenizer=None)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: on_gpu)
    monkeypatch.setattr(user_signals, "model_rewards", lambda *given: [1.0])
    assert model(["a"], ["b"]) == [1.0]
    assert moved == ["cuda"] * on_gpu
